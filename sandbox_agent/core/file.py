"""Single files below the roots: told, found, removed. No link is followed below a root."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox_agent.core.paths import LinkError
from sandbox_api.errors import ConfigurationError, LimitError, WorkspaceError, printable
from sandbox_api.limits import MAX_DEPTH_COUNT, MIB

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from sandbox_agent.core.paths import Directory, Roots

MAX_HEAD_BYTES = MIB
_HEAD_BYTES = 64 << 10
_HEADS_COUNT = 64
"""Heads that are read between two signs of life."""


@dataclass(frozen=True, slots=True)
class Info:
    """What is at a path.

    Attributes:
        path: Absolute path, as it is reached from its root.
        kind: `file`, `directory`, `symlink` or `other`.
        size: In bytes.
        modified_ns: Modification time in nanoseconds.
        mode: Permission bits.
        uid: Owner.
        gid: Group.
    """

    path: bytes
    kind: str
    size: int
    modified_ns: int
    mode: int
    uid: int
    gid: int


def stat_file(roots: Roots, path: bytes) -> Info:
    """Tell what is at an absolute path; a link in the last place is told, not followed.

    Raises:
        WorkspaceError: `unsafe_path`, `outside_roots`.
        OSError: nothing is there, or it cannot be reached.
    """
    root, relative = roots.locate(path)
    return info_of(root.join(relative), root.stat(relative))


def find_files(
    roots: Roots, directory: bytes, pattern: str, max_files: int, *, contains: bytes = b"", head_bytes: int = 0
) -> Iterator[list[Info]]:
    """Find the regular files below a directory whose name a glob matches.

    Yields lists whose files, one list after the other, are ordered by path; one list for each directory at least, also
    without any file, so that a caller can stop in between. What goes away meanwhile is passed over.

    Args:
        roots: Where to look.
        directory: Absolute path to start at; nothing there: no files.
        pattern: `*`, `?` and `[...]` on the file name.
        max_files: Most results.
        contains: Only files that have this among their first bytes; empty: any content.
        head_bytes: How many of them are read, at most `MAX_HEAD_BYTES`; 0: 64 KiB.

    Raises:
        ConfigurationError: `invalid_argument`: the pattern is empty or has a slash; `head_bytes` is too large, or too
            small for `contains`.
        WorkspaceError: `unsafe_path`, `outside_roots`, `access`, also when a head cannot be read.
        LimitError: `max_files`, `max_depth`.
    """
    search = _Search(name_matcher(pattern), max_files, contains, head_bytes or _HEAD_BYTES)
    if not len(contains) <= search.head_bytes <= MAX_HEAD_BYTES:
        raise ConfigurationError(
            "invalid_argument",
            f"{len(contains)} bytes cannot be looked for in the first {search.head_bytes} of a file",
            hint=f"look at up to {MAX_HEAD_BYTES} bytes",
        )
    try:
        start = roots.directory(directory)
    except FileNotFoundError:
        return
    left_count = max_files
    for found in _walk(start, search, 0):
        left_count -= len(found)
        if left_count < 0:
            raise _too_many(directory, max_files)
        yield found


def name_matcher(pattern: str) -> re.Pattern[str]:
    """Compile a glob on a file name, to be used with `fullmatch`.

    Raises:
        ConfigurationError: `invalid_argument`: it is empty or has a slash.
    """
    if not pattern or "/" in pattern or "\0" in pattern:
        raise ConfigurationError(
            "invalid_argument", f"'{printable(pattern)}' is not a glob on a file name", hint="write one such as *.jsonl"
        )
    return re.compile(fnmatch.translate(pattern))


def remove_file(roots: Roots, path: bytes) -> None:
    """Remove one regular file.

    Raises:
        WorkspaceError: `unsafe_path`, `outside_roots`, `not_a_file`.
        OSError: nothing is there, or it cannot be removed.
    """
    root, relative = roots.locate(path)
    require_regular(root, relative)
    parent, _, name = relative.rpartition(b"/")
    with root.directory(parent) as held:
        try:
            os.unlink(name, dir_fd=held.fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, held.join(name)) from None


def require_regular(root: Directory, relative: bytes) -> None:
    """Refuse what is not a regular file without opening it, since opening a FIFO or device can have effects.

    Raises:
        WorkspaceError: `not_a_file`; `unsafe_path` for a link.
        OSError: nothing is there.
    """
    mode = root.stat(relative).st_mode
    if stat.S_ISLNK(mode):
        raise LinkError(root.join(relative))
    if not stat.S_ISREG(mode):
        raise not_a_file(root.join(relative))


def not_a_file(path: bytes) -> WorkspaceError:
    """Return the failure for a path that names a directory or a special file."""
    return WorkspaceError("not_a_file", f"'{printable(path)}' is not a regular file", facts={"path": printable(path)})


def info_of(path: bytes, status: os.stat_result) -> Info:
    """Return what a status says about a path."""
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
    return Info(
        path=path,
        kind=kinds.get(stat.S_IFMT(status.st_mode), "other"),
        size=status.st_size,
        modified_ns=status.st_mtime_ns,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
    )


@dataclass(frozen=True, slots=True)
class _Search:
    """What is looked for, and how much of it at most."""

    matcher: re.Pattern[str]
    max_files: int
    contains: bytes
    head_bytes: int


def _walk(held: Directory, search: _Search, depth: int) -> Iterator[list[Info]]:
    """Yield what is found below a directory and close it."""
    with held:
        if depth > MAX_DEPTH_COUNT:
            raise LimitError(
                "max_depth",
                f"'{printable(held.path)}' lies more than {MAX_DEPTH_COUNT} directories deep",
                hint="start further down",
            )
        found: list[Info] = []
        for name in (yield from _in_path_order(held, search)):
            if not name.endswith(b"/"):
                if (info := _file(held, name)) is not None:
                    found.append(info)
                continue
            try:
                below = held.directory(name[:-1])
            except (FileNotFoundError, NotADirectoryError, LinkError):
                continue  # it went away or became a link meanwhile
            yield found
            found = []
            yield from _walk(below, search, depth + 1)
        yield found


def _in_path_order(held: Directory, search: _Search) -> Generator[list[Info], None, list[bytes]]:
    """Return the directories, with a slash, and the matching files: sorted so, as the paths below them are.

    What does not match is not remembered: a directory may hold millions of files. Yields signs of life only.
    """
    names: list[bytes] = []
    left_count = search.max_files
    heads_count = 0
    with os.scandir(held.fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names.append(os.fsencode(entry.name) + b"/")
            elif search.matcher.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                name = os.fsencode(entry.name)
                if search.contains:
                    heads_count += 1
                    if heads_count % _HEADS_COUNT == 0:
                        yield []
                    if search.contains not in read_head(held, name, search.head_bytes):
                        continue
                names.append(name)
                left_count -= 1
                if left_count < 0:
                    raise _too_many(held.path, search.max_files)
    return sorted(names)


def read_head(held: Directory, name: bytes, max_bytes: int) -> bytes:
    """Return the first bytes of a regular file; none when there is no such file, or no longer.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        if not stat.S_ISREG(held.stat(name).st_mode):
            return b""
        fd = held.file(name)
    except (FileNotFoundError, LinkError):
        return b""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # swapped since it was looked at
            return b""
        head = b""
        while len(head) < max_bytes and (data := os.read(fd, max_bytes - len(head))):
            head += data
    except OSError as error:
        raise OSError(error.errno, error.strerror, held.join(name)) from None
    finally:
        os.close(fd)
    return head


def _too_many(directory: bytes, max_files: int) -> LimitError:
    return LimitError(
        "max_files",
        f"more than {max_files} files match below '{printable(directory)}'",
        hint="narrow the pattern or raise the limit",
        facts={"max_files": str(max_files)},
    )


def _file(held: Directory, name: bytes) -> Info | None:
    try:
        status = held.stat(name)
    except FileNotFoundError:
        return None
    return info_of(held.join(name), status) if stat.S_ISREG(status.st_mode) else None
