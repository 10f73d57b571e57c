"""A session directory being put together beside its place, under a name nobody knows beforehand.

Files are 0600 and directories 0700 whatever the umask. With an owner, everything inside belongs to it from the start,
and the staging directory itself only at the end, so that nobody but the daemon reaches what is inside before it is
whole.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from typing import TYPE_CHECKING
from uuid import uuid4

from sandbox_agent.core.copy import write_all
from sandbox_agent.core.owner import give
from sandbox_agent.core.paths import FILE_FLAGS
from sandbox_agent.core.removal import empty_directory, remove_tree
from sandbox_agent.core.rename import identity_at, rename_exclusive
from sandbox_agent.core.rollback import Rollback
from sandbox_api.errors import ConflictError, printable
from sandbox_api.names import STAGING_PREFIX

if TYPE_CHECKING:
    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory

# Manifests are sorted: a directory is left for good once its files are there. Only its ancestors are worth keeping.
_MAX_HELD_COUNT = 64
_CREATE_FLAGS = FILE_FLAGS | os.O_CREAT | os.O_EXCL | os.O_RDWR
_FILE_MODE = 0o600


class Staging:
    """A directory that is made now, and later placed or removed.

    Args:
        parent: Folder in which it is made; not closed by this object.
        name: Its name there, which must not exist.
        owner: User and group id of all that is in it; None: the daemon's own.
    """

    def __init__(self, parent: Directory, name: bytes, owner: Owner | None) -> None:
        self._parent = parent
        self._owner = owner
        self.name = name
        self.directory = parent.make_directory(name)
        status = os.fstat(self.directory.fd)
        self.identity = (status.st_dev, status.st_ino)
        self._held: OrderedDict[bytes, Directory] = OrderedDict()
        self._made: set[bytes] = set()

    def create(self, path: bytes) -> int:
        """Create a file that must not exist, with its directories; return its descriptor, which the caller closes."""
        parent, _, name = path.rpartition(b"/")
        folder = self._folder(parent)
        try:
            # A manifest's name is one plain segment: the checks of Directory.file would cost as much as the rest.
            fd = os.open(name, _CREATE_FLAGS, _FILE_MODE, dir_fd=folder.fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, folder.join(name)) from None
        try:
            os.fchmod(fd, _FILE_MODE)
            give(fd, self._owner)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def write(self, path: bytes, content: bytes | memoryview) -> None:
        """Create a file that must not exist, with its directories and its whole content."""
        fd = self.create(path)
        try:
            write_all(fd, content)
        finally:
            os.close(fd)

    def take(self, folder: Directory, name: bytes, path: bytes, fd: int) -> bool:
        """Move a file of another directory here; tell whether it is the one that is open, and nobody else's.

        What takes its name meanwhile goes.

        Args:
            folder: Where it is.
            name: Its name there.
            path: The path it is to have here, at which nothing is.
            fd: The file, open.

        Raises:
            OSError: it cannot be moved, or not be made like the others; then it is not here.
        """
        status = os.fstat(fd)
        if status.st_uid not in (os.geteuid(), self._owner[0] if self._owner else -1):
            return False
        target, new_name = self._folder(path.rpartition(b"/")[0]), _last(path)
        rename_exclusive(folder, name, target, new_name)
        try:
            is_same = identity_at(target, new_name) == (status.st_dev, status.st_ino)
            if is_same:
                os.fchmod(fd, _FILE_MODE)
                give(fd, self._owner)
        except BaseException:
            remove_tree(target, new_name)
            raise
        if not is_same:
            remove_tree(target, new_name)
        return is_same

    def append(self, path: bytes, size: int) -> int:
        """Open a staged file to write on behind its beginning; the caller closes the descriptor.

        Args:
            path: The file.
            size: What is there; more than that is cut off.

        Raises:
            ConflictError: `target_changed`: less is there by now.
            OSError: it cannot be opened.
        """
        fd = self.directory.file(path, os.O_WRONLY)
        with Rollback() as back:
            back.add(lambda: os.close(fd))
            self._cut(path, fd, size)
        return fd

    def _cut(self, path: bytes, fd: int, size: int) -> None:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size < size:
            where = printable(self.directory.join(path))
            raise ConflictError("target_changed", f"'{where}' changed while it was gone on with", facts={"path": where})
        os.ftruncate(fd, size)
        os.lseek(fd, size, os.SEEK_SET)

    def open(self, path: bytes) -> int:
        """Open a staged file for reading; the caller closes it."""
        return self.directory.file(path)

    def create_beside(self, path: bytes) -> tuple[int, bytes]:
        """Create a file in the directory of another one under a new name; return its descriptor and its path."""
        parent, slash, _ = path.rpartition(b"/")
        fresh = parent + slash + STAGING_PREFIX.encode() + uuid4().hex.encode()
        return self.create(fresh), fresh

    def replace(self, fresh: bytes, path: bytes) -> None:
        """Rename a file over another one of the same directory."""
        folder = self._folder(path.rpartition(b"/")[0])
        os.rename(_last(fresh), _last(path), src_dir_fd=folder.fd, dst_dir_fd=folder.fd)

    def remove_file(self, path: bytes) -> None:
        """Remove a staged file."""
        os.unlink(_last(path), dir_fd=self._folder(path.rpartition(b"/")[0]).fd)

    def finish(self) -> None:
        """Let go of what only writing needed and give the directory itself to its owner."""
        self._release()
        give(self.directory.fd, self._owner)

    def remove(self) -> None:
        """Remove all of it, wherever the sandbox may have moved it.

        Raises:
            OSError: something could not be removed.
        """
        self._release()
        empty_directory(self.directory)
        try:
            status = self._parent.stat(self.name)
        except FileNotFoundError:
            return
        if (status.st_dev, status.st_ino) == self.identity:
            os.rmdir(self.name, dir_fd=self._parent.fd)

    def close(self) -> None:
        """Let go of all descriptors; nothing on the disk changes."""
        self._release()
        self.directory.close()

    def _release(self) -> None:
        while self._held:
            self._held.popitem()[1].close()

    def _folder(self, path: bytes) -> Directory:
        if not path:
            return self.directory
        if held := self._held.get(path):
            self._held.move_to_end(path)
            return held
        if path in self._made:
            held = self.directory.directory(path)
        else:
            parent, _, name = path.rpartition(b"/")
            held = self._folder(parent).make_directory(name, owner=self._owner)
            self._made.add(path)
        self._held[path] = held
        if len(self._held) > _MAX_HELD_COUNT:
            self._held.popitem(last=False)[1].close()
        return held


def _last(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]
