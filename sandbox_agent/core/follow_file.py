"""One file that is followed: what of it has been sent, and what has come since.

The one rule: it is reopened for every look, without following a link, and only what was looked at is believed. Memory
is bounded whatever the file holds.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from sandbox_agent.core.paths import LinkError
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sandbox_agent.core.paths import Directory

_TAIL_BYTES = 4096
"""How much of what was sent last, or searched last, is compared before it is gone on behind that: a file that was
rewritten hardly ever keeps it."""

_SCAN_BYTES = 64 << 10


class Held(NamedTuple):
    """What the client holds of a file: sizes and SHA-256 of its first parts, in their order."""

    parts: tuple[tuple[int, bytes], ...]

    @property
    def size(self) -> int:
        """How much that is, in bytes."""
        return sum(size for size, _ in self.parts)


class Begin(NamedTuple):
    """A file begins, or begins again, under a new number: what comes starts at that offset."""

    number: int
    path: bytes
    offset: int


class Data(NamedTuple):
    """The next bytes of a file. The last ones of a batch carry the SHA-256 of all since its beginning."""

    number: int
    offset: int
    data: bytes
    mark_sha256: bytes = b""


class Mark(NamedTuple):
    """All of a file as of now was sent, and no data was there to carry that; the digest is of what was sent."""

    number: int
    size: int
    sha256: bytes


Part = Begin | Data | Mark


class FollowFile:
    """A file below a held directory.

    Args:
        path: Its path below that directory.
        whole_lines: Send nothing behind the last newline.
        held: What the client holds, if anything; counts once, for what is found at the first look.
        next_number: Gives the numbers of beginnings.
        watch: Called with a descriptor of the file before what has changed in it is read.

    Attributes:
        inode: Number of the file last looked at; 0: none.
    """

    def __init__(
        self,
        path: bytes,
        *,
        whole_lines: bool,
        held: Held | None,
        next_number: Callable[[], int],
        watch: Callable[[int], None],
    ) -> None:
        self.inode = 0
        self._path = path
        self._whole_lines = whole_lines
        self._held = held
        self._next_number = next_number
        self._watch = watch
        self._device = 0
        self._seen: tuple[int, int, int] | None = None  # inode, size, modification time
        self._tail = b""  # between two looks its size and digest are all that is kept: there may be many files
        self._begin(0)

    def look(self, home: Directory) -> Generator[Part | None, None, bool]:
        """Yield what is new, and None as a sign of life; return whether the file is still there.

        What it has by now is all that is sent, also when it grows faster than that.

        Raises:
            OSError: it cannot be opened or read.
        """
        try:
            status = home.stat(self._path)
            if not stat.S_ISREG(status.st_mode):
                return False
            if _seen(status) == self._seen:
                return True
            fd = home.file(self._path)
        except (FileNotFoundError, NotADirectoryError, LinkError):
            return False
        except OSError as error:
            if error.errno != errno.ENXIO:  # it became a socket or the like since
                raise
            return False
        try:
            # Each time, since another file may have the inode number of the one that was watched. What comes after the
            # watch wakes; what came before is in the status.
            self._watch(fd)
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return False
            if (status.st_dev, status.st_ino) != (self._device, self.inode):
                self._device, self.inode = status.st_dev, status.st_ino
                self._number = 0
            self._seen = _seen(status)
            yield from self._advance(fd, status.st_size)
            self._tail_bytes, self._tail_digest = len(self._tail), _digest(self._tail)
            self._tail = b""
        finally:
            os.close(fd)
        return True

    def _begin(self, number: int) -> None:
        self._number = number
        self._digest = hashlib.sha256()
        self._sent_bytes = 0
        self._tail = b""
        self._tail_bytes, self._tail_digest = 0, _digest(b"")
        self._scanned_bytes = 0
        self._scanned_digest = _digest(b"")

    def _advance(self, fd: int, size: int) -> Generator[Part | None, None, None]:
        is_new = not self._number or not self._has_tail(fd)
        if is_new:
            yield from self._begin_anew(fd, size)
        end = (yield from self._end_of_lines(fd, size)) if self._whole_lines else size
        while self._sent_bytes < end:
            data = os.pread(fd, min(CHUNK_BYTES, end - self._sent_bytes), self._sent_bytes)
            is_last = self._sent_bytes + len(data) == end
            if self._whole_lines and (cut := data.rfind(b"\n") + 1) < len(data):
                if is_last:
                    data = b""  # rewritten since its last newline was found
                elif cut:
                    data = data[:cut]
            if not data:  # or truncated
                self._number, self._seen = 0, None
                return
            offset = self._sent_bytes
            self._note(data)
            yield Data(self._number, offset, data, self._digest.digest() if is_last else b"")
            is_new = False
        if is_new:
            yield Mark(self._number, self._sent_bytes, self._digest.digest())

    def _begin_anew(self, fd: int, size: int) -> Generator[Part | None, None, None]:
        held, self._held = self._held, None
        self._begin(self._next_number())
        if held and held.size <= size:
            for part_bytes, sha256 in held.parts:
                end = self._sent_bytes + part_bytes
                while self._sent_bytes < end:
                    data = os.pread(fd, min(CHUNK_BYTES, end - self._sent_bytes), self._sent_bytes)
                    if not data:
                        break
                    self._note(data)
                    yield None
                if self._sent_bytes != end or self._digest.digest() != sha256:
                    self._begin(self._number)
                    break
                self._digest = hashlib.sha256()
        yield Begin(self._number, self._path, self._sent_bytes)

    def _note(self, data: bytes) -> None:
        self._digest.update(data)
        self._sent_bytes += len(data)
        self._tail = data[-_TAIL_BYTES:] if len(data) >= _TAIL_BYTES else (self._tail + data)[-_TAIL_BYTES:]

    def _has_tail(self, fd: int) -> bool:
        """Tell whether what was sent last is still there; a file that was truncated has less of it."""
        self._tail = os.pread(fd, self._tail_bytes, self._sent_bytes - self._tail_bytes)
        return _digest(self._tail) == self._tail_digest

    def _end_of_lines(self, fd: int, size: int) -> Generator[None, None, int]:
        """Return where the last line that has a newline ends; what holds none is not looked at again.

        Yields signs of life: the sandbox may make a file of any size that has none.
        """
        start = self._sent_bytes
        # A file that did not grow was changed in what holds no newline so far; one that did may be another by now.
        if start < self._scanned_bytes < size and self._scanned_tail(fd) == self._scanned_digest:
            start = self._scanned_bytes
        self._scanned_bytes = at = size
        self._scanned_digest = self._scanned_tail(fd)
        while at > start:
            if at < size:
                yield
            from_offset = max(start, at - _SCAN_BYTES)
            cut = os.pread(fd, at - from_offset, from_offset).rfind(b"\n") + 1
            if cut:
                return from_offset + cut
            at = from_offset
        return self._sent_bytes

    def _scanned_tail(self, fd: int) -> bytes:
        """Return the digest of the last of what was searched for newlines."""
        start = max(0, self._scanned_bytes - _TAIL_BYTES)
        return _digest(os.pread(fd, self._scanned_bytes - start, start))


def _seen(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _digest(tail: bytes) -> bytes:
    return hashlib.blake2b(tail, digest_size=16).digest()
