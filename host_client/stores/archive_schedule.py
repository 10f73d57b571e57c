"""In which order objects are read, each once where that can be, so that every file of every snapshot is hashed.

The one rule: a file is hashed from its first byte to its last, and beginnings that files share are hashed once.
Pure: it does not read anything.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from hashlib import _Hash

S = TypeVar("S")


class Part(NamedTuple):
    """Bytes of an object that belong to a file.

    Attributes:
        name: The object.
        size_bytes: All bytes that its content should have.
        start: Where the file's part begins in it.
        end: Where it ends.
    """

    name: str
    size_bytes: int
    start: int
    end: int


@dataclass(slots=True, eq=False)
class Step(Generic[S]):
    """A part, after all parts that go before it in a file.

    Attributes:
        part: The part; None: nothing yet, the beginning of all files.
        before: The step before this one.
        following: What may come next.
        files: Files that are whole with this step: who has one of which SHA-256, in hex.
        hash: Of all bytes up to here, while something that follows needs it; None: not read yet, or broken.
        waiting_count: Following steps that have not been hashed.
    """

    part: Part | None
    before: Step[S] | None
    following: dict[Part, Step[S]] = field(default_factory=dict)
    files: dict[str, list[S]] = field(default_factory=dict)
    hash: _Hash | None = None
    waiting_count: int = 0

    def beyond(self) -> Iterator[Step[S]]:
        """Yield this step and all that come after it."""
        steps = [self]
        while steps:
            step = steps.pop()
            yield step
            steps.extend(step.following.values())


def parts(files: Iterable[int], chunks: Sequence[tuple[str, int]]) -> Iterator[list[Part]]:
    """Yield, for every file of a stream, the parts that it consists of.

    Args:
        files: Sizes of the files. What the chunks do not have of them is left out.
        chunks: Names and sizes of the chunks.
    """
    number = 0
    offset = 0
    for size in files:
        found = []
        missing = size
        while missing and number < len(chunks):
            name, chunk_bytes = chunks[number]
            taken = min(missing, chunk_bytes - offset)
            if taken:
                found.append(Part(name, chunk_bytes, offset, offset + taken))
            missing -= taken
            offset += taken
            if offset == chunk_bytes:
                number, offset = number + 1, 0
        yield found


class Schedule(Generic[S]):
    """All files that are to be hashed, as a tree of their parts."""

    def __init__(self) -> None:
        self.root: Step[S] = Step(None, None)
        self.steps: dict[str, list[Step[S]]] = {}

    def add(self, file: Sequence[Part], sha256: str, owner: S) -> None:
        """Add a file of an owner."""
        step = self.root
        for part in file:
            following = step.following.get(part)
            if following is None:
                following = step.following[part] = Step(part, step)
                self.steps.setdefault(part.name, []).append(following)
            step = following
        owners = step.files.setdefault(sha256, [])
        if not owners or owners[-1] is not owner:
            owners.append(owner)

    def hurt(self, name: str) -> Iterator[S]:
        """Yield who has files with bytes of an object, with repetitions."""
        for step in self.steps.get(name, ()):
            for beyond in step.beyond():
                for owners in beyond.files.values():
                    yield from owners

    def order(self) -> Iterator[tuple[str, list[Step[S]]]]:
        """Yield objects and, for each, the steps that can be made when it has been read, in their order.

        An object comes once, unless some file has it both before and after another one.
        """
        left = Counter({name: len(steps) for name, steps in self.steps.items()})
        ready: dict[str, list[Step[S]]] = {}
        complete: list[str] = []

        def follow(step: Step[S], name: str = "") -> None:
            for part, following in step.following.items():
                ready.setdefault(part.name, []).append(following)
                if part.name != name and len(ready[part.name]) == left[part.name]:
                    complete.append(part.name)

        follow(self.root)
        while ready:
            name = complete.pop() if complete else next(iter(ready))
            steps = ready.pop(name, [])
            for step in steps:  # grows, when the same object follows
                follow(step, name)
                steps.extend(ready.pop(name, ()))
            left[name] -= len(steps)
            if steps:
                yield name, steps


def advance(steps: Iterable[Step[S]], content: bytes | None) -> Iterator[tuple[str, list[S]]]:
    """Hash what an object has of files; yield the SHA-256 that a file should have and has not, and whose it is.

    Args:
        steps: As `Schedule.order` has them.
        content: What the object holds; None: it is not to be had, and what needs it is not judged.
    """
    for step in steps:
        step.hash = _hash_of(step, content)
        step.waiting_count = len(step.following)
        if step.hash is not None and step.files:
            digest = step.hash.hexdigest()
            yield from ((sha256, owners) for sha256, owners in step.files.items() if sha256 != digest)
        if not step.following:
            step.hash = None


def _hash_of(step: Step[S], content: bytes | None) -> _Hash | None:
    part, before = step.part, step.before
    if part is None or before is None:
        return None
    if before.before is None:
        hashed = hashlib.sha256() if content is not None else None
    else:
        hashed = before.hash
        before.waiting_count -= 1
        if not before.waiting_count:
            before.hash = None
        elif hashed is not None:
            hashed = hashed.copy()
    if hashed is None or content is None or len(content) != part.size_bytes:
        return None
    hashed.update(memoryview(content)[part.start : part.end])
    return hashed
