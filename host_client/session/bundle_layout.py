"""Where the entries lie in a bundle file that was written as this client writes it.

The one rule: what is told here is what a scan of the file would find; nothing is kept that can be computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from host_client.session.bundle_index import Item
from host_client.session.scanner import Span

if TYPE_CHECKING:
    from sandbox_api.manifest import Entry

_TAIL_BYTES = len(b'","sha256":""}') + 64
_END_BYTES = len(b'],"digest":""}') + 64


def extents_of(starts: Sequence[int], size_bytes: int) -> tuple[tuple[int, int], ...]:
    """Return where each entry's object begins and ends, from where each begins and how large the file is."""
    stops = [start - 1 for start in starts[1:]]
    stops.append(size_bytes - _END_BYTES)
    return tuple(zip(starts, stops, strict=True))


class WrittenItems(Sequence[Item]):
    """The items of a written file, made when asked for: a capture needs few of its thousands.

    Args:
        entries: The manifest, every digest set.
        extents: Where each entry's object lies.
    """

    def __init__(self, entries: Sequence[Entry], extents: Sequence[tuple[int, int]]) -> None:
        self._entries = entries
        self._extents = extents

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            return WrittenItems(self._entries[index], self._extents[index])
        entry, extent = self._entries[index], self._extents[index]
        end = extent[1] - _TAIL_BYTES
        start = end - (entry.size + 2) // 3 * 4
        return Item(entry.path, entry.size, entry.sha256, Span(start, end, b"", escaped=False), extent)
