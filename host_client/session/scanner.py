"""Read one JSON document token by token from a file descriptor, strictly and in bounded memory.

The one rule: nothing outside RFC 8259 passes, and no value is held that the caller did not ask for. The file is read
through a window, not mapped: a file that someone truncates meanwhile is then an error instead of a signal, and its
pages are not ours.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW_BYTES = 256 << 10
"""Read at a time: it stays in the processor's cache."""
MAX_TOKEN_BYTES = 64 << 10
"""Longest name, text or number; a path of 4,096 bytes needs 24 KiB when every byte is escaped."""
MAX_JSON_DEPTH_COUNT = 64

_SPACE = re.compile(rb"[ \t\n\r]*+")
_PLAIN_STRING = re.compile(rb'"[^"\\\x00-\x1f]*+"')
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_STRING_RUN = re.compile(rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_WORD = re.compile(rb"true|false|null")
_LONGEST_ESCAPE_BYTES = 6
_TAIL_BYTES = 2
_BACKSLASH = ord("\\")


class JsonError(Exception):
    """The document breaks a rule of JSON or of its shape: what, and at which byte."""

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.offset = offset


class Span(NamedTuple):
    """Where the inside of a string lies in the file: from `start` up to the closing quote at `end`.

    `tail` has its last two bytes, as far as there are two; it is empty when the string has escapes.
    """

    start: int
    end: int
    tail: bytes
    escaped: bool


class Scanner:
    """A position in a JSON document; each method consumes one thing or raises `JsonError`.

    Args:
        fd: Descriptor of a regular file; stays the caller's.
        size_bytes: Size of the document.
    """

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._fd = fd
        self._size_bytes = size_bytes
        self._window = b""
        self._start = 0
        self._at = 0
        self._backslash = 0  # a position in the window from which on the next backslash was searched; -1: none follows
        self._depth = 0

    @property
    def offset(self) -> int:
        """Position in the file, in bytes."""
        return self._start + self._at

    def error(self, problem: str) -> JsonError:
        """Return the error of something wrong at the present position."""
        return JsonError(problem, self.offset)

    def match(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """Consume what the pattern matches here, if it does; it sees `MAX_TOKEN_BYTES` or all that is left."""
        self._fill()
        found = pattern.match(self._window, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def ahead(self) -> tuple[bytes, int, int]:
        """Return the window, the position in it, and how far it has no backslash.

        The short way through thousands of small elements in a usual spelling; `advance` says how much of it was
        consumed.
        """
        self._fill()
        return self._window, self._at, self._backslash if self._has_backslash(-1) else len(self._window)

    def advance(self, position: int) -> None:
        """Consume the window up to a position that `ahead` gave or that lies behind it."""
        self._at = position

    def text(self) -> str:
        """Consume a string and return it decoded; a lone surrogate escape stays one."""
        self._space()
        found = self.match(_PLAIN_STRING) or self.match(_STRING)
        if found is None or found.end() - found.start() > MAX_TOKEN_BYTES:
            raise self.error("no string, or one that is broken or too long, where a string must be")
        decoded: str = json.loads(self._decode(found[0]))
        return decoded

    def span(self) -> Span:
        """Consume a string of any length without looking at what is inside, beyond finding its end."""
        self._space()
        if self._window[self._at : self._at + 1] != b'"':
            raise self.error("no string where a string must be")
        self._at += 1
        start = self.offset
        while True:
            end = self._window.find(b'"', self._at)
            if self._has_backslash(end):
                for _ in self._runs():
                    pass
                return Span(start, self.offset - 1, b"", escaped=True)
            if end >= 0:
                self._at = end + 1
                tail = self._window[max(start - self._start, end - _TAIL_BYTES) : end]
                return Span(start, self._start + end, tail, escaped=False)
            self._at = max(self._at, len(self._window) - _TAIL_BYTES)
            self._refill("a string does not end")

    def number(self) -> float:
        """Consume a number."""
        self._space()
        found = self.match(_NUMBER)
        if found is None or found.end() - found.start() > MAX_TOKEN_BYTES // 2:
            raise self.error("no number, or one that is too long, where a number must be")
        return float(found[0])

    def members(self) -> Iterator[str]:
        """Consume an object: give each name, after which the caller consumes the value."""
        self._open(b"{", "an object")
        names: set[str] = set()
        more = not self._take(b"}")
        while more:
            name = self.text()
            if name in names:
                raise self.error(f"the name {name[:100]!r} stands twice in one object")
            names.add(name)
            self._expect(b":")
            yield name
            more = self._more(b"}")
        self._depth -= 1

    def elements(self) -> Iterator[int]:
        """Consume an array: give each index, after which the caller consumes the element."""
        self._open(b"[", "an array")
        index = 0
        more = not self._take(b"]")
        while more:
            yield index
            index += 1
            more = self._more(b"]")
        self._depth -= 1

    def skip(self) -> None:
        """Consume any value and check it."""
        self._space()
        first = self._window[self._at : self._at + 1]
        if first == b"{":
            for _ in self.members():
                self.skip()
        elif first == b"[":
            for _ in self.elements():
                self.skip()
        elif first == b'"':
            self._skip_string()
        elif not self.match(_WORD):
            self.number()

    def finish(self) -> None:
        """Make sure that nothing but space follows."""
        self._space()
        if self.offset != self._size_bytes:
            raise self.error("something follows the end of the document")

    def _skip_string(self) -> None:
        self._at += 1
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for run in self._runs():
                decoder.decode(run)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise self.error("a string is not UTF-8") from None

    def _runs(self) -> Iterator[bytes]:
        """Consume the rest of a string up to and with its closing quote, in pieces that cut no escape."""
        while True:
            found = self.match(_STRING_RUN)
            if found is None:  # the pattern matches the empty string
                raise AssertionError
            yield found[0]
            left = self._window[self._at : self._at + _LONGEST_ESCAPE_BYTES]
            if left[:1] == b'"':
                self._at += 1
                return
            if left and not (left[0] == _BACKSLASH and len(left) < _LONGEST_ESCAPE_BYTES):
                raise self.error("a string has a control character or a broken escape")
            self._refill("a string does not end")

    def _decode(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.error("a string is not UTF-8") from None

    def _open(self, bracket: bytes, name: str) -> None:
        self._expect(bracket, f"{name} must be here")
        self._depth += 1
        if self._depth > MAX_JSON_DEPTH_COUNT:
            raise self.error(f"values are nested deeper than {MAX_JSON_DEPTH_COUNT}")

    def _more(self, closing: bytes) -> bool:
        if self._take(b","):
            return True
        self._expect(closing)
        return False

    def _take(self, token: bytes) -> bool:
        if not self._window.startswith(token, self._at):
            self._space()
            if not self._window.startswith(token, self._at):
                return False
        self._at += 1
        return True

    def _expect(self, token: bytes, problem: str = "") -> None:
        if not self._take(token):
            raise self.error(problem or f"{token.decode()!r} must be here")

    def _space(self) -> None:
        while (found := self.match(_SPACE)) and found.end() == len(self._window) and self.offset < self._size_bytes:
            pass

    def _has_backslash(self, end: int) -> bool:
        """Tell whether a backslash comes before `end`, or in the window at all when that is -1."""
        if 0 <= self._backslash < self._at:
            self._backslash = self._window.find(b"\\", self._at)
        return self._backslash >= 0 and (end < 0 or self._backslash < end)

    def _fill(self) -> None:
        while len(self._window) - self._at < MAX_TOKEN_BYTES and self._start + len(self._window) < self._size_bytes:
            self._refill("the file ends early")

    def _refill(self, problem: str) -> None:
        reach = self._start + len(self._window)
        wanted_bytes = min(WINDOW_BYTES, self._size_bytes - reach)
        more = os.pread(self._fd, wanted_bytes, reach) if wanted_bytes else b""
        if not more:
            raise JsonError(problem, reach)
        self._window = self._window[self._at :] + more
        self._start += self._at
        self._at = 0
        self._backslash = self._window.find(b"\\")
