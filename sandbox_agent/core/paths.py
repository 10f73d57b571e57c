"""Paths below roots, held by descriptors.

The one rule: a path is resolved once, from a held root, without following any link, and from then on only its
descriptor is used. The roots come from the operator and are resolved when the daemon starts; everything below them
belongs to the sandbox, which may swap any name for a link at any moment.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING

from sandbox_agent.core import syscall
from sandbox_api.errors import WorkspaceError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self

_RESOLVE = syscall.RESOLVE_BENEATH | syscall.RESOLVE_NO_SYMLINKS | syscall.RESOLVE_NO_MAGICLINKS
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEPS = (b"", b".", b"..")
# O_NONBLOCK: opening a FIFO must not wait for its other end.
FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class LinkError(OSError):
    """A symbolic link stands where none may be followed; `filename` is its absolute path."""

    def __init__(self, path: bytes) -> None:
        super().__init__(errno.ELOOP, os.strerror(errno.ELOOP), path)


@cache
def has_openat2() -> bool:
    """Tell whether the kernel, and what filters its calls, offer openat2 (Linux 5.6)."""
    try:
        os.close(syscall.openat2(-100, b".", os.O_PATH | os.O_DIRECTORY, 0, syscall.RESOLVE_NO_MAGICLINKS))
    except OSError:
        return False
    return True


class Directory:
    """A held directory: its descriptor, and its absolute path for messages only.

    Use it as a context manager, or call `close`. All methods raise `OSError`; where a link is met, `LinkError`.
    """

    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: bytes) -> None:
        self.fd = fd
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the descriptor; a second call does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def join(self, relative: bytes) -> bytes:
        """Return the absolute path of something below, for messages."""
        if not relative:
            return self.path
        return self.path + b"/" + relative if self.path != b"/" else b"/" + relative

    def directory(self, relative: bytes) -> Directory:
        """Open a directory below; `b""` gives a second handle of this one."""
        return Directory(self._open(relative, _DIRECTORY_FLAGS, 0), self.join(relative))

    def make_directory(self, name: bytes, mode: int = 0o700, *, owner: tuple[int, int] | None = None) -> Directory:
        """Create one directory that must not exist, with exactly that mode and owner, and open it.

        Args:
            name: One segment.
            mode: Its permissions, whatever the process's umask.
            owner: Its user and group id; None: the process's own.

        Raises:
            FileExistsError: something is there; or between its making and its opening another directory was put there,
                which is left as it is.
            OSError: it cannot be made so; nothing is left of it.
        """
        _check(name)
        os.mkdir(name, mode, dir_fd=self.fd)
        with ExitStack() as failed:
            failed.callback(self._remove_made, name)
            made = failed.enter_context(self.directory(name))
            try:
                _check_fresh(made.fd)
                if owner is not None:
                    os.fchown(made.fd, *owner)
                os.fchmod(made.fd, mode)
            except OSError as error:
                raise OSError(error.errno, error.strerror, made.path) from None
            failed.pop_all()
        return made

    def _remove_made(self, name: bytes) -> None:
        with suppress(OSError):
            os.rmdir(name, dir_fd=self.fd)

    def make_directories(
        self, relative: bytes, mode: int = 0o700, *, owner: tuple[int, int] | None = None
    ) -> Directory:
        """Open a directory below, creating what is missing of its path; mode and owner are of what is created."""
        held = self.directory(b"")
        for name in relative.split(b"/") if relative else ():
            with held:
                held = _find_or_make(held, name, mode, owner)
        return held

    def file(self, relative: bytes, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
        """Open a file below and return its descriptor, which the caller closes.

        The file is not checked to be regular; it is opened without waiting, so that a FIFO cannot hang the caller.
        """
        return self._open(relative, flags | FILE_FLAGS, mode)

    def stat(self, relative: bytes) -> os.stat_result:
        """Tell what is at a path below; a link in the last place is told, not followed."""
        if not relative:
            return os.fstat(self.fd)
        _check(relative)
        parent, slash, name = relative.rpartition(b"/")
        if slash:
            with self.directory(parent) as held:
                return held.stat(name)
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.join(name)) from None

    def names(self) -> list[bytes]:
        """Return the names in this directory, sorted.

        They are read through a descriptor of their own: threads that list one descriptor each see a part.
        """
        with self.directory(b"") as listed:
            return sorted(os.fsencode(name) for name in os.listdir(listed.fd))

    def _open(self, relative: bytes, flags: int, mode: int) -> int:
        if relative:
            _check(relative)
        try:
            if b"/" not in relative:
                return os.open(relative or b".", flags, mode, dir_fd=self.fd)
            if has_openat2():
                return syscall.openat2(self.fd, relative, flags, mode, _RESOLVE)
            return self._open_stepwise(relative, flags, mode)
        except OSError as error:
            # A link gives ELOOP, or ENOTDIR where a directory was asked for. By now it may be gone again.
            link = self._first_link(relative) if error.errno in (errno.ELOOP, errno.ENOTDIR) else None
            if link is not None or error.errno == errno.ELOOP:
                raise LinkError(self.join(relative if link is None else link)) from None
            raise OSError(error.errno, error.strerror, self.join(relative)) from None

    def _open_stepwise(self, relative: bytes, flags: int, mode: int) -> int:
        *parents, name = relative.split(b"/")
        held = self.fd
        try:
            for parent in parents:
                below = os.open(parent, _DIRECTORY_FLAGS, dir_fd=held)
                if held != self.fd:
                    os.close(held)
                held = below
            return os.open(name, flags, mode, dir_fd=held)
        finally:
            if held != self.fd:
                os.close(held)

    def _first_link(self, relative: bytes) -> bytes | None:
        """Find the link that made an open fail, for its message."""
        for prefix in _prefixes(relative):
            try:
                if stat.S_ISLNK(os.stat(prefix, dir_fd=self.fd, follow_symlinks=False).st_mode):
                    return prefix
            except OSError:
                return None
        return None


def _check_fresh(fd: int) -> None:
    """Refuse a directory that cannot be the one just made: to give it away would be a gift to who put it there."""
    if os.fstat(fd).st_uid != os.geteuid() or os.listdir(fd):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _find_or_make(parent: Directory, name: bytes, mode: int, owner: tuple[int, int] | None) -> Directory:
    try:
        return parent.directory(name)
    except FileNotFoundError:
        pass
    try:
        return parent.make_directory(name, mode, owner=owner)
    except FileExistsError:  # somebody else made it in between
        return parent.directory(name)


def _check(relative: bytes) -> None:
    """Refuse a path that is not plain segments joined by slashes, before the system gives it a meaning of its own.

    Raises:
        OSError: `EXDEV` for a step to a parent or an absolute path, `EINVAL` for a NUL, an empty or a `.` segment.
    """
    if b"/" not in relative and relative not in _STEPS and b"\0" not in relative:
        return
    segments = relative.split(b"/")
    code = 0
    if b".." in segments or not segments[0]:
        code = errno.EXDEV
    elif b"" in segments or b"." in segments or b"\0" in relative:
        code = errno.EINVAL
    if code:
        raise OSError(code, os.strerror(code), relative)


def _prefixes(relative: bytes) -> Iterator[bytes]:
    parts = relative.split(b"/")
    return (b"/".join(parts[: count + 1]) for count in range(len(parts)))


def check_absolute(path: bytes) -> bytes:
    """Return an absolute path without doubled or trailing slashes.

    Raises:
        WorkspaceError: `unsafe_path`: relative, with a NUL, or with a `.` or `..` step.
    """
    segments = [segment for segment in path.split(b"/") if segment]
    if not path.startswith(b"/") or b"\0" in path or b"." in segments or b".." in segments:
        raise WorkspaceError("unsafe_path", f"'{printable(path)}' is not a plain absolute path")
    return b"/" + b"/".join(segments)


class Roots:
    """The directories below which the daemon reads and writes.

    Args:
        paths: Absolute paths named by the operator. Each is resolved now, links included, and held.

    Raises:
        OSError: one of them is not a directory that can be opened.
    """

    def __init__(self, paths: Sequence[bytes]) -> None:
        self._held: list[tuple[tuple[bytes, ...], Directory]] = []
        try:
            for path in paths:
                resolved = os.path.realpath(path)
                held = Directory(os.open(resolved, _DIRECTORY_FLAGS), resolved)
                self._held.extend((tuple(_split(name)), held) for name in {os.path.normpath(path), resolved})
        except OSError:
            self.close()
            raise
        # The deepest root that holds a path wins.
        self._held.sort(key=lambda item: len(item[0]), reverse=True)

    @property
    def paths(self) -> list[bytes]:
        """Resolved paths of the roots, sorted."""
        return sorted({held.path for _, held in self._held})

    def close(self) -> None:
        """Let go of all roots."""
        for _, held in self._held:
            held.close()

    def locate(self, path: bytes) -> tuple[Directory, bytes]:
        """Return the held root of an absolute path and the path below it; the root is not the caller's to close.

        Raises:
            WorkspaceError: `unsafe_path`, `outside_roots`.
        """
        segments = _split(check_absolute(path))
        for root, held in self._held:
            if tuple(segments[: len(root)]) == root:
                return held, b"/".join(segments[len(root) :])
        raise WorkspaceError(
            "outside_roots",
            f"'{printable(path)}' lies in none of the daemon's roots",
            hint="start the daemon with --root for that directory",
            facts={"path": printable(path)},
        )

    def directory(self, path: bytes) -> Directory:
        """Open a directory by its absolute path; the caller closes it.

        Raises:
            WorkspaceError: `unsafe_path`, `outside_roots`.
            OSError: it cannot be opened; `LinkError` where a link is on the way.
        """
        root, relative = self.locate(path)
        return root.directory(relative)


def _split(path: bytes) -> list[bytes]:
    return [segment for segment in path.split(b"/") if segment]
