"""System calls that Python 3.11 does not offer: openat2, renameat2, syncfs. Linux only.

They go through libc's `syscall` by number, so that any libc will do. Each raises `OSError` like the functions of `os`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

_OPENAT2 = 437  # the same on every architecture
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "ppc64le": 357, "s390x": 347, "riscv64": 276}[platform.machine()]
_SYNCFS = {"x86_64": 306, "aarch64": 267, "ppc64le": 348, "s390x": 338, "riscv64": 267}[platform.machine()]

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2

_MAX_AGAIN_COUNT = 128  # openat2 answers EAGAIN when a rename anywhere races its walk


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _call(number: int, *arguments: object) -> int:
    again_count = 0
    while True:
        result = int(_LIBC.syscall(ctypes.c_long(number), *arguments))
        if result >= 0:
            return result
        code = ctypes.get_errno()
        again_count += code == errno.EAGAIN
        if code != errno.EINTR and (code != errno.EAGAIN or again_count > _MAX_AGAIN_COUNT):
            raise OSError(code, os.strerror(code))


def openat2(directory_fd: int, path: bytes, flags: int, mode: int, resolve: int) -> int:
    """Open a path below a directory under resolution rules; return a descriptor that children do not inherit."""
    how = _OpenHow(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, resolve)
    return _call(
        _OPENAT2,
        ctypes.c_int(directory_fd),
        ctypes.c_char_p(path),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )


def renameat2(old_fd: int, old_name: bytes, new_fd: int, new_name: bytes, flags: int) -> None:
    """Rename with `RENAME_NOREPLACE` or `RENAME_EXCHANGE`: one atomic step."""
    _call(
        _RENAMEAT2,
        ctypes.c_int(old_fd),
        ctypes.c_char_p(old_name),
        ctypes.c_int(new_fd),
        ctypes.c_char_p(new_name),
        ctypes.c_uint(flags),
    )


def syncfs(fd: int) -> None:
    """Write all of the descriptor's file system to its device, and report errors since it was opened."""
    _call(_SYNCFS, ctypes.c_int(fd))
