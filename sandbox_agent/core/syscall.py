"""System calls that Python 3.11 does not offer: openat2, renameat2, syncfs, inotify. Linux only.

They go through libc's `syscall` by number, so that any libc will do. Each raises `OSError` like the functions of `os`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from functools import cache
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_LIBC = ctypes.CDLL(None, use_errno=True)

_OPENAT2 = 437  # the same on every architecture
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "ppc64le": 357, "s390x": 347, "riscv64": 276}[platform.machine()]
_SYNCFS = {"x86_64": 306, "aarch64": 267, "ppc64le": 348, "s390x": 338, "riscv64": 267}[platform.machine()]
_INOTIFY_INIT1, _INOTIFY_ADD_WATCH, _INOTIFY_RM_WATCH = {
    "x86_64": (294, 254, 255),
    "aarch64": (26, 27, 28),
    "ppc64le": (318, 276, 277),
    "s390x": (324, 285, 286),
    "riscv64": (26, 27, 28),
}[platform.machine()]

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2

_MAX_AGAIN_COUNT = 128  # openat2 answers EAGAIN when a rename anywhere races its walk


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _prototype(*arguments: type) -> Callable[..., int]:
    """Return libc's `syscall` for arguments of these types after the number: without them each call converts anew."""
    function = _LIBC["syscall"]  # an object of its own each time
    function.restype = ctypes.c_long
    function.argtypes = (ctypes.c_long, *arguments)
    return cast("Callable[..., int]", function)


_syscall_openat2 = _prototype(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t)
_syscall_renameat2 = _prototype(ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_syscall_syncfs = _prototype(ctypes.c_int)
_syscall_inotify_init1 = _prototype(ctypes.c_int)
_syscall_inotify_add_watch = _prototype(ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
_syscall_inotify_rm_watch = _prototype(ctypes.c_int, ctypes.c_int)


def _call(function: Callable[..., int], *arguments: object) -> int:
    again_count = 0
    while True:
        result = function(*arguments)
        if result >= 0:
            return result
        code = ctypes.get_errno()
        again_count += code == errno.EAGAIN
        if code != errno.EINTR and (code != errno.EAGAIN or again_count > _MAX_AGAIN_COUNT):
            raise OSError(code, os.strerror(code))


@cache
def _how(flags: int, mode: int, resolve: int) -> _OpenHow:
    return _OpenHow(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, resolve)


def openat2(directory_fd: int, path: bytes, flags: int, mode: int, resolve: int) -> int:
    """Open a path below a directory under resolution rules; return a descriptor that children do not inherit."""
    how = _how(flags, mode, resolve)
    return _call(_syscall_openat2, _OPENAT2, directory_fd, path, how, ctypes.sizeof(how))


def renameat2(old_fd: int, old_name: bytes, new_fd: int, new_name: bytes, flags: int) -> None:
    """Rename with `RENAME_NOREPLACE` or `RENAME_EXCHANGE`: one atomic step."""
    _call(_syscall_renameat2, _RENAMEAT2, old_fd, old_name, new_fd, new_name, flags)


def syncfs(fd: int) -> None:
    """Write all of the descriptor's file system to its device, and report errors since it was opened."""
    _call(_syscall_syncfs, _SYNCFS, fd)


def inotify_init() -> int:
    """Return a new inotify descriptor that does not block and that children do not inherit."""
    return _call(_syscall_inotify_init1, _INOTIFY_INIT1, os.O_NONBLOCK | os.O_CLOEXEC)


def inotify_add_watch(inotify_fd: int, path: bytes, mask: int) -> int:
    """Watch what is at a path; return the watch's number, the same one for the same inode."""
    return _call(_syscall_inotify_add_watch, _INOTIFY_ADD_WATCH, inotify_fd, path, mask)


def inotify_rm_watch(inotify_fd: int, watch: int) -> None:
    """End a watch."""
    _call(_syscall_inotify_rm_watch, _INOTIFY_RM_WATCH, inotify_fd, watch)
