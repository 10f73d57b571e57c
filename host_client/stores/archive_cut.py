"""Where a conversation's files are cut into the data objects of an archive. Pure; blocks; holds two chunks at most.

The one rule: the same files, after the same predecessor, give the same chunks, however their bytes arrive. Measured,
with what was rejected, in `docs/adr/0021-chunks.md`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.stores.archive_layout import content_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from host_client.stores.archive_manifest import ChunkReference, FileReference

MIN_CHUNK_BYTES = 512 << 10
MAX_CUT_BYTES = 2 << 20
"""Smallest and largest chunk of a large file, but for its last."""

SEALED_BYTES = 64 << 10
"""A file's last chunk is gone on with, instead of being followed by another one, while it is smaller."""

_OPEN_FACTOR = 4
"""It is also gone on with while what was appended is more than this part of it, up to the size of a large chunk: a
file that grows by much at a time gets large chunks."""

MIN_SHARED_BYTES = 64 << 10
MAX_SHARED_BYTES = 256 << 10
"""Smallest and largest chunk that small files share, but where a large file is next."""

_LOOKED_AT_BYTES = 128
_STEP_BYTES = 64


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a stream.

    Attributes:
        data: Its bytes, at least one.
        name: What they are named by, without a generation.
        reference: The predecessor's chunk that it is; None: it has none of that content in that place.
    """

    data: bytes
    name: str
    reference: ChunkReference | None = None


class Cutter:
    """Cuts the bytes of one stream; used once.

    What the predecessor has at its front is taken over. Where that ends, a chunk ends before the line whose beginning
    has the least checksum of those that may be next, so that what was inserted or changed shifts nothing behind it.

    Args:
        name: Names the content of a chunk.
        predecessor: The chunks of the stream that this one may have grown from.
    """

    def __init__(self, name: Callable[[bytes], str], predecessor: Sequence[ChunkReference] = ()) -> None:
        self._name = name
        self._old = predecessor
        self._old_places = {content_name(old.name): place for place, old in enumerate(predecessor)}
        self._old_place: int | None = 0
        """Which of the predecessor's chunks may be next; None: it is not known to have what is next."""
        self._buffer = bytearray()

    def cut(self, pieces: Iterable[bytes]) -> Iterator[Chunk]:
        """Yield the chunks of what the pieces are in a row."""
        for piece in pieces:
            self._buffer += piece
            while chunk := self._next(is_end=False):
                yield chunk
        while chunk := self._next(is_end=True):
            yield chunk

    def _next(self, *, is_end: bool) -> Chunk | None:
        """Return the next chunk; None: more must come before it is known, or nothing is left."""
        if self._old_place is not None and self._old_place < len(self._old):
            old = self._old[self._old_place]
            may_be_open = self._old_place == len(self._old) - 1 and old.size < MIN_CHUNK_BYTES
            if len(self._buffer) <= old.size + may_be_open * old.size // _OPEN_FACTOR and not is_end:
                return None
            appended_bytes = len(self._buffer) - old.size
            is_open = may_be_open and (old.size < SEALED_BYTES or appended_bytes * _OPEN_FACTOR > old.size)
            if appended_bytes == 0 or (appended_bytes > 0 and not is_open):
                data = bytes(self._buffer[: old.size])
                if (name := self._name(data)) == content_name(old.name):
                    return self._taken(data, name)
        self._old_place = None
        if not self._buffer or (len(self._buffer) <= MAX_CUT_BYTES and not is_end):
            return None
        data = bytes(self._buffer[: _cut(self._buffer)])
        return self._taken(data, self._name(data))

    def _taken(self, data: bytes, name: str) -> Chunk:
        del self._buffer[: len(data)]
        place = self._old_places.get(name) if self._old_place is None else self._old_place
        if place is None:
            return Chunk(data, name)
        self._old_place = place + 1
        return Chunk(data, name, self._old[place])


def plan_streams(files: Iterable[FileReference]) -> Iterator[tuple[FileReference, ...]]:
    """Yield which files of a conversation, given in the order of their paths, share a stream.

    A large one has its own. Small ones share one while no large one comes between; such a stream is a single chunk,
    and ends, once it is large enough, before the file whose path has the least checksum of those that may be next.
    """
    run: list[FileReference] = []
    run_bytes = 0
    for file in files:
        if file.size >= SEALED_BYTES:
            if run:
                yield tuple(run)
            yield (file,)
            run, run_bytes = [], 0
            continue
        run.append(file)
        run_bytes += file.size
        if run_bytes > MAX_SHARED_BYTES:
            count = _shared_count(run)
            yield tuple(run[:count])
            run = run[count:]
            run_bytes = sum(left.size for left in run)
    if run:
        yield tuple(run)


def _cut(buffer: bytearray) -> int:
    """Return where the first chunk ends of what is known to be all, or more than the largest chunk."""
    if len(buffer) <= MAX_CUT_BYTES:
        return len(buffer)
    window = bytes(buffer[MIN_CHUNK_BYTES - 1 : MAX_CUT_BYTES])
    best, least = MAX_CUT_BYTES, 1 << 32
    at = window.find(b"\n", 0, -_LOOKED_AT_BYTES)
    while at >= 0:
        checksum = zlib.crc32(window[at + 1 : at + 1 + _LOOKED_AT_BYTES])
        if checksum < least:
            best, least = MIN_CHUNK_BYTES + at, checksum
        # Of very short lines not all are looked at, which would take long.
        at = window.find(b"\n", at + _STEP_BYTES, -_LOOKED_AT_BYTES)
    return best


def _shared_count(run: Sequence[FileReference]) -> int:
    """Return how many of the first files share a chunk, of more than one chunk may have."""
    total, best, least = 0, 1, 1 << 32
    for count, file in enumerate(run):
        if total >= MIN_SHARED_BYTES and (checksum := zlib.crc32(file.path.encode())) < least:
            best, least = count, checksum
        total += file.size
    return best
