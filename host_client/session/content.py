"""Contents of a bundle's files as canonical base64: read from a span of the file, written in any pieces.

The one rule: one content has one spelling. What another spelling could hide (spaces, the URL alphabet, missing
padding, bits after the last byte) is refused when it is read and never written.
"""

from __future__ import annotations

import binascii
import json
import os
from typing import TYPE_CHECKING

import pybase64

from host_client.session.scanner import JsonError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from host_client.session.scanner import Span

BLOCK_BYTES = 768 << 10
"""Base64 text decoded at a time: a multiple of four, and it stays in the processor's cache."""
NO_QUANTUM = "base64 text has no multiple of four characters"
_ENCODE_BYTES = BLOCK_BYTES // 4 * 3
_LONGEST_ESCAPE_BYTES = 6


def measure(fd: int, span: Span) -> int:
    """Return the size in bytes of the content that a span spells, from the length and end of its text alone.

    Raises:
        JsonError: the text cannot be canonical base64.
    """
    length, end = span.end - span.start, span.tail
    if span.escaped:
        length, end = 0, b""
        for text in _unescaped(fd, span):
            length += len(text)
            end = (end + text)[-2:]
    if length % 4:
        raise JsonError(NO_QUANTUM, span.start)
    return length // 4 * 3 - (end.count(b"=") if end.endswith(b"=") else 0)


def decode_short(fd: int, span: Span) -> bytes | None:
    """Return a content at once, or None when it needs `decode`; a generator per small file would take longer.

    Raises:
        JsonError: the text is not canonical base64.
    """
    length = span.end - span.start
    if length > BLOCK_BYTES or span.escaped:
        return None
    text = os.pread(fd, length, span.start)
    return _decode_block(text, span.start) if len(text) == length else None


def decode(fd: int, span: Span) -> Iterator[bytes]:
    """Yield the content that a span spells, in blocks.

    Raises:
        JsonError: the text is not canonical base64.
    """
    left = b""
    ended = False
    for text in _unescaped(fd, span) if span.escaped else _blocks(fd, span):
        if ended:
            raise JsonError("base64 text goes on after its padding", span.start)
        whole = left + text if left else text
        cut = len(whole) - len(whole) % 4
        left = whole[cut:]
        if left:
            whole = whole[:cut]
        if whole:
            ended = whole.endswith(b"=")
            yield _decode_block(whole, span.start)
    if left:
        raise JsonError(NO_QUANTUM, span.start)


def _decode_block(text: bytes, offset: int) -> bytes:
    try:
        content = pybase64.b64decode(text, validate=True)
    except binascii.Error:
        raise JsonError("base64 text has a character that does not belong there", offset) from None
    # The decoder takes any bits after the last byte; canonical text has zeros there.
    if text.endswith(b"=") and not text.endswith(pybase64.b64encode(content[-(len(content) % 3) :])):
        raise JsonError("base64 text has bits after its last byte", offset)
    return content


def _blocks(fd: int, span: Span) -> Iterator[bytes]:
    at = span.start
    while at < span.end:
        text = os.pread(fd, min(BLOCK_BYTES, span.end - at), at)
        if not text:
            raise JsonError("the file ends early", at)
        at += len(text)
        yield text


def _unescaped(fd: int, span: Span) -> Iterator[bytes]:
    """Yield the text of a span with JSON's escapes undone: legal, though nobody writes base64 so."""
    left = b""
    at = span.start
    for raw in _blocks(fd, span):
        whole = left + raw
        at += len(raw)
        cut = len(whole)
        if at < span.end and (escape := whole.rfind(b"\\", max(0, cut - _LONGEST_ESCAPE_BYTES))) >= 0:
            cut = escape  # between two backslashes the text breaks, as it should: base64 has none
        whole, left = whole[:cut], whole[cut:]
        try:
            yield json.loads(f'"{whole.decode("ascii")}"').encode("ascii")
        except (ValueError, UnicodeError):
            raise JsonError("base64 text has a character that does not belong there", span.start) from None


class Encoder:
    """Spell one content that comes in pieces of any size; give each piece's text at once."""

    def __init__(self) -> None:
        self._carry = b""

    def add(self, piece: bytes | memoryview) -> list[bytes]:
        """Return the text of a piece, except for up to two bytes that wait for the next."""
        if not self._carry and len(piece) <= _ENCODE_BYTES and not len(piece) % 3:
            return [pybase64.b64encode(piece)]
        view = memoryview(piece)
        texts: list[bytes] = []
        if self._carry:
            missing = 3 - len(self._carry)
            if len(view) < missing:
                self._carry += view
                return texts
            texts.append(pybase64.b64encode(self._carry + view[:missing]))
            view = view[missing:]
        whole = len(view) - len(view) % 3
        self._carry = bytes(view[whole:])
        texts += [
            pybase64.b64encode(view[start : min(start + _ENCODE_BYTES, whole)])
            for start in range(0, whole, _ENCODE_BYTES)
        ]
        return texts

    def finish(self) -> bytes:
        """Return the text of what is left."""
        carry, self._carry = self._carry, b""
        return pybase64.b64encode(carry) if carry else b""
