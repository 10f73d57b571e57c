"""Regular files of a folder that is held: opened, known again, given a second name, moved.

The one rule: no link is followed, and a file is whole under its new name before it loses the old one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.session.bundle_memory import file_identity
from host_client.session.output import Output
from sandbox_api.errors import WorkspaceError, printable
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from host_client.session.folder import Folder

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)
"""What `link` answers where a file can have no second name there."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What the last capture left on the host: size, SHA-256, and `file_identity`."""

    size: int
    sha256: bytes
    identity: tuple[int, ...]


@contextmanager
def opened_file(folder: Folder, name: str, flags: int = _READ_FLAGS) -> Iterator[int]:
    """Give the descriptor of a regular file of a folder; no link is followed.

    Raises:
        OSError: it cannot be opened.
        WorkspaceError: `not_a_file`.
    """
    fd = os.open(name, flags, 0o600, dir_fd=folder.fd)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise WorkspaceError("not_a_file", f"no regular file is at {printable(str(folder.host_path / name))}")
        yield fd
    finally:
        os.close(fd)


def is_known(fd: int, known: KnownFile) -> bool:
    """Tell whether an open file is what it was, believed by its identity or hashed."""
    if file_identity(fd) == known.identity:
        return True
    if os.fstat(fd).st_size != known.size:
        return False
    sha256, at = hashlib.sha256(), 0
    while part := os.pread(fd, CHUNK_BYTES, at):
        sha256.update(part)
        at += len(part)
    return sha256.digest() == known.sha256


def duplicate(folder: Folder, name: str, target: Folder, target_name: str) -> None:
    """Give a file a second name in another folder, or make a copy there."""
    try:
        os.link(name, target_name, src_dir_fd=folder.fd, dst_dir_fd=target.fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        _copy(folder, name, target, target_name)


def move(folder: Folder, name: str, target: Folder, target_name: str, scratch: str) -> None:
    """Move a file to another folder, replacing what has that name there.

    Args:
        folder: Where it lies.
        name: Its name there.
        target: Where it goes.
        target_name: Its name there.
        scratch: Its name there while it is copied, when that is another file system; nothing has it at the end.
    """
    try:
        os.rename(name, target_name, src_dir_fd=folder.fd, dst_dir_fd=target.fd)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        try:
            _copy(folder, name, target, scratch)
            os.rename(scratch, target_name, src_dir_fd=target.fd, dst_dir_fd=target.fd)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(scratch, dir_fd=target.fd)
            raise
        os.unlink(name, dir_fd=folder.fd)


def _copy(folder: Folder, name: str, target: Folder, target_name: str) -> None:
    with opened_file(folder, name) as source:
        fd = os.open(target_name, _NEW_FLAGS, 0o600, dir_fd=target.fd)
        try:
            status = os.fstat(source)
            output = Output(fd, target.host_path / target_name)
            output.copy(source, 0, status.st_size)
            output.flush()
            os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(fd)
        finally:
            os.close(fd)
