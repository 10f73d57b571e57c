"""What an object's file is before it has its name: a draft, locked for as long as its writer lives."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from host_client.session.folder import Folder

_DRAFT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PROBE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Draft:
    """A file with all of an object, forced to the disk. Leaving it without `place` removes it.

    Args:
        folder: Where drafts lie, on the file system of what they become.
        parts: Its bytes.
    """

    def __init__(self, folder: Folder, *parts: bytes) -> None:
        self._folder = folder
        self._fd = -1
        self._is_placed = False
        self._create()
        try:
            for part in parts:
                self._write(part)
            os.fsync(self._fd)
        except BaseException:
            self._discard()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()

    def place(self, parent: Folder, name: str) -> None:
        """Give the file its name, replacing what has it, in one atomic step."""
        os.rename(self._name, name, src_dir_fd=self._folder.fd, dst_dir_fd=parent.fd)
        self._is_placed = True

    def _create(self) -> None:
        while True:
            self._name = secrets.token_hex(16)
            self._fd = os.open(self._name, _DRAFT_FLAGS, 0o600, dir_fd=self._folder.fd)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX)
                if os.fstat(self._fd).st_nlink:
                    os.fchmod(self._fd, 0o600)
                    return
            except BaseException:
                self._discard()
                raise
            os.close(self._fd)  # a sweep took it for a dead one between its creation and its lock

    def _write(self, part: bytes) -> None:
        left = memoryview(part)
        while left:
            left = left[os.write(self._fd, left) :]

    def _discard(self) -> None:
        os.close(self._fd)
        if not self._is_placed:
            with suppress(FileNotFoundError):  # somebody removed the whole folder: that is not the error to report
                os.unlink(self._name, dir_fd=self._folder.fd)


def sweep(folder: Folder) -> None:
    """Remove the drafts of writers that live no more."""
    for name in folder.names():
        try:
            fd = os.open(name, _PROBE_FLAGS, dir_fd=folder.fd)
        except OSError:
            continue  # gone, or no file of ours
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stat.S_ISREG(os.fstat(fd).st_mode):
                os.unlink(name, dir_fd=folder.fd)
        except (BlockingIOError, FileNotFoundError):
            continue  # its writer lives, or another sweep was faster
        finally:
            os.close(fd)
