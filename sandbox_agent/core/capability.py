"""What this daemon, on this kernel, can do: the words that clients look at instead of versions."""

from __future__ import annotations

import errno
import glob
import os
from functools import cache

from sandbox_agent.core import syscall
from sandbox_agent.core.paths import has_openat2

_HERE = -100  # AT_FDCWD


@cache
def has_exchange() -> bool:
    """Tell whether the kernel, and what filters its calls, offer an exchange by renameat2 (Linux 3.15).

    Whether the file system of a session does is seen by diagnosis only.
    """
    try:
        syscall.renameat2(_HERE, b"", _HERE, b"", syscall.RENAME_EXCHANGE)
    except OSError as error:
        return error.errno == errno.ENOENT  # what an empty name means; a kernel without the call says ENOSYS
    return False


def capabilities() -> list[str]:
    """Return the words of what can be done, sorted."""
    words = {
        "bundle.capture.held",
        "bundle.restore.id",
        "bundle.restore.negotiate",
        "bundle.restore.stream",
        "process",
        "transcript.follow",
        "transcript.restore",
        "transcript.restore.id",
    }
    if has_openat2():
        words.add("fs.openat2")
    if has_exchange():
        words.add("fs.exchange")
    return sorted(words)


def kernel_release() -> str:
    """Return the release of the running kernel, for people."""
    return os.uname().release


def machine() -> str:
    """Return the kernel's name of the processor's architecture."""
    return os.uname().machine


@cache
def c_library() -> str:
    """Return which C library programs of this system are linked with, `glibc` or `musl`; empty: another, or none.

    By their loaders, not by what this process uses: it may bring its own.
    """
    for name, pattern in (("glibc", "ld-linux*.so*"), ("musl", "ld-musl-*.so*")):
        if any(glob.iglob(f"/lib*/{pattern}")):
            return name
    return ""
