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


class Wanted(NamedTuple):
    """An object as a manifest speaks of it.

    Attributes:
        name: Its name.
        size_bytes: All bytes that its content should have.
    """

    name: str
    size_bytes: int


class Part(NamedTuple):
    """Bytes of an object that belong to a file.

    Attributes:
        wanted: The object.
        start: Where the file's part begins in it.
        end: Where it ends.
    """

    wanted: Wanted
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
        leap: What `telling` found.
    """

    part: Part | None
    before: Step[S] | None
    following: dict[Part, Step[S]] = field(default_factory=dict)
    files: dict[str, list[S]] = field(default_factory=dict)
    hash: _Hash | None = None
    waiting_count: int = 0
    leap: Step[S] | None = None

    def telling(self) -> Step[S]:
        """Return the first step from this one on that ends a file or has several after it; once all are there."""
        step, passed = self, []
        while not step.files and len(step.following) == 1:
            passed.append(step)
            step = step.leap or next(iter(step.following.values()))
        for before in passed:
            before.leap = step
        return step


def parts(files: Iterable[int], chunks: Sequence[Wanted]) -> Iterator[list[Part]]:
    """Yield, for every file of a stream, the parts that it consists of.

    Args:
        files: Sizes of the files. What the chunks do not have of them is left out.
        chunks: The objects whose contents, one after the other, are those of the files.
    """
    number = 0
    offset = 0
    for size in files:
        found = []
        missing = size
        while missing and number < len(chunks):
            chunk = chunks[number]
            taken = min(missing, chunk.size_bytes - offset)
            if taken:
                found.append(Part(chunk, offset, offset + taken))
            missing -= taken
            offset += taken
            if offset == chunk.size_bytes:
                number, offset = number + 1, 0
        yield found


class Schedule(Generic[S]):
    """All files that are to be hashed, as a tree of their parts."""

    def __init__(self) -> None:
        self.root: Step[S] = Step(None, None)
        self.steps: dict[Wanted, list[Step[S]]] = {}

    def add(self, file: Sequence[Part], sha256: str, owner: S) -> None:
        """Add a file of an owner."""
        step = self.root
        for part in file:
            following = step.following.get(part)
            if following is None:
                following = step.following[part] = Step(part, step)
                self.steps.setdefault(part.wanted, []).append(following)
            step = following
        owners = step.files.setdefault(sha256, [])
        if not owners or owners[-1] is not owner:
            owners.append(owner)

    def hurt(self, wanted: Wanted) -> Iterator[S]:
        """Yield who has files with bytes of an object, with repetitions."""
        seen: set[Step[S]] = set()
        steps = list(self.steps.get(wanted, ()))
        while steps:
            step = steps.pop().telling()
            if step in seen:  # a file may have one object any number of times
                continue
            seen.add(step)
            for owners in step.files.values():
                yield from owners
            steps.extend(step.following.values())

    def order(self) -> Iterator[tuple[Wanted, list[Step[S]]]]:
        """Yield objects and, for each, the steps that can be made when it has been read, in their order.

        An object comes once, unless some file has it both before and after another one.
        """
        left = Counter({wanted: len(steps) for wanted, steps in self.steps.items()})
        ready: dict[Wanted, list[Step[S]]] = {}
        complete: list[Wanted] = []

        def follow(step: Step[S], read: Wanted | None = None) -> None:
            for part, following in step.following.items():
                ready.setdefault(part.wanted, []).append(following)
                if part.wanted != read and len(ready[part.wanted]) == left[part.wanted]:
                    complete.append(part.wanted)

        follow(self.root)
        while ready:
            wanted = complete.pop() if complete else next(iter(ready))
            steps = ready.pop(wanted, [])
            for step in steps:  # grows, when the same object follows
                follow(step, wanted)
                steps.extend(ready.pop(wanted, ()))
            left[wanted] -= len(steps)
            if steps:
                yield wanted, steps


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
    if hashed is None or content is None:
        return None
    hashed.update(memoryview(content)[part.start : part.end])
    return hashed
