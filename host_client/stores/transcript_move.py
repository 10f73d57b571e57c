"""The transcripts of one conversation on their way to another directory.

The one rule: what need not change does not: outside of `cwd` values, offsets into transcripts that changed and a
missing last newline, not one byte, and of a compressed transcript in which none of these is, none at all.
"""

from __future__ import annotations

from collections import deque
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from host_client.session.compression import compressed, decompressed, is_compressed
from host_client.session.relocate import Relocator
from host_client.stores.transcript_home import FIRST_LINE_BYTES
from host_client.stores.transcript_reference import NOWHERE, circular, new_digits, read_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from pathlib import PurePosixPath

    from host_client.session.transcript_stream import Digits
    from host_client.stores.layout import Reference, TranscriptLayout


@dataclass(slots=True)
class _Change:
    """What became different of a transcript: something in it, and whether a last newline was added."""

    is_relocated: bool = False
    is_ended: bool = False


class Move:
    """Gives the content of each transcript as it belongs at the destination. All methods block.

    A transcript that says how many bytes of another one belong to it is given with the number that is right for what
    becomes of the other one. For that the other is read up to there, so the order in which they are asked for does not
    matter.

    Args:
        layout: Of the conversation.
        content: Reads a transcript, decompressed, from its beginning.
        transcripts: All of them.
        destination: The new working directory.
        origin: The one that the main transcript was recorded in; None: it names none, and nothing is relocated.

    Attributes:
        relocated: The transcripts given so far in which relocation changed something.
    """

    def __init__(
        self,
        layout: TranscriptLayout,
        content: Callable[[PurePosixPath], Generator[bytes, None, None]],
        transcripts: Sequence[PurePosixPath],
        *,
        destination: str,
        origin: str | None,
    ) -> None:
        self.relocated: set[PurePosixPath] = set()
        self._layout = layout
        self._content = content
        self._transcripts = transcripts
        self._destination = destination
        self._origin = NOWHERE if origin in (None, destination) else origin
        self._positions: dict[tuple[PurePosixPath, int], int] = {}

    def pieces(self, path: PurePosixPath, raw: Iterable[bytes]) -> Iterator[bytes]:
        """Yield a transcript as it belongs at the destination, in pieces.

        Args:
            path: The transcript.
            raw: Its bytes as they lie on the disk; all of them are taken.

        Raises:
            SessionError: `corrupt`: a compressed transcript is damaged, or transcripts refer to each other in a circle.
            ConfigurationError: `invalid_argument`: the layout refers to a transcript that is not one of them.
        """
        change = _Change()
        if not is_compressed(path):
            yield from self._moved(path, iter(raw), change)
        else:
            with closing(self._content(path)) as content:
                deque(self._moved(path, content, change), 0)
            is_same = not change.is_relocated and not change.is_ended
            yield from raw if is_same else compressed(self._moved(path, decompressed(raw), change))
        if change.is_relocated:
            self.relocated.add(path)

    def _moved(self, path: PurePosixPath, content: Iterator[bytes], change: _Change) -> Iterator[bytes]:
        head, digits = self._head(path, content)
        relocator = self._relocator()
        for piece in chain((head,), content):
            yield from relocator.feed(piece)
        yield from relocator.finish()
        change.is_relocated = relocator.changed_count > 0 or digits is not None
        if self._layout.ends_with_newline and relocator.read_bytes and not relocator.ends_with_newline:
            change.is_ended = True
            yield b"\n"

    def _head(self, path: PurePosixPath, content: Iterator[bytes]) -> tuple[bytes, Digits | None]:
        """Take what has the first line; return it as it must be, and what became of its number, None: nothing."""
        head, reference = self._start(path, content)
        if reference is None:
            return head, None
        digits = new_digits(reference, self._position(reference.path, reference.offset))
        return head if digits is None else digits.put(head), digits

    def _start(self, path: PurePosixPath, content: Iterator[bytes]) -> tuple[bytes, Reference | None]:
        """Take what has the first line; return it, and what that refers to."""
        head = bytearray()
        for piece in content:
            head += piece
            if b"\n" in piece or len(head) >= FIRST_LINE_BYTES:
                break
        first_line = bytes(head[:FIRST_LINE_BYTES].partition(b"\n")[0])
        return bytes(head), read_reference(self._layout, first_line, path, self._transcripts)

    def _position(self, path: PurePosixPath, offset: int) -> int:
        """Return where an offset into a transcript lies in what becomes of it.

        What that transcript refers to itself is looked at first, and so on; there may be any number of them.
        """
        wanted: dict[PurePosixPath, int] = {}
        place: tuple[PurePosixPath, int] | None = (path, offset)
        while place is not None and place not in self._positions:
            other, wanted_offset = place
            if other in wanted:
                raise circular(other)
            wanted[other] = wanted_offset
            with closing(self._content(other)) as content:
                _, reference = self._start(other, content)
            place = None if reference is None else (reference.path, reference.offset)
        for one in reversed(wanted):
            self._positions[one, wanted[one]] = self._measured(one, wanted[one])
        return self._positions[path, offset]

    def _measured(self, path: PurePosixPath, offset: int) -> int:
        """Return the same, where the places of all that it refers to are known."""
        with closing(self._content(path)) as content:
            head, digits = self._head(path, content)
            at = offset
            if digits is not None and offset >= digits.end:
                at += digits.growth_bytes
            relocator = self._relocator(at)
            for piece in chain((head,), content):
                deque(relocator.feed(piece), 0)
                if at in relocator.cut_positions:
                    break
            else:
                deque(relocator.finish(), 0)
        # One that lies behind the end stays as far behind it: the CLI is to see what is wrong.
        behind = at - relocator.read_bytes + relocator.written_bytes
        return relocator.cut_positions.get(at, behind)

    def _relocator(self, *cuts: int) -> Relocator:
        return Relocator(self._destination, origin=self._origin, cuts=cuts)
