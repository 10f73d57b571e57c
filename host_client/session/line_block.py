"""Cut a stream of bytes into blocks of whole lines.

The one rule: a line ends at a newline and nowhere else, and no line is in two blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES = 128 << 10
"""Taken at a time: what passes over a block several times finds it in the processor's cache."""


class LineBlocks:
    """Whole lines of a stream that comes in any pieces; memory is that of the longest line and a constant.

    Attributes:
        rest: What came behind the last newline so far.
    """

    def __init__(self) -> None:
        self.rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes | bytearray]:
        """Yield the lines that this piece completes, in blocks that end with a newline each.

        A line that is longer than a block comes alone, as a `bytearray`.
        """
        for start in range(0, len(data), BLOCK_BYTES):
            piece = data if len(data) <= BLOCK_BYTES else data[start : start + BLOCK_BYTES]
            cut = piece.rfind(b"\n") + 1
            if not cut:
                self.rest += piece
                continue
            view = memoryview(piece)
            rest, self.rest = self.rest, bytearray(view[cut:])
            at = 0
            if len(rest) > BLOCK_BYTES:
                at = piece.find(b"\n") + 1
                rest += view[:at]  # grows in place: a second copy of a very long line would be one too many
                yield rest
                rest = bytearray()
            if at < cut:
                yield b"".join((rest, view[at:cut]))


def part(block: bytes | bytearray, start: int, end: int) -> bytes | bytearray:
    """Return a part of a block; the block itself when it is the whole, as that may be one very long line."""
    return block if (start, end) == (0, len(block)) else block[start:end]
