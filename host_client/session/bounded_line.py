"""Lines of a transcript for showing: memory is bounded whatever a line holds, and nothing stops the reading.

The one rule: a line is read like any other until it is longer than a whole one may be; of a longer one the strings are
cut, each with a note of how much is missing, and what is too long even so is given up, and told.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_WHOLE_BYTES = 1 << 20
"""A line up to this size is read as it is."""
MAX_STRING_BYTES = 64 << 10
"""What is kept of each string of a longer line."""
MAX_CUT_BYTES = 4 << 20
"""A line that is longer even with its strings cut is given up."""

_STEP_BYTES = 128 << 10
_SPECIAL = re.compile(rb'["\\]')
# Bounded, since the matcher remembers each round.
_SKIPPED = re.compile(rb'(?:[^"\\]+|\\.){1,1000}', re.DOTALL)
_JSON_SPACE = " \t\r\n\ufeff\0"


class BoundedLine(NamedTuple):
    """A line without its newline.

    Attributes:
        data: Its bytes, with long strings cut; empty when it was given up.
        size_bytes: How long it really is.
        is_given_up: Whether it is too long to be looked at.
        is_ended: Whether a newline ends it.
    """

    data: bytes
    size_bytes: int
    is_given_up: bool
    is_ended: bool


def bounded_lines(pieces: Iterable[bytes]) -> Iterator[BoundedLine]:
    """Yield the lines of a stream that comes in any pieces; a last one without newline, too."""
    rest, cutter = bytearray(), None
    for piece in pieces:
        start = 0
        while start < len(piece):
            end = piece.find(b"\n", start)
            reach = len(piece) if end < 0 else end
            if cutter is None and len(rest) + reach - start <= MAX_WHOLE_BYTES:
                rest += piece[start:reach]
            else:
                if cutter is None:
                    cutter = _Cutter()
                    cutter.feed(bytes(rest))
                    rest.clear()
                for at in range(start, reach, _STEP_BYTES):
                    cutter.feed(piece[at : min(at + _STEP_BYTES, reach)])
            if end >= 0:
                yield cutter.line(is_ended=True) if cutter else _whole(rest, is_ended=True)
                rest, cutter = bytearray(), None
            start = reach + 1
    if cutter or rest:
        yield cutter.line(is_ended=False) if cutter else _whole(rest, is_ended=False)


def read_objects(line: BoundedLine) -> list[dict[str, object]] | None:
    """Return the JSON objects of a line, mostly one; none when it is nothing but space and NULs; None: it is no JSON.

    What the CLIs read is read: several objects in a line, bytes that are not UTF-8, a byte order mark. Of an object
    that a broken one follows in the same line nothing is lost.
    """
    try:
        value = msgspec.json.decode(line.data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _read_slowly(line.data)
    return [value] if isinstance(value, dict) else None


def _read_slowly(data: bytes) -> list[dict[str, object]] | None:
    text = data.decode("utf-8", "replace").strip(_JSON_SPACE)
    decoder = json.JSONDecoder(strict=False)
    found: list[dict[str, object]] = []
    at = 0
    try:
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            if not isinstance(value, dict):
                return found or None
            found.append(value)
            while at < len(text) and text[at] in _JSON_SPACE:
                at += 1
    except (ValueError, RecursionError):
        return found or None
    return found


def _whole(data: bytearray, *, is_ended: bool) -> BoundedLine:
    return BoundedLine(bytes(data), len(data), is_given_up=False, is_ended=is_ended)


class _Cutter:
    """One long line on its way through."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._size_bytes = 0
        self._in_string = False
        self._kept_bytes = 0
        self._dropped_bytes = 0
        self._carry = b""
        self._is_given_up = False

    def feed(self, piece: bytes) -> None:
        self._size_bytes += len(piece)
        if self._is_given_up:
            return
        data, self._carry = self._carry + piece, b""
        at = 0
        while at < len(data):
            at = self._within(data, at) if self._in_string else self._outside(data, at)
        if len(self._out) > MAX_CUT_BYTES:
            self._is_given_up = True
            self._out.clear()

    def line(self, *, is_ended: bool) -> BoundedLine:
        return BoundedLine(bytes(self._out), self._size_bytes, is_given_up=self._is_given_up, is_ended=is_ended)

    def _outside(self, data: bytes, at: int) -> int:
        end = data.find(b'"', at)
        if end < 0:
            self._out += data[at : at + MAX_CUT_BYTES + 1]
            return len(data)
        self._out += data[at : end + 1]
        self._in_string, self._kept_bytes, self._dropped_bytes = True, 0, 0
        return end + 1

    def _within(self, data: bytes, at: int) -> int:
        if self._kept_bytes >= MAX_STRING_BYTES:
            return self._skip(data, at)
        found = _SPECIAL.search(data, at, at + MAX_STRING_BYTES - self._kept_bytes)
        if found is None:
            return self._keep(data, at, min(len(data), at + MAX_STRING_BYTES - self._kept_bytes))
        if found[0] == b'"':
            self._keep(data, at, found.end())
            self._in_string = False
            return found.end()
        # An escape is kept as a whole: with the digits of `\uXXXX`, and both halves of a character that has two.
        length = 2
        if data[found.end() : found.end() + 1] == b"u":
            is_half = data[found.start() + 2 : found.start() + 3] in (b"d", b"D")
            length = 12 if is_half and data[found.start() + 6 : found.start() + 8] in (b"\\u", b"\\", b"") else 6
        if found.start() + length > len(data):
            self._keep(data, at, found.start())
            self._carry = data[found.start() :]
            return len(data)
        return self._keep(data, at, found.start() + length)

    def _keep(self, data: bytes, start: int, end: int) -> int:
        self._out += data[start:end]
        self._kept_bytes += end - start
        return end

    def _skip(self, data: bytes, at: int) -> int:
        if data[at : at + 1] == b'"':
            if self._dropped_bytes:
                self._out += f" [cut here: {self._dropped_bytes} more bytes]".encode()
            self._out += b'"'
            self._in_string = False
            return at + 1
        found = _SKIPPED.match(data, at)
        if found is None:  # a backslash at the end of the piece
            self._carry = data[at:]
            return len(data)
        self._dropped_bytes += found.end() - at
        return found.end()
