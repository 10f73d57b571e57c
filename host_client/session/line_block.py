"""Cut a stream of bytes into blocks of whole lines.

The one rule: a line ends at a newline and nowhere else, and no line is in two blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox_api.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES = 128 << 10
"""Taken at a time: what passes over a block several times finds it in the processor's cache."""

MAX_LINE_BYTES = 512 << 20
"""A longer line is refused: it costs a sandbox nothing to make one of holes, and this host all of its memory to look
at it. Claude Code's engine has no longer texts."""


def check_whole(size_bytes: int, what: str = "a line of the transcript") -> None:
    """Refuse what is too large to be looked at as a whole.

    Raises:
        LimitError: `max_bytes`.
    """
    if size_bytes > MAX_LINE_BYTES:
        raise LimitError(
            "max_bytes",
            f"{what} has more than {MAX_LINE_BYTES >> 20} MiB, and must be looked at as a whole",
            hint="it may be damaged, such as by a hole of NUL bytes",
            facts={"max_bytes": str(MAX_LINE_BYTES)},
        )


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

        Raises:
            LimitError: `max_bytes`: a line is longer than 512 MiB.
        """
        for start in range(0, len(data), BLOCK_BYTES):
            piece = data if len(data) <= BLOCK_BYTES else data[start : start + BLOCK_BYTES]
            cut = piece.rfind(b"\n") + 1
            if not cut:
                self.rest += piece
                check_whole(len(self.rest))
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
