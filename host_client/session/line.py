"""One line of a transcript: whether it is JSON, where its values stand, and which working directory it names.

The one rule: a line is judged by its bytes and never decoded as a whole, so that one of 150 MB costs no memory beside
itself. JSON is what Python's `json` takes (RFC 8259, and `NaN` and `Infinity`), without its limits on nesting and on
the digits of a number. In these points what the CLIs read decides:

- a line may hold several values one after the other: Claude Code 2.1.197 appends to a line that has no newline;
- bytes that are not UTF-8 are characters of the string they stand in, not an error: Node reads them as such;
- a byte order mark at the start of a line is space (Windows editors put it there, `cat` then moves it into the middle).

A line of nothing but space is not JSON.
"""

from __future__ import annotations

import io
import json
import re
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import stringzilla

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HEADER_NAMES = frozenset(
    (b"type", b"cwd", b"sessionId", b"uuid", b"parentUuid", b"ordinal", b"id", b"session_id", b"history_mode")
)
"""Members that tell what a line is, in Claude Code 1.0.128 to 2.1.332 and in Codex 0.55.0 to 0.171.0."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LEFT, _RIGHT = b"[{", b"]}"

_SPACE = re.compile(rb"[ \t\r\n]*")
_ESCAPE = rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
# At most so many escapes at a time: what the pattern remembers of each would exceed the line.
_RUN = re.compile(rb'(?:[^"\\\x00-\x1f]*' + _ESCAPE + rb'){0,1000}[^"\\\x00-\x1f]*')
_SCALAR = re.compile(
    rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null|NaN|-?Infinity",
)

# Takes nothing that the walk below refuses; it refuses lone surrogate escapes, `NaN` and what is nested very deep.
_quick = msgspec.json.Decoder(msgspec.Raw).decode


_PLAIN_KEY = re.compile(rb'cwd"[ \t\r]*:[ \t\r]*(?=")')
_ANY_KEY = re.compile(rb'(?:c|\\u0063)(?:w|\\u0077)(?:d|\\u0064)"[ \t\r]*:[ \t\r]*(?=")')
_ESCAPED_KEYS = (b'"\\u0063', b'"c\\u0077', b'"cw\\u0064"')


class Span(NamedTuple):
    """A part of a line: from its first byte up to the one behind its last."""

    start: int
    end: int


class Value(NamedTuple):
    """One value of a line, and where members of it start that tell what the line is.

    As for any parser, the last of several equal names counts.

    Attributes:
        span: The whole value.
        top: Members at the top, those of `HEADER_NAMES`.
        payload: Members of `payload`.
    """

    span: Span
    top: Mapping[bytes, int]
    payload: Mapping[bytes, int]


def is_json(line: bytes | bytearray) -> bool:
    """Tell whether a line is one JSON value, or several."""
    try:
        _quick(line)
    except (msgspec.DecodeError, RecursionError):
        return bool(read_values(line))
    return True


def are_json(block: bytes) -> bool:
    """Tell quickly that each line of a block is one JSON value; False may also mean that it takes a closer look.

    Args:
        block: Lines, the last one with its newline too.
    """
    try:
        deque(map(_quick, io.BytesIO(block)), maxlen=0)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def read_values(line: bytes | bytearray) -> Sequence[Value]:
    """Find the values of a line; none when it is not JSON."""
    walk = _Walk(line)
    values: list[Value] = []
    try:
        at = walk.space(len(BYTE_ORDER_MARK) if line.startswith(BYTE_ORDER_MARK) else 0)
        while at < len(line):
            end = walk.value(at)
            values.append(Value(Span(at, end), walk.top, walk.payload))
            at = walk.space(end)
    except _NotJsonError:
        return ()
    return values


def read_string(line: bytes | bytearray, at: int | None) -> str | None:
    """Return the text of the string that starts there in a line that is JSON; None when no string does."""
    if at is None or line[at : at + 1] != b'"':
        return None
    return decode_string(line[at : _Walk(line).string(at)])


def has_escaped_key(block: bytes | bytearray) -> bool:
    """Tell whether there may be a member `cwd` whose name is spelled with escapes."""
    return any(stringzilla.find(block, key) >= 0 for key in _ESCAPED_KEYS)


def find_directories(block: bytes | bytearray) -> Iterator[Span]:
    """Yield each member `cwd` that is a string in lines that are JSON: from its name to where its value starts.

    In lines that are not JSON anything may be yielded.
    """
    pattern = _ANY_KEY if has_escaped_key(block) else _PLAIN_KEY
    for found in pattern.finditer(block):
        start = found.start() - 1
        # Behind a backslash the quote belongs to a text. Any other opens the name: none closes in front of a word.
        if block[start : start + 1] == b'"' and block[start - 1 : start] != b"\\":
            yield Span(start, found.end())


def decode_string(raw: bytes | bytearray) -> str:
    """Return the text of a JSON string in its quotes; what is not UTF-8 becomes surrogates, as in `os.fsdecode`.

    Raises:
        ValueError: it has an escape that is none.
    """
    text = raw.decode("utf-8", "surrogateescape")
    return str(json.loads(text)) if "\\" in text else text[1:-1]


def encode_string(text: str) -> bytes:
    """Spell a JSON string as `JSON.stringify` does: only what must be is escaped, surrogates too, so it is UTF-8."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace")


class _NotJsonError(Exception):
    """The line is not JSON."""


class _Walk:
    """A walk over the values of a line that holds nothing but the brackets that are open.

    Attributes:
        top: Where members start at the top of the value walked last.
        payload: The same of its payload.
    """

    def __init__(self, line: bytes | bytearray) -> None:
        self._line = line
        self.top: dict[bytes, int] = {}
        self.payload: dict[bytes, int] = {}

    def space(self, at: int) -> int:
        """Return where the space ends that starts there."""
        found = _SPACE.match(self._line, at)
        return found.end() if found else at

    def value(self, at: int) -> int:
        """Return where the value ends that starts there.

        Raises:
            _NotJsonError: it is none.
        """
        line = self._line
        self.top, self.payload = {}, {}
        brackets = bytearray()
        in_payload = False
        while True:
            # Here a value starts, or an empty container ends.
            first = line[at : at + 1]
            if first and first in _LEFT:
                brackets += first
                at = self.space(at + 1)
                if line[at : at + 1] != _closing(brackets):
                    if first == b"{":
                        name, at = self._name(at)
                        in_payload = self._note(name, at, brackets, in_payload=in_payload)
                    continue
            else:
                at = self._scalar(at)
            # Here a value has ended, or its container is about to.
            while brackets:
                at = self.space(at)
                follows = line[at : at + 1]
                if follows == b",":
                    at = self.space(at + 1)
                    if brackets[-1:] == b"{":
                        name, at = self._name(at)
                        in_payload = self._note(name, at, brackets, in_payload=in_payload)
                    break
                if follows != _closing(brackets):
                    raise _NotJsonError
                del brackets[-1]
                at += 1
            else:
                return at

    def _note(self, name: bytes, at: int, brackets: bytearray, *, in_payload: bool) -> bool:
        """Take note of a member whose value starts there; return whether what follows lies in `payload`."""
        depth = len(brackets)
        if depth == 1:
            if name == b"payload":
                self.payload = {}
            elif name in HEADER_NAMES:
                self.top[name] = at
            return name == b"payload"
        if in_payload and name in HEADER_NAMES and brackets == b"{{":
            self.payload[name] = at
        return in_payload

    def _name(self, at: int) -> tuple[bytes, int]:
        """Return the name of the member that starts there, and where its value starts."""
        end = self.string(at)
        name = bytes(self._line[at + 1 : end - 1])
        if b"\\" in name:
            name = decode_string(self._line[at:end]).encode("utf-8", "surrogatepass")
        at = self.space(end)
        if self._line[at : at + 1] != b":":
            raise _NotJsonError
        return name, self.space(at + 1)

    def _scalar(self, at: int) -> int:
        if self._line[at : at + 1] == b'"':
            return self.string(at)
        found = _SCALAR.match(self._line, at)
        if found is None:
            raise _NotJsonError
        return found.end()

    def string(self, at: int) -> int:
        """Return where the string ends that starts there."""
        line = self._line
        if line[at : at + 1] != b'"':
            raise _NotJsonError
        at += 1
        while True:
            found = _RUN.match(line, at)
            end = found.end() if found else at
            if line[end : end + 1] == b'"':
                return end + 1
            if end == at or line[end : end + 1] != b"\\":
                raise _NotJsonError  # an escape that is none, a control character, or no end
            at = end


def _closing(brackets: bytearray) -> bytes:
    return b"}" if brackets[-1:] == b"{" else b"]"
