"""How the process gets memory for chunks: from a heap it keeps, not from the system each time.

Each chunk passes through several fresh blocks of 1 MiB. By default the C library maps and unmaps those one by one, and
the kernel has to clear every page of them: measured, that was two thirds of the processor time of sending.
"""

from __future__ import annotations

import ctypes

from sandbox_api.limits import MIB

# Numbers of glibc's mallopt.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8

_KEPT_BYTES = 16 * MIB  # what a few streams need at a time; the rest goes back to the system
_MAPPED_BYTES = 32 * MIB  # the largest that glibc accepts


def keep_memory_of_chunks() -> None:
    """Let blocks of chunks be used again. Without glibc nothing is changed.

    To be called before other threads exist: each would get a heap of its own, and keep as much again.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl has no such setting
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
