"""Act in the middle of a transfer, wherever the machine's speed puts its progress reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.session.bundle import BundleWriter, SavedBundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest


def act_in_capture(patch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Act once, in the thread that writes, when a capture has brought its first piece of content."""
    real = BundleWriter.data
    acted: list[object] = []

    def data(self: BundleWriter, index: int, piece: bytes | memoryview) -> None:
        real(self, index, piece)
        if not acted:
            acted.append(action())

    patch.setattr(BundleWriter, "data", data)


def act_in_restore(patch: pytest.MonkeyPatch, action: Callable[[], object], *, pieces_count: int) -> None:
    """Act once, in the thread that reads, when a restore has asked for so many pieces of content."""
    real = SavedBundle.pieces
    asked: list[int] = []

    def pieces(self: SavedBundle, index: int, room: Callable[[], int]) -> Iterator[bytes]:
        for piece in real(self, index, room):
            asked.append(index)
            if len(asked) == pieces_count:
                action()
            yield piece

    patch.setattr(SavedBundle, "pieces", pieces)
