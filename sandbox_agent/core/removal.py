"""Remove trees through descriptors.

The one rule: no link is followed and no mount is entered, whatever the sandbox swaps meanwhile; depth costs neither
stack nor descriptors.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING
from uuid import uuid4

from sandbox_agent.core.mount import mount_id

if TYPE_CHECKING:
    from sandbox_agent.core.paths import Directory

_MAX_HELD_COUNT = 32
_MOVED_PREFIX = b".outpost-moved-"


def remove_tree(parent: Directory, name: bytes) -> None:
    """Remove what is at a name, whatever it is; nothing there is success.

    On failure a part of the tree is gone; a repeated call removes the rest.

    Raises:
        OSError: something cannot be removed; `EXDEV` where something is mounted there or inside, also a directory of
            the same file system.
    """
    try:
        is_directory = stat.S_ISDIR(parent.stat(name).st_mode)
        if not is_directory:
            os.unlink(name, dir_fd=parent.fd)
            return
        with parent.directory(name) as top:
            # A subvolume has another device and the same mount: that one is ours.
            if mount_id(top.fd) != mount_id(parent.fd):
                raise _mounted(top)
            empty_directory(top)
        os.rmdir(name, dir_fd=parent.fd)
    except FileNotFoundError:
        return


def empty_directory(top: Directory) -> None:
    """Remove all that a held directory holds.

    Raises:
        OSError: something cannot be removed.
    """
    mount = _mount(top)
    levels = [_Level(top.directory(b""), b"")]
    is_moved = False
    try:
        while levels:
            level = levels[-1]
            if name := level.next_directory():
                if len(levels) < _MAX_HELD_COUNT:
                    levels.append(_Level(level.directory.directory(name), name))
                    if _mount(levels[-1].directory) != mount:
                        raise _mounted(levels[-1].directory)
                else:
                    # Too deep to hold: moved to the top, where it is met again, so that ".." is never needed.
                    moved = _MOVED_PREFIX + uuid4().hex.encode()
                    os.rename(name, moved, src_dir_fd=level.directory.fd, dst_dir_fd=levels[0].directory.fd)
                    is_moved = True
            elif len(levels) == 1 and is_moved:
                level.read()
                is_moved = False
            else:
                levels.pop().directory.close()
                if levels:
                    os.rmdir(level.name, dir_fd=levels[-1].directory.fd)
    finally:
        for level in levels:
            level.directory.close()


def _mount(directory: Directory) -> tuple[int, int]:
    return os.fstat(directory.fd).st_dev, mount_id(directory.fd)


def _mounted(directory: Directory) -> OSError:
    return OSError(errno.EXDEV, os.strerror(errno.EXDEV), directory.path)


class _Level:
    """One directory on the way down; files are removed as soon as it is read."""

    def __init__(self, directory: Directory, name: bytes) -> None:
        self.directory = directory
        self.name = name
        self._directories: list[bytes] | None = None

    def read(self) -> None:
        """List the directory, remove what is not a directory, and remember the rest."""
        with os.scandir(self.directory.fd) as entries:
            found = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
        # A CLI may have made a directory read-only; its owner may still empty it.
        if found and not os.fstat(self.directory.fd).st_mode & stat.S_IWUSR:
            os.fchmod(self.directory.fd, stat.S_IRWXU)
        for name, is_directory in found:
            if not is_directory:
                os.unlink(name, dir_fd=self.directory.fd)
        self._directories = [name for name, is_directory in found if is_directory]

    def next_directory(self) -> bytes | None:
        """Return the next directory to empty, or None when there is none left."""
        if self._directories is None:
            self.read()
        return self._directories.pop() if self._directories else None
