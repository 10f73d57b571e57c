"""Move a transcript to another working directory, byte by byte, while it streams by.

The one rule: outside the values of `cwd` that equal the origin not one byte changes: not spacing, order, escapes or
numbers of the same line, not a line that is no JSON, not a blank line, line end or byte order mark.

The CLIs name the directory that they run in `cwd`: at the top of most lines of Claude Code (1.0.128 to 2.1.332), in
`payload` in those of Codex (0.55.0 to 0.171.0), and deeper in both. The first one met is the origin; what equals it, at
any depth, becomes the destination. Directories below the origin, and text that mentions it, are left alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import stringzilla

from host_client.session.line import (
    Span,
    are_json,
    decode_string,
    encode_string,
    find_directories,
    has_escaped_key,
    is_json,
)
from host_client.session.line_block import LineBlocks, part
from host_client.session.origin import Held, find_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PIECE_BYTES = 1 << 20
"""Longest piece of a long line that is given out at a time."""
_NAME = b'"cwd"'
_MEMBER = b'"cwd":'
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_LONGEST_ESCAPE_BYTES = 12
"""Of one character: two halves of a pair of surrogates, six bytes each."""


class Relocator:
    """A transcript on its way to another working directory.

    Call `feed` with the pieces in their order, then `finish` once, and take all that each of them yields before the
    next call. What comes out does not depend on how the input was cut. Memory is that of the longest line and a
    constant: until the origin is known the lines wait, in an unnamed file of the system's temporary folder when they
    are many.

    A transcript that grew can be gone on with, once `line_origin` is known: what a new relocator with the same
    destination and that origin makes of the input from `line_read_bytes` on belongs at `line_written_bytes` of the
    output. What it tells counts from there.

    Args:
        destination: Absolute path of the new working directory; bytes that are not UTF-8 as surrogates, as in
            `os.fsdecode`.
        origin: The recorded working directory, where it is known; otherwise the first one met.
        cuts: Offsets in the input whose places in the output are asked for.

    Attributes:
        origin: The recorded working directory; None as long as no line named one.
        changed_count: Values changed.
        read_bytes: Input taken.
        written_bytes: Output given.
        line_read_bytes: Offset in the input behind the newline of the last line that was given out.
        line_written_bytes: Offset in the output behind the same newline.
        line_origin: The origin, unless it stands in a last line without a newline: that line may become another one.
        cut_positions: Offset in the output for each of `cuts` that was passed: the same distance from the last change
            in front of it. A value that a cut goes through counts as behind it, and its new end as the farthest place.
        torn_at: After `finish`, offset in the input of a last line that neither ends with a newline nor is JSON.
        ends_with_newline: After `finish`, whether the last byte was a newline; False for an empty input.
    """

    def __init__(self, destination: str, *, origin: str | None = None, cuts: Iterable[int] = ()) -> None:
        self.origin = origin
        self.changed_count = 0
        self.read_bytes = 0
        self.written_bytes = 0
        self.line_read_bytes = 0
        self.line_written_bytes = 0
        self.line_origin = origin
        self.cut_positions: dict[int, int] = {}
        self.torn_at: int | None = None
        self.ends_with_newline = False
        self._cuts = sorted(set(cuts), reverse=True)
        self._given_bytes = 0
        self._growth_bytes = 0
        self._destination = destination
        self._new = encode_string(destination)
        self._blocks = LineBlocks()
        self._held = Held()
        if origin is not None:
            self._know(origin)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next piece of the input; yield what can be given out.

        Raises:
            LimitError: `disk_full`: the lines that wait for the origin do not fit into the temporary folder.
        """
        self.read_bytes += len(data)
        for block in self._blocks.feed(data):
            yield from self._take(block)

    def finish(self) -> Iterator[bytes]:
        """Take note that the input has ended; yield the rest."""
        rest = self._blocks.rest
        self.ends_with_newline = self.read_bytes > 0 and not rest
        if rest:
            if not is_json(rest):
                self.torn_at = self.read_bytes - len(rest)
            if self.origin is None and (origin := find_origin(rest)) is not None:
                self._know(origin)
        yield from self._release()
        if rest:
            yield from self._give(rest)
        self._pass(self.read_bytes, self.written_bytes)

    def _take(self, block: bytes | bytearray) -> Iterator[bytes]:
        if self.origin is None:
            origin = find_origin(block)
            if origin is None:
                self._held.add(block)
                return
            self._know(origin)
            self.line_origin = origin
            yield from self._release()
        yield from self._give(block)

    def _release(self) -> Iterator[bytes]:
        """Give out the lines that waited for the origin."""
        for block in self._held.take():
            yield from self._give(block)

    def _know(self, origin: str) -> None:
        self.origin = origin
        self._old = encode_string(origin)
        self._old_member = _MEMBER + self._old
        self._new_member = _MEMBER + self._new
        self._max_old_bytes = len(origin) * _LONGEST_ESCAPE_BYTES + 2

    def _give(self, block: bytes | bytearray) -> Iterator[bytes]:
        """Yield lines, relocated."""
        if self.origin in (None, self._destination):
            yield from self._pieces(memoryview(block))
        elif (whole := self._replaced(block)) is not None:
            self.written_bytes += len(whole)
            self._growth_bytes += len(whole) - len(block)
            yield whole
        else:
            yield from self._edited(block)
        self._given_bytes += len(block)
        self._pass(self._given_bytes, self.written_bytes)
        if block.endswith(b"\n"):
            self.line_read_bytes = self._given_bytes
            self.line_written_bytes = self.written_bytes

    def _replaced(self, block: bytes | bytearray) -> bytes | None:
        """Return the block with its values changed, or None when that takes a closer look.

        It does not where each `cwd` has the origin, spelled as the CLIs spell it, and each line is JSON.
        """
        if isinstance(block, bytearray) or (self._cuts and self._cuts[-1] < self._given_bytes + len(block)):
            return None
        # By SIMD: `count` and `split` of bytes take four to ten times as long.
        names_count = stringzilla.count(block, _NAME)
        if has_escaped_key(block) or names_count != stringzilla.count(block, self._old_member):
            return None
        if not names_count:
            return block
        if stringzilla.find(block, b"\\" + self._old_member) >= 0 or not are_json(block):
            return None
        self.changed_count += names_count
        return self._new_member.join(stringzilla.Str(block).split(self._old_member))

    def _edited(self, block: bytes | bytearray) -> Iterator[bytes]:
        """Yield a block with its values changed one by one."""
        view = memoryview(block)
        at = 0
        for start, end in self._values(block):
            yield from self._pieces(view[at:start])
            self.written_bytes += len(self._new)
            self._pass(self._given_bytes + end - 1, self.written_bytes)
            self._growth_bytes += len(self._new) - (end - start)
            self.changed_count += 1
            yield self._new
            at = end
        yield from self._pieces(view[at:])

    def _values(self, block: bytes | bytearray) -> Iterator[Span]:
        """Yield the values that must change: they stand in lines that are JSON and equal the origin."""
        line_end = 0
        line_is_json = False
        for name_start, start in find_directories(block):
            end = self._end_of_old(block, start)
            if end is None:
                continue
            if start >= line_end:
                line_start = block.rfind(b"\n", line_end, name_start) + 1 or line_end
                line_end = block.find(b"\n", end) + 1 or len(block)
                line_is_json = is_json(part(block, line_start, line_end))
            if line_is_json:
                yield Span(start, end)

    def _end_of_old(self, block: bytes | bytearray, start: int) -> int | None:
        """Return where the string ends that starts there, if it spells the origin."""
        if block.startswith(self._old, start):
            return start + len(self._old)
        found = _STRING.match(block, start, start + self._max_old_bytes)
        if found is None or b"\\" not in found[0] + self._old:
            return None  # without escapes there is one spelling
        try:
            return found.end() if decode_string(found[0]) == self.origin else None
        except ValueError:
            return None  # the line is not JSON

    def _pieces(self, view: memoryview) -> Iterator[bytes]:
        for start in range(0, len(view), _PIECE_BYTES):
            piece = bytes(view[start : start + _PIECE_BYTES])
            self.written_bytes += len(piece)
            yield piece

    def _pass(self, end: int, max_position: int) -> None:
        """Tell the places of the cuts up to that offset in the input, none behind that one in the output."""
        while self._cuts and self._cuts[-1] <= end:
            cut = self._cuts.pop()
            self.cut_positions[cut] = min(cut + self._growth_bytes, max_position)
