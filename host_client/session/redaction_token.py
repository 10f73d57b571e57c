"""Redact a line or a document: value by value when it reads as JSON, else as the text it is.

The one rule: bytes outside a token with a hit stay as they are.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from host_client.session.redaction_spelling import Screen

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from host_client.session.redaction import Redaction

BOM = b"\xef\xbb\xbf"
_BACKSLASH = ord("\\")
_GAP = re.compile(rb"[ \t\r\n{}\[\]:,]+|(?:true|false|null|NaN|-?Infinity)(?![0-9A-Za-z.+-])")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z.+-])")
_PLAIN_STRING = re.compile(rb'"[^"\\]*"')
# Of a line that is known to be JSON; lines no longer than that, for each escape takes memory.
_VALUE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
_MAX_QUICK_BYTES = 1 << 20
_MAX_SEEN_BYTES = 64
_MAX_SEEN_COUNT = 8192


class Edit(NamedTuple):
    """A part of some bytes that goes, and what comes for it."""

    start: int
    end: int
    replacement: bytes


class NotJsonError(ValueError):
    """The bytes cannot be read as tokens of JSON."""


class TokenRedactor:
    """Redacts whole lines and documents under the same rules.

    Args:
        redaction: The rules.
        counts: Hits are added here, by the name of the rule.
    """

    def __init__(self, redaction: Redaction, counts: MutableMapping[str, int]) -> None:
        self._redaction = redaction
        self._counts = counts
        self.screen = Screen(redaction.secrets)
        self._seen: set[bytes] = set()  # short values that no rule changes: names, types and ids come again and again

    def edits(self, data: bytes) -> list[Edit]:
        """Return what to change in a line or document, in order.

        One that reads as JSON values, also several one after the other, is changed value by value. Any other is text;
        its bytes that are not UTF-8 stay.

        Raises:
            ConfigurationError: `invalid_argument`: a function of the rules failed.
        """
        if self._is_clear(data):
            return []
        counts: Counter[str] = Counter()
        try:
            edits = list(self._token_edits(data, counts))
        except NotJsonError:
            return self.text_edits(data)
        self._add(counts)
        return edits

    def text_edits(self, data: bytes) -> list[Edit]:
        """Return what to change in a text."""
        if not self._redaction.reads_all and self.screen.clears(data):
            return []
        start = len(BOM) if data.startswith(BOM) else 0
        counts: Counter[str] = Counter()
        text = data[start:].decode("utf-8", "surrogateescape")
        redacted = self._redaction.redact(text, counts) if text else text
        if redacted == text:
            return []
        self._add(counts)
        try:
            replacement = redacted.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # a function's own lone surrogates
            replacement = redacted.encode("utf-8", "replace")
        return [Edit(start, len(data), replacement)]

    def _add(self, counts: Counter[str]) -> None:
        for name, count in counts.items():
            self._counts[name] += count

    def _is_clear(self, data: bytes) -> bool:
        """Tell quickly of most of what needs no change that it needs none; False says nothing."""
        if not self._redaction.reads_all:
            return self.screen.clears(data)
        if len(data) > _MAX_QUICK_BYTES:
            return False
        try:
            json.loads(data.decode())
        except (ValueError, RecursionError):
            return False
        fresh = set(_VALUE.findall(data)) - self._seen
        try:
            clear = {token for token in fresh if self._replacement(token, Counter()) is None}
        except NotJsonError:
            return False
        if len(self._seen) > _MAX_SEEN_COUNT:
            self._seen.clear()
        self._seen.update(token for token in clear if len(token) <= _MAX_SEEN_BYTES)
        return len(clear) == len(fresh)

    def _token_edits(self, data: bytes, counts: Counter[str]) -> Iterator[Edit]:
        for start, end in _tokens(data):
            token = data[start:end]
            if token in self._seen:
                continue
            replacement = self._replacement(token, counts)
            if replacement is not None:
                yield Edit(start, end, replacement)

    def _replacement(self, token: bytes, counts: Counter[str]) -> bytes | None:
        """Return what comes for a string or number, or None when it stays."""
        if not self._redaction.reads_all and self.screen.clears(token):
            return None
        is_string = token.startswith(b'"')
        try:
            text = json.loads(token.decode()) if is_string else token.decode()
        except ValueError:
            raise NotJsonError from None
        redacted = self._redaction.redact(text, counts, is_string=is_string)
        if redacted == text:
            return None
        try:
            return json.dumps(redacted, ensure_ascii=token.isascii()).encode()
        except UnicodeEncodeError:  # a lone surrogate, which only an escape can spell
            return json.dumps(redacted).encode()


def _tokens(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where strings and numbers lie.

    Raises:
        NotJsonError: something is no token of JSON. Their order is not checked.
    """
    at = len(BOM) if data.startswith(BOM) else 0
    while at < len(data):
        if found := _GAP.match(data, at):
            at = found.end()
        elif found := _PLAIN_STRING.match(data, at) or _NUMBER.match(data, at):
            yield found.span()
            at = found.end()
        else:
            end = _string_end(data, at)
            yield at, end
            at = end


def _string_end(data: bytes, start: int) -> int:
    """Return where a string with escapes ends. A pattern would take memory for each escape."""
    end = start if data.startswith(b'"', start) else -1
    while end >= 0 and (end := data.find(b'"', end + 1)) >= 0:
        slash = end - 1
        while data[slash] == _BACKSLASH:
            slash -= 1
        if (end - slash) % 2:
            return end + 1
    raise NotJsonError
