"""Write text that comes in thousands of small parts, or lies in another file, with few system calls."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from host_client.session.failure import host_failures

if TYPE_CHECKING:
    from pathlib import Path

_BATCH_BYTES = 256 << 10
_BATCH_COUNT = 512
_MAX_VECTOR_COUNT = 1024
"""Most parts that Linux takes in one call."""
_COPY_BYTES = 1 << 20
_SMALL_COPY_BYTES = 64 << 10
_NO_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
"""What `copy_file_range` answers where it cannot serve these two files."""


class Output:
    """The end of a file that is being written; methods block and raise failures about `host_path`.

    Attributes:
        size_bytes: Bytes appended so far, written or not.
    """

    def __init__(self, fd: int, host_path: Path) -> None:
        self._fd = fd
        self._host_path = host_path
        self.size_bytes = 0
        self._parts: list[bytes] = []
        self._parts_bytes = 0

    def add(self, *parts: bytes) -> None:
        """Append bytes; they are kept as they are until they are written."""
        self._parts += parts
        added_bytes = sum(map(len, parts))
        self.size_bytes += added_bytes
        self._parts_bytes += added_bytes
        if self._parts_bytes >= _BATCH_BYTES or len(self._parts) >= _BATCH_COUNT:
            self._write_parts()

    def copy(self, source_fd: int, start: int, end: int) -> None:
        """Append what lies in another file between two offsets, by the kernel where it can."""
        with host_failures(self._host_path):
            if end - start > _SMALL_COPY_BYTES:
                self._write_parts()
                start = self._copy_by_kernel(source_fd, start, end)
            while start < end:
                part = os.pread(source_fd, min(_COPY_BYTES, end - start), start)
                if not part:
                    raise OSError(errno.EIO, "the source of a copy became shorter")
                start += len(part)
                self.add(part)

    @property
    def written_bytes(self) -> int:
        """Bytes appended so far that are in the file."""
        return self.size_bytes - self._parts_bytes

    def flush(self) -> None:
        """Write everything appended so far."""
        self._write_parts()

    def _copy_by_kernel(self, source_fd: int, start: int, end: int) -> int:
        """Copy as far as the kernel does; return how far that is."""
        while start < end:
            try:
                copied_bytes = os.copy_file_range(source_fd, self._fd, end - start, offset_src=start)
            except OSError as error:
                if error.errno in _NO_COPY:
                    break
                raise
            if not copied_bytes:
                break
            self.size_bytes += copied_bytes
            start += copied_bytes
        return start

    def _write_parts(self) -> None:
        parts, left_bytes = self._parts, self._parts_bytes
        self._parts, self._parts_bytes = [], 0
        with host_failures(self._host_path):
            while left_bytes:
                written_bytes = os.writev(self._fd, parts[:_MAX_VECTOR_COUNT])
                left_bytes -= written_bytes
                if left_bytes:
                    parts = _rest(parts, written_bytes)


def _rest(parts: list[bytes], written_bytes: int) -> list[bytes]:
    """Return what is left of parts after a write that took only so much."""
    for index, part in enumerate(parts):
        if written_bytes < len(part):
            return [part[written_bytes:], *parts[index + 1 :]]
        written_bytes -= len(part)
    return []
