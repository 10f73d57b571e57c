"""What a client has of followed files, made from the parts it is sent; each part is checked as it comes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from sandbox_agent.core.follow_file import Begin, Data, Mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sandbox_agent.core.follow import Batch
    from sandbox_agent.core.follow_file import Part


class Followed:
    """The copies of one client.

    Args:
        batches: Where the parts come from.
        held: What the client has before.

    Attributes:
        contents: By path below the home, as of the last part; a file that ended keeps what it had.
        begun: Each beginning: path and offset.
    """

    def __init__(self, batches: Iterator[Batch], held: Mapping[bytes, bytes] | None = None) -> None:
        self._batches = batches
        self._held = dict(held or {})
        self._paths: dict[int, bytes] = {}
        self._unmarked: set[int] = set()
        self.contents: dict[bytes, bytes] = {}
        self.begun: list[tuple[bytes, int]] = []

    def catch_up(self) -> list[Part]:
        """Take all there is by now; what was begun or sent is marked by then."""
        parts: list[Part] = []
        while True:
            batch = next(self._batches)
            for part in batch.parts:
                self.take(part)
            parts += batch.parts
            if batch.is_last:
                assert not self._unmarked
                return parts

    def take(self, part: Part) -> None:
        """Take one part."""
        if isinstance(part, Begin):
            assert part.number == max(self._paths, default=0) + 1
            self._unmarked -= {number for number, path in self._paths.items() if path == part.path}
            self._paths[part.number] = part.path
            self.begun.append((part.path, part.offset))
            held = self._held.pop(part.path, b"") if part.offset else b""
            assert len(held) == part.offset
            self.contents[part.path] = held
            self._unmarked.add(part.number)
        elif isinstance(part, Data):
            path = self._paths[part.number]
            assert part.offset == len(self.contents[path])
            assert 0 < len(part.data) <= 1 << 20
            self.contents[path] += part.data
            self._unmarked.add(part.number)
            if part.mark_sha256:
                self._mark(part.number, len(self.contents[path]), part.mark_sha256)
        else:
            assert isinstance(part, Mark)
            assert part.number in self._unmarked, "a mark without anything before it"
            self._mark(part.number, part.size, part.sha256)

    def _mark(self, number: int, size: int, sha256: bytes) -> None:
        content = self.contents[self._paths[number]]
        assert (size, sha256) == (len(content), hashlib.sha256(content).digest())
        self._unmarked.discard(number)
