"""Rename without losing anything: exclusively, or both ways at once."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox_agent.core import syscall

if TYPE_CHECKING:
    from typing import TypeAlias

    from sandbox_agent.core.paths import Directory

Identity: TypeAlias = "tuple[int, int]"
"""Device and inode."""

_NO_SUCH_CALL = (errno.EINVAL, errno.ENOSYS)
# EXDEV: overlayfs answers so for a directory that came with the image.
NO_EXCHANGE = (errno.EXDEV, *_NO_SUCH_CALL)


def identity_at(folder: Directory, name: bytes) -> Identity | None:
    """Return what a name stands for, or None when nothing is there; a link is told, not followed."""
    try:
        status = folder.stat(name)
    except FileNotFoundError:
        return None
    return (status.st_dev, status.st_ino)


def exchange(folder: Directory, name: bytes, other_folder: Directory, other_name: bytes) -> None:
    """Exchange what two names stand for, in one atomic step.

    Raises:
        OSError: with one of `NO_EXCHANGE` where the file system cannot; `ENOENT` when one of them is missing; `EBUSY`
            for a mount point. It names the second place.
    """
    try:
        syscall.renameat2(folder.fd, name, other_folder.fd, other_name, syscall.RENAME_EXCHANGE)
    except OSError as error:
        raise OSError(error.errno, error.strerror, other_folder.join(other_name)) from None


def rename_exclusive(folder: Directory, name: bytes, new_folder: Directory, new_name: bytes) -> None:
    """Rename to a name that must not exist.

    Where the file system cannot promise that, the name is looked at first; the caller holds the folder's lock.

    Raises:
        FileExistsError: something is there.
        OSError: `EXDEV` for another file system, or a directory that overlayfs cannot rename; `EBUSY` for a mount
            point.
    """
    try:
        syscall.renameat2(folder.fd, name, new_folder.fd, new_name, syscall.RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:
            raise OSError(error.errno, error.strerror, folder.join(name)) from None
    else:
        return
    with suppress(FileNotFoundError):
        new_folder.stat(new_name)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_folder.join(new_name))
    os.rename(name, new_name, src_dir_fd=folder.fd, dst_dir_fd=new_folder.fd)
