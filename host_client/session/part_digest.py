"""The SHA-256 of a file of a sandbox in parts, so that all of it can be compared again in several threads.

The one rule: a part that is kept for the next capture of a transcript ends at a newline or where the next one begins.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from host_client.session.transcript_writer import LineDigest

if TYPE_CHECKING:
    from collections.abc import Sequence

PART_BYTES = 16 << 20
"""Size of the parts of a file that was read at once."""


class PartDigest:
    """SHA-256 of each part of a stream.

    Args:
        part_bytes: Size of the parts; the last one may be smaller.
    """

    def __init__(self, part_bytes: int = PART_BYTES) -> None:
        self._part_bytes = part_bytes
        self._whole: list[tuple[int, bytes]] = []
        self._part = LineDigest()
        self._lines: Sequence[tuple[int, bytes]] = ()

    @property
    def parts(self) -> Sequence[tuple[int, bytes]]:
        """Size and SHA-256 of each part so far."""
        return [*self._whole, *([(self._part.size_bytes, self._part.digest())] if self._part.size_bytes else [])]

    @property
    def line_parts(self) -> Sequence[tuple[int, bytes]]:
        """The same of the beginning of the stream up to its last newline."""
        return (
            [*self._whole, (self._part.line_bytes, self._part.line_digest())] if self._part.line_bytes else self._lines
        )

    def update(self, data: bytes, /) -> None:
        """Take the next bytes."""
        while data:
            piece = data[: self._part_bytes - self._part.size_bytes]
            self._part.update(piece)
            if self._part.size_bytes == self._part_bytes:
                self._lines = self.line_parts
                self._whole.append((self._part_bytes, self._part.digest()))
                self._part = LineDigest()
            data = data[len(piece) :]

    def digest(self) -> bytes:
        """Return the SHA-256 of those of the parts, one after the other, as a daemon tells it."""
        return hashlib.sha256(b"".join(sha256 for _, sha256 in self.parts)).digest()
