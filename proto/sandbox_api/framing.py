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
    """Join pieces of a payload into chunks of at most `CHUNK_BYTES`.

    Many small files share one chunk. A reader that asks for at most `room_bytes` at a time costs no extra copy.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._pending_bytes = 0
        self.size = 0

    @property
    def room_bytes(self) -> int:
        """Bytes that still fit into the chunk being filled; at least 1."""
        return CHUNK_BYTES - self._pending_bytes

    def add(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Append a piece; yield each chunk that it completes as offset and data."""
        start = 0
        while len(piece) - start >= self.room_bytes:
            part = piece if start == 0 and len(piece) == self.room_bytes else piece[start : start + self.room_bytes]
            start += len(part)
            self._pieces.append(part)
            self._pending_bytes += len(part)
            yield from self.flush()
        if start < len(piece):
            self._pieces.append(piece[start:] if start else piece)
            self._pending_bytes += len(piece) - start

    def flush(self) -> Iterator[tuple[int, bytes]]:
        """Yield what is left as a last chunk, if anything is."""
        if not self._pieces:
            return
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self._pending_bytes = [], 0
        offset, self.size = self.size, self.size + len(data)
        yield offset, data


class PayloadCheck:
    """Check the chunks of one payload as they arrive.

    Args:
        max_bytes: Most bytes the payload may have; None while that is not known yet.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self.max_bytes = max_bytes
        self.size = 0

    def accept(self, offset: int, data: bytes) -> bytes:
        """Return the chunk's data.

        Raises:
            SessionError: `protocol`: the chunk is empty, too large or not the next one.
            LimitError: `max_bytes`: the payload is longer than announced.
        """
        if not data or len(data) > CHUNK_BYTES:
            raise SessionError("protocol", f"a chunk of {len(data)} bytes is not allowed")
        if offset != self.size:
            raise SessionError("protocol", f"a chunk starts at {offset} where {self.size} was next")
        self.size += len(data)
        if self.max_bytes is not None and self.size > self.max_bytes:
            raise LimitError("max_bytes", f"the payload is longer than the {self.max_bytes} bytes announced")
        return data

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
        while not self.done and (view or not self._left_bytes):
            piece = view[: self._left_bytes]
            view = view[len(piece) :]
            self._left_bytes -= len(piece)
            index, last = self._index, not self._left_bytes
            if last:
                self._next()
            yield index, piece, last
        if view:
            raise SessionError("protocol", f"{len(view)} bytes follow the end of the payload")
