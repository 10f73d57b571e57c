"""Content that a CLI keeps compressed as Zstandard frames, one piece at a time both ways.

The one rule: frames that are not whole are refused, however little is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import zstandard

from sandbox_api.errors import SessionError
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import PurePath

SUFFIX = ".zst"
"""Ending of the name of a compressed transcript."""

_MAX_WINDOW_BYTES = 128 << 20
"""Memory that a frame may ask for; the levels that CLIs use need 8 MiB at most."""

_STEP_BYTES = 1 << 10
"""Four bytes can stand for 128 KiB: a step gives at most 32 MiB at once."""


def is_compressed(path: PurePath) -> bool:
    """Tell by its name whether a file is compressed."""
    return path.name.endswith(SUFFIX)


def decompressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of a compressed file in pieces of bounded size; its frames follow each other without a gap.

    Raises:
        SessionError: `corrupt`: it has something else than whole frames, or none.
    """
    batch: list[bytes] = []
    batch_bytes = 0
    for data in _steps(pieces):
        batch.append(data)
        batch_bytes += len(data)
        if batch_bytes >= CHUNK_BYTES:
            yield b"".join(batch)
            batch, batch_bytes = [], 0
    if batch:
        yield b"".join(batch)


class Decompressor:
    """Unpacks a compressed file that comes piece by piece: call `feed` in order, then `finish` once."""

    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._frame: zstandard.ZstdDecompressionObj | None = None

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield what a piece unpacks to, in pieces of bounded size.

        Raises:
            SessionError: `corrupt`: it is no part of a frame.
        """
        try:
            for start in range(0, len(piece), _STEP_BYTES):
                data = piece[start : start + _STEP_BYTES]
                while data:
                    if self._frame is None or self._frame.eof:
                        self._frame = self._decompressor.decompressobj()
                    if unpacked := self._frame.decompress(data):
                        yield unpacked
                    data = self._frame.unused_data if self._frame.eof else b""
        except zstandard.ZstdError:
            message = "a compressed transcript is damaged, or not made of Zstandard frames"
            raise SessionError("corrupt", message) from None

    def finish(self) -> None:
        """Take note that the input has ended.

        Raises:
            SessionError: `corrupt`: it ended within a frame, or before the first.
        """
        if self._frame is None or not self._frame.eof:
            raise SessionError("corrupt", "a compressed transcript ends too early")


def compressor() -> zstandard.ZstdCompressionObj:
    """Return what packs pieces as one frame: `compress` each, then `flush`."""
    return zstandard.ZstdCompressor().compressobj()


def compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces compressed, as one frame; equal content gives equal bytes, however it was cut."""
    packing = compressor()
    for piece in pieces:
        if data := packing.compress(piece):
            yield data
    yield packing.flush()


def _steps(pieces: Iterable[bytes]) -> Iterator[bytes]:
    decompressor = Decompressor()
    for piece in pieces:
        yield from decompressor.feed(piece)
    decompressor.finish()
