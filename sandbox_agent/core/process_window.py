"""What a process printed, as far as it is kept: the last bytes of one stream, in memory first, then in a file.

The one rule: bytes have their offset in the whole output, and what is not kept any more is refused, never skipped.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox_agent import log
from sandbox_agent.errors import from_os
from sandbox_api.errors import OutpostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_agent.core.paths import Directory

MEMORY_BYTES = 64 << 10
"""What is kept without a file."""

_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
"""What a file system, or a kernel, without unnamed files answers."""


class LostError(Exception):
    """Bytes that were asked for are not kept any more."""


def open_spool(folder: Directory) -> int:
    """Return the descriptor of a new file that has no name, so that nothing is left of it when it is closed.

    Raises:
        OSError: it cannot be made.
    """
    try:
        return os.open(b".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=folder.fd)
    except OSError as error:
        if error.errno not in _NO_UNNAMED:
            raise
    name = b"spool-" + uuid.uuid4().hex.encode()
    spool = folder.file(name, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    with suppress(OSError):
        os.unlink(name, dir_fd=folder.fd)
    return spool


class Window:
    """The end of one stream. One thread appends; any may read.

    Where the disk is full the window stays as large as it has become; where it cannot be used at all, as large as what
    is kept in memory.

    Args:
        keep_bytes: Its size.
        make_spool: Opens the file that is used beyond `MEMORY_BYTES`.
    """

    def __init__(self, keep_bytes: int, make_spool: Callable[[], int]) -> None:
        self._keep_bytes = keep_bytes
        self._make_spool = make_spool
        self._lock = threading.Lock()
        self._memory: bytearray | None = bytearray()
        self._spool = -1
        self.start = 0
        self.end = 0

    @property
    def has_spool(self) -> bool:
        """Whether it holds a file."""
        return self._spool >= 0

    @property
    def memory_bytes(self) -> int:
        """What it takes of memory."""
        return len(self._memory or b"")

    def room_bytes(self, floor: int) -> int:
        """Return how much can be appended without losing what lies at an offset or behind it."""
        return self._keep_bytes - (self.end - max(floor, self.start))

    @property
    def reserve_bytes(self) -> int:
        """What is kept of that which was sent: it may be on its way when the connection breaks."""
        return self._keep_bytes // 2

    def append(self, data: memoryview, floor: int) -> int:
        """Add to the end, dropping from the start what lies before an offset; return how much was taken.

        Given no more than there was room for, less is taken only where the disk has just made the window smaller.
        """
        if self._memory is not None and len(self._memory) + len(data) > MEMORY_BYTES < self._keep_bytes:
            self._spill()
        if self._memory is not None:
            return self._append_memory(data[: max(0, self.room_bytes(floor))])
        return self._append_file(data)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return what lies at an offset, at most so much; empty at the end.

        Raises:
            LostError: it is not kept any more.
        """
        with self._lock:
            self._check(offset)
            if self._memory is not None:
                at = offset - self.start
                return bytes(memoryview(self._memory)[at : at + max_bytes])
            size = min(max_bytes, self.end - offset)
            spool, keep_bytes = self._spool, self._keep_bytes
        at = offset % keep_bytes
        data = os.pread(spool, min(size, keep_bytes - at), at) if size else b""
        with self._lock:
            self._check(offset)  # it may have been overwritten meanwhile
        return data

    def close(self) -> None:
        """Let go of everything; nobody reads any more."""
        with self._lock:
            spool, self._spool = self._spool, -1
            self._memory = bytearray()
            self.start = self.end
        if spool >= 0:
            os.close(spool)

    def _check(self, offset: int) -> None:
        if offset < self.start:
            raise LostError

    def _append_memory(self, data: memoryview) -> int:
        assert self._memory is not None  # noqa: S101 -- for mypy: the caller looked
        with self._lock:
            dropped = max(0, len(self._memory) + len(data) - self._keep_bytes)
            del self._memory[:dropped]
            self._memory += data
            self.start += dropped
            self.end += len(data)
        return len(data)

    def _append_file(self, data: memoryview) -> int:
        taken = 0
        while taken < len(data):
            at = self.end % self._keep_bytes
            piece = data[taken : taken + self._keep_bytes - at]
            with self._lock:  # before it is overwritten
                self.start = max(self.start, self.end + len(piece) - self._keep_bytes)
            try:
                count = os.pwrite(self._spool, piece, at)
                if not count:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301  as the system will say next
            except OSError as error:
                self._shrink(error)
                return taken
            with self._lock:
                self.end += count
            taken += count
        return taken

    def _spill(self) -> None:
        """Move what is in memory to a file; where that fails it stays there."""
        assert self._memory is not None  # noqa: S101 -- for mypy: the caller looked
        try:
            spool = self._make_spool()
        except (OSError, OutpostError) as error:
            self._stay_small(error)
            return
        try:
            is_whole = os.pwrite(spool, self._memory, self.start % self._keep_bytes) == len(self._memory)
        except OSError:
            is_whole = False
        if not is_whole:
            os.close(spool)
            self._stay_small(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            return
        with self._lock:
            self._spool = spool
            self._memory = None

    def _stay_small(self, error: OSError | OutpostError) -> None:
        if self._keep_bytes > MEMORY_BYTES:
            _warn(error)
        self._keep_bytes = min(self._keep_bytes, MEMORY_BYTES)

    def _shrink(self, error: OSError) -> None:
        _warn(error)
        with self._lock:
            if self.start == 0 and MEMORY_BYTES < self.end <= self._keep_bytes:
                # The first time round: every byte lies at its offset, and does so in a smaller ring, too.
                self._keep_bytes = self.end
                return
            # So little that memory is as good; or not even what had its place can be written again. The file stays
            # open: somebody may be reading it.
            is_little = self.start == 0 and self.end <= MEMORY_BYTES
            self._memory = bytearray(os.pread(self._spool, self.end, 0) if is_little else b"")
            self._keep_bytes = MEMORY_BYTES
            self.start = self.end - len(self._memory)


def _warn(error: OSError | OutpostError) -> None:
    failure = error if isinstance(error, OutpostError) else from_os(error)
    log.warning("less output is kept than was asked for", reason=f"{failure.code}/{failure.reason}")
