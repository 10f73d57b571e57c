"""Files that are followed, and what a client has of them: made from the parts it is sent, each checked as it comes."""

from __future__ import annotations

import hashlib
import os
import select
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import follow as follow_module
from sandbox_agent.core.file import name_matcher
from sandbox_agent.core.follow import Follow
from sandbox_agent.core.follow_file import Begin, Data, Held, Mark
from sandbox_agent.core.follow_folder import Pattern
from sandbox_agent.core.inotify import Watches
from sandbox_agent.core.paths import Roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from sandbox_agent.core.follow import Batch
    from sandbox_agent.core.follow_file import Part


def pattern(directory: str = "p", glob: str = "*", *, whole_lines: bool = False) -> Pattern:
    """Name files to follow."""
    return Pattern(os.fsencode(directory), name_matcher(glob), whole_lines)


def append(path: Path, data: bytes) -> None:
    """Write at the end of a file."""
    with path.open("ab") as file:
        file.write(data)


def deliver(watches: Watches) -> bool:
    """Take all events there are; return whether there were any. The kernel queues an event before the call returns."""
    has_events = False
    while select.select([watches.fd], [], [], 0)[0]:
        watches.deliver()
        has_events = True
    return has_events


@contextmanager
def following(
    home: Path, *patterns: Pattern, held: Mapping[bytes, bytes] | None = None, max_files: int = 100, told: bool = False
) -> Iterator[Followed]:
    """Follow files below a home.

    Args:
        home: The home; what lies beside it is below the same root.
        patterns: Which files; none: all in `p`.
        held: What the client has before.
        max_files: Most files.
        told: Look only where the kernel says that something changed; else at everything every time.
    """
    named = {path: Held(_parts(data)) for path, data in (held or {}).items()}
    with ExitStack() as stack:
        watches = stack.enter_context(closing(Watches())) if told else None
        if watches is not None:
            stack.enter_context(pytest.MonkeyPatch.context()).setattr(follow_module, "LOOK_SECONDS", 1e9)
        roots = stack.enter_context(closing(Roots([bytes(home.parent)])))
        subscription = watches.subscribe(lambda: None) if watches is not None else None
        follow = stack.enter_context(
            Follow(roots, bytes(home), patterns or [pattern()], named, max_files=max_files, subscription=subscription)
        )
        batches = stack.enter_context(closing(follow.batches()))  # type: ignore[type-var]
        yield Followed(batches, held, deliver=lambda: watches is None or deliver(watches))


def _parts(data: bytes) -> tuple[tuple[int, bytes], ...]:
    """Return what the client says of a content: it came in two parts."""
    parts = (data[: len(data) // 3], data[len(data) // 3 :])
    return tuple((len(part), hashlib.sha256(part).digest()) for part in parts)


class Followed:
    """The copies of one client.

    Args:
        batches: Where the parts come from.
        held: What the client has before.
        deliver: Called before there is anything to be taken.

    Attributes:
        batches: Where the parts come from.
        contents: By path below the home, as of the last part; a file that ended keeps what it had.
        begun: Each beginning: path and offset.
    """

    def __init__(
        self, batches: Iterator[Batch], held: Mapping[bytes, bytes] | None, *, deliver: Callable[[], object]
    ) -> None:
        self.batches = batches
        self._deliver = deliver
        self._held = dict(held or {})
        self._paths: dict[int, bytes] = {}
        self._unmarked: set[int] = set()
        self._offsets: dict[int, int] = {}
        self.contents: dict[bytes, bytes] = {}
        self.begun: list[tuple[bytes, int]] = []

    def catch_up(self) -> list[Part]:
        """Take all there is by now; what was begun or sent is marked by then."""
        self._deliver()
        parts: list[Part] = []
        while True:
            batch = next(self.batches)
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
            self._offsets[part.number] = part.offset
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
        assert (size, sha256) == (len(content), hashlib.sha256(content[self._offsets[number] :]).digest())
        self._unmarked.discard(number)
