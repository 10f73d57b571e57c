"""Give back to the disk what nobody will read of a file any more; its size stays."""

from __future__ import annotations

import ctypes
from typing import Final

_PUNCH_HOLE, _KEEP_SIZE = 2, 1
_LIBRARY: Final = ctypes.CDLL(None)


def punch(fd: int, start: int, end: int) -> None:
    """Free the blocks between two offsets, as far as the system and the file system can; they read as zeros then.

    Args:
        fd: Open for writing.
        start: Of the first byte.
        end: Behind the last one.
    """
    if end > start and hasattr(_LIBRARY, "fallocate64"):  # of Linux
        _LIBRARY.fallocate64(fd, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(end - start))
