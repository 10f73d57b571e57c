"""The host's folder of saved conversations of one format, held by a descriptor, and scratch files in it.

The one rule: below the directory the caller named no link is followed, and a file appears under its name only when it
is whole.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from host_client.session.bundle_memory import SETTLED_NS, file_identity
from host_client.session.failure import host_failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SCRATCH_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PROBE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Folder:
    """A held directory of the host. Use it as a context manager, or call `close`.

    Args:
        fd: Its descriptor, owned from now on.
        host_path: Its path, for messages.
    """

    def __init__(self, fd: int, host_path: Path) -> None:
        self.fd = fd
        self.host_path = host_path

    @classmethod
    def open(cls, base: Path, names: Sequence[str], *, create: bool, durable: bool = True) -> Self:
        """Open a folder below a directory; the directory itself may be reached through links, what is below may not.

        Args:
            base: Directory the caller named; it must exist.
            names: Steps below it.
            create: Create what is missing, 0700.
            durable: Force what was created to the disk.

        Raises:
            WorkspaceError: `not_found`, `unsafe_path` for a link below the base, `access`.
            LimitError: `disk_full`, `read_only`, `descriptors`.
        """
        try:
            fd = os.open(base, _DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
        except OSError as error:
            raise host_failure(error, base) from None
        with cls(fd, base) as folder:
            return folder.below(names, create=create, durable=durable)

    def below(self, names: Sequence[str], *, create: bool, durable: bool = True) -> Self:
        """Open a folder below this one, which stays open; see `open`."""
        host_path, fd = self.host_path, -1
        try:
            fd = os.dup(self.fd)
            for name in names:
                host_path /= name
                parent, fd = fd, _step(fd, name, create=create, durable=durable)
                os.close(parent)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            raise host_failure(error, host_path) from None
        return type(self)(fd, host_path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder; a second call does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def names(self) -> list[str]:
        """Return the names in this folder.

        They are read through a descriptor of their own: threads that list one descriptor each see a part.
        """
        fd = _open_directory(self.fd, ".")
        try:
            return os.listdir(fd)  # noqa: PTH208 - pathlib lists no descriptor
        finally:
            os.close(fd)

    def identity(self, name: str) -> tuple[int, int] | None:
        """Return device and inode of what has that name, or None when nothing has."""
        try:
            found = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


def _step(parent_fd: int, name: str, *, create: bool, durable: bool) -> int:
    try:
        return _open_directory(parent_fd, name)
    except FileNotFoundError:
        if not create:
            raise
    try:
        os.mkdir(name, 0o700, dir_fd=parent_fd)
    except FileExistsError:
        return _open_directory(parent_fd, name)  # another capture was faster
    if durable:
        os.fsync(parent_fd)
    return _open_directory(parent_fd, name)


def _open_directory(parent_fd: int, name: str) -> int:
    try:
        return os.open(name, _DIRECTORY_FLAGS, dir_fd=parent_fd)
    except NotADirectoryError:
        # With O_DIRECTORY a link is told as "not a directory"; without it, as the link it is.
        os.close(os.open(name, _PROBE_FLAGS, dir_fd=parent_fd))
        raise


class Scratch:
    """A file that is being written beside its final name, locked for as long as its writer lives.

    Leaving it without `place` removes it. What a killed writer left has no lock and goes when the next one for that
    name starts.

    Args:
        folder: Where it lies.
        name: Final name.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._sweep()
        self._create()

    def _create(self) -> None:
        while True:
            self._scratch_name = f".{self._name}.{secrets.token_hex(8)}.tmp"
            self.fd = os.open(self._scratch_name, _SCRATCH_FLAGS, 0o600, dir_fd=self._folder.fd)
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX)
                if os.fstat(self.fd).st_nlink:
                    os.fchmod(self.fd, 0o600)
                    return
            except BaseException:
                self.discard()
                raise
            # A sweep took it for a dead one between its creation and its lock.
            os.close(self.fd)

    def place(self, *, durable: bool) -> tuple[tuple[int, ...], int]:
        """Give the file its final name, replacing what has it, in one atomic step.

        Its modification time becomes one that no later write can give it (see `bundle_memory`).

        Returns:
            Identity of the file under its name, and the wall time of this call in nanoseconds.
        """
        placed_ns = time.time_ns()
        os.utime(self.fd, ns=(placed_ns, placed_ns - SETTLED_NS))
        if durable:
            os.fsync(self.fd)
        os.rename(self._scratch_name, self._name, src_dir_fd=self._folder.fd, dst_dir_fd=self._folder.fd)
        identity = file_identity(self.fd)
        fd, self.fd = self.fd, -1
        os.close(fd)
        if durable:
            os.fsync(self._folder.fd)
        return identity, placed_ns

    def discard(self) -> None:
        """Remove the file unless it was placed; a second call does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
            with suppress(FileNotFoundError):  # somebody removed the whole folder: that is not the error to report
                os.unlink(self._scratch_name, dir_fd=self._folder.fd)

    def _sweep(self) -> None:
        prefix, suffix = f".{self._name}.", ".tmp"
        for name in self._folder.names():
            if name.startswith(prefix) and name.endswith(suffix):
                self._sweep_one(name)

    def _sweep_one(self, name: str) -> None:
        try:
            fd = os.open(name, _PROBE_FLAGS, dir_fd=self._folder.fd)
        except OSError:
            return  # gone, or no file of ours
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stat.S_ISREG(os.fstat(fd).st_mode):
                os.unlink(name, dir_fd=self._folder.fd)
        except (BlockingIOError, FileNotFoundError):
            return  # its writer lives, or another sweep was faster
        finally:
            os.close(fd)
