"""The folders in which files to follow may lie or come: which names there are, and when they have to be read again."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sandbox_agent.core.paths import LinkError
from sandbox_api.errors import LimitError, printable
from sandbox_api.names import path_problem

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Generator

    from sandbox_agent.core.paths import Directory

MAX_FOLDERS_COUNT = 65_536
"""Directories below all patterns of one call."""

_OWN_PREFIX = b".outpost-"  # of what restores stage, write and set aside
_SETTLED_NS = 2_000_000_000
"""A directory that was changed so recently may change again without another time; file systems count coarsely."""


class Pattern(NamedTuple):
    """Files to follow: those at any depth below a directory whose names the matcher matches in full."""

    directory: bytes
    matcher: re.Pattern[str]
    whole_lines: bool

    def matches(self, path: bytes) -> bool:
        """Tell whether a path is one of such a file."""
        below = self.directory + b"/" if self.directory else b""
        name = os.fsdecode(path.rpartition(b"/")[2])
        return path.startswith(below) and self.matcher.fullmatch(name) is not None


@dataclass(slots=True)
class _Folder:
    """The directories found in one, by name; `modified_ns` is None when they must be read again."""

    inode: int = 0
    modified_ns: int | None = None
    names: frozenset[bytes] = frozenset()


class FollowFolders:
    """All directories of one pattern, each by its path below the home.

    Args:
        pattern: The pattern.
        watch: Called with a descriptor and a path before a directory's names are read; also for one above, as long as
            the pattern's own is missing.
        forget: Called with the path of a directory that is no more.
        found: Called with path and inode number of each file that the pattern matches, whenever it is seen.
    """

    def __init__(
        self,
        pattern: Pattern,
        *,
        watch: Callable[[int, bytes], None],
        forget: Callable[[bytes], None],
        found: Callable[[bytes, int], None],
    ) -> None:
        self._pattern = pattern
        self._watch = watch
        self._forget = forget
        self._found = found
        self._folders: dict[bytes, _Folder] = {}

    def look(self, home: Directory) -> Generator[None, None, None]:
        """Look at every directory; yields signs of life. Names are read where they may have changed.

        Raises:
            OSError: a directory cannot be read.
            LimitError: `max_files`: there are too many directories.
        """
        if self._pattern.directory not in self._folders:
            yield from self._look_for_top(home)
        for path in list(self._folders):
            yield from self._look_at(home, path)

    def look_at(self, home: Directory, path: bytes) -> Generator[None, None, None]:
        """Look at a directory in which something is said to have changed, and at what is new below it."""
        if path in self._folders:
            self.doubt(path)
            yield from self._look_at(home, path)
        elif self._pattern.directory not in self._folders:
            yield from self._look_for_top(home)

    def doubt(self, path: bytes) -> None:
        """Read the names of a directory again at the next look."""
        if (folder := self._folders.get(path)) is not None:
            folder.modified_ns = None

    def _look_for_top(self, home: Directory) -> Generator[None, None, None]:
        path = self._pattern.directory
        for above in _above(path):
            try:
                held = home.directory(above)
            except (FileNotFoundError, NotADirectoryError, LinkError):
                continue
            with held:
                self._watch(held.fd, above)
            break
        self._folders[path] = _Folder()
        yield from self._look_at(home, path)

    def _look_at(self, home: Directory, start: bytes) -> Generator[None, None, None]:
        """Look at a directory and, where its names were read, at those below."""
        waiting = [start]
        while waiting:
            yield
            path = waiting.pop()
            folder = self._folders.get(path)
            if folder is None:
                continue
            try:
                held = home.directory(path)
            except (FileNotFoundError, NotADirectoryError, LinkError):
                self._drop(path)
                continue
            with held:
                status = os.fstat(held.fd)
                if (folder.inode, folder.modified_ns) == (status.st_ino, status.st_mtime_ns):
                    continue
                self._watch(held.fd, path)
                status = os.fstat(held.fd)
                settled = time.time_ns() - status.st_mtime_ns > _SETTLED_NS
                folder.inode, folder.modified_ns = status.st_ino, status.st_mtime_ns if settled else None
                names = self._read(held.fd, path)
            for name in folder.names - names:
                self._drop(_join(path, name))
            folder.names = names
            for name in names:
                below = _join(path, name)
                self._folders.setdefault(below, _Folder())
                waiting.append(below)
            if len(self._folders) > MAX_FOLDERS_COUNT:
                raise _too_many(home.join(self._pattern.directory))

    def _read(self, fd: int, path: bytes) -> frozenset[bytes]:
        """Tell the matching files of a directory and return the names of those below."""
        names: set[bytes] = set()
        with os.scandir(fd) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if not name.startswith(_OWN_PREFIX) and not path_problem(_join(path, name)):
                        names.add(name)
                        if len(names) > MAX_FOLDERS_COUNT:
                            raise _too_many(path)
                elif (
                    self._pattern.matcher.fullmatch(entry.name)
                    and entry.is_file(follow_symlinks=False)
                    and not name.startswith(_OWN_PREFIX)
                    and not path_problem(below := _join(path, name))
                ):
                    self._found(below, entry.inode())
        return frozenset(names)

    def _drop(self, path: bytes) -> None:
        """Forget a directory that is no more, and those below; it may come back without its parent telling."""
        waiting = [path]
        while waiting:
            gone = waiting.pop()
            folder = self._folders.pop(gone, None)
            if folder is not None:
                self._forget(gone)
                waiting += [_join(gone, name) for name in folder.names]
        if (parent := self._folders.get(path.rpartition(b"/")[0])) is not None:
            parent.names -= {path.rpartition(b"/")[2]}
            parent.modified_ns = None


def _join(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name


def _above(path: bytes) -> list[bytes]:
    """Return the paths above one, the nearest first; the last is that of the home, which is empty."""
    segments = path.split(b"/") if path else []
    return [b"/".join(segments[:count]) for count in range(len(segments) - 1, -1, -1)]


def _too_many(path: bytes) -> LimitError:
    return LimitError(
        "max_files",
        f"more than {MAX_FOLDERS_COUNT} directories lie below '{printable(path)}'",
        hint="follow a directory further down",
    )
