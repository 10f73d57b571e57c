"""Payloads: bytes to chunks and back, with order, offset and size checked. Pure; knows no message type.

Nothing a receiver gets is final before `PayloadCheck.finish`: a stream that was cut ends like a complete one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox_api.errors import LimitError, SessionError
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Batcher:
    """Gather pieces of a payload into chunks of at most `CHUNK_BYTES`.

    Many small files share one chunk. A chunk is given as its offset and its parts, which are joined once, by
    `wire.chunk_message`. A reader that asks for at most `room_bytes` at a time costs no copy before that.

    Args:
        from_offset: Offset of the first chunk.

    Attributes:
        room_bytes: Bytes that still fit into the chunk being filled; at least 1.
        size: Where the next chunk begins.
    """

    def __init__(self, from_offset: int = 0) -> None:
        self._chunks: list[tuple[int, list[bytes]]] = []
        self._parts: list[bytes] = []
        self.room_bytes = CHUNK_BYTES
        self.size = from_offset

    def add(self, piece: bytes) -> None:
        """Append a piece."""
        if len(piece) < self.room_bytes:  # nearly always: a piece costs a few instructions
            if piece:
                self._parts.append(piece)
                self.room_bytes -= len(piece)
            return
        start = 0
        while len(piece) - start >= self.room_bytes:
            end = start + self.room_bytes
            self._parts.append(piece[start:end] if start or end < len(piece) else piece)
            self.room_bytes, start = 0, end
            self._close()
        self.add(piece[start:])

    def full(self) -> list[tuple[int, list[bytes]]]:
        """Return the chunks that have been completed since the last call."""
        chunks, self._chunks = self._chunks, []
        return chunks

    def rest(self) -> list[tuple[int, list[bytes]]]:
        """Return what is left: completed chunks and a last one that is not full, if anything is."""
        if self._parts:
            self._close()
        return self.full()

    def _close(self) -> None:
        self._chunks.append((self.size, self._parts))
        self.size += CHUNK_BYTES - self.room_bytes
        self._parts, self.room_bytes = [], CHUNK_BYTES


class PayloadCheck:
    """Check the chunks of one payload as they arrive.

    Args:
        max_bytes: Most bytes the payload may have; None while that is not known yet.
        from_offset: Offset of the first chunk: so much is there already.
    """

    def __init__(self, max_bytes: int | None = None, from_offset: int = 0) -> None:
        self.max_bytes = max_bytes
        self.size = from_offset

    def accept(self, offset: int, data: bytes) -> bytes:
        """Return the chunk's data.

        Raises:
            SessionError: `protocol`: the chunk is empty, too large or not the next one.
            LimitError: `max_bytes`: the payload is longer than announced.
        """
        self.note(offset, len(data))
        return data

    def note(self, offset: int, size: int) -> None:
        """Take a chunk of so many bytes; as `accept` else."""
        if not 0 < size <= CHUNK_BYTES:
            raise SessionError("protocol", f"a chunk of {size} bytes is not allowed")
        if offset != self.size:
            raise SessionError("protocol", f"a chunk starts at {offset} where {self.size} was next")
        self.size += size
        if self.max_bytes is not None and self.size > self.max_bytes:
            raise LimitError("max_bytes", f"the payload is longer than the {self.max_bytes} bytes announced")

    def finish(self, size: int) -> None:
        """Check the trailer's size against what arrived.

        Raises:
            SessionError: `incomplete`.
        """
        if size != self.size:
            raise SessionError("incomplete", f"the payload has {self.size} bytes where its trailer says {size}")


class Sections:
    """Split a payload at boundaries that are known beforehand.

    Args:
        lengths: Sizes of the sections in bytes; zero is allowed.
    """

    def __init__(self, lengths: Iterable[int]) -> None:
        self._lengths = iter(lengths)
        self._index = -1
        self._left_bytes = 0
        self._next()

    def _next(self) -> None:
        length = next(self._lengths, None)
        self._index = self._index + 1
        self.done = length is None
        self._left_bytes = length or 0

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview, bool]]:
        """Yield section index, piece and whether the piece ends the section.

        Empty sections are yielded as soon as they are reached; feed `b""` once when the first may be empty.

        Raises:
            SessionError: `protocol`: bytes after the last section.
        """
        view = memoryview(data)
        start, end = 0, len(view)
        while not self.done and (start < end or not self._left_bytes):
            index, stop = self._index, start + self._left_bytes
            if stop <= end:
                self._next()
                yield index, view[start:stop], True
                start = stop
            else:
                self._left_bytes = stop - end
                yield index, view[start:], False
                start = end
        if start < end:
            raise SessionError("protocol", f"{end - start} bytes follow the end of the payload")
