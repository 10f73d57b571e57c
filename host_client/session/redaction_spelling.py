r"""How a literal secret may be spelled, and a quick test whether bytes can hold one at all.

The one rule: what the test clears holds no literal in any spelling; what it does not clear need not hold one.

A JSON string spells a character as itself, as `\u0041`, or some as `\n`, `\"` or `\/`. JSON inside a string is escaped
once more, so any number of backslashes may stand there for one. In the string itself any spelling is seen through, and
in JSON inside it; further in, an escape whose own characters are escaped by number (`\u005c\u0075…`) is not: no encoder
writes that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHORT = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", '"': '"', "/": "/"}
_BARE = frozenset('"/')
"""Characters that a backslash before them does not change."""
_DIGITS = "0123456789abcdefABCDEF"
_BASIC_PLANE_END = 0x10000


def spelling(secret: str) -> re.Pattern[str]:
    """Return what finds a secret in a text, as it is and as any depth of JSON in the text may spell it.

    Runs of backslashes count alike from the number that the secret has on: how many there are says only how deep it
    lies. Searching takes time in proportion to the text.
    """
    parts: list[str] = []
    index = 0
    while index < len(secret):
        run = len(secret[index:]) - len(secret[index:].lstrip("\\"))
        if run:
            ahead = "" if index else r"(?<!\\)(?<!\\u005[cC])"
            parts.append(rf"{ahead}\\(?:\\|u005[cC]){{{run - 1},}}")
            index += run
            continue
        parts.append(_character(secret[index], is_first=not index, follows_run=secret[index - 1 : index] == "\\"))
        index += 1
    return re.compile("".join(parts))


def _character(char: str, *, is_first: bool, follows_run: bool) -> str:
    """Return the pattern of one character that is no backslash.

    Before the first one a run of backslashes is taken from its beginning only, so that no run is read again and again.
    """
    escape = "" if follows_run else r"\\(?<!\\\\)\\*" if is_first else r"\\+"
    units = _units(char)
    escaped = escape + units[0] + "".join(rf"\\+{unit}" for unit in units[1:])
    spelled = [re.escape(char), escaped]
    if char in _SHORT:
        spelled.append(escape + _SHORT[char])
    return f"(?:{'|'.join(spelled)})"


def _units(char: str) -> list[str]:
    """Return the patterns of a character's UTF-16 units as JSON escapes them, without the backslash."""
    code = ord(char)
    if code < _BASIC_PLANE_END:
        codes = [code]
    else:
        code -= _BASIC_PLANE_END
        codes = [0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF)]
    return ["u" + "".join(_hex_digit(digit) for digit in f"{unit:04x}") for unit in codes]


def _hex_digit(digit: str) -> str:
    return f"[{digit}{digit.upper()}]" if digit.isalpha() else digit


class Screen:
    """Tells of bytes whether they can hold one of some secrets, as UTF-8 text or JSON, fast when they cannot.

    Of each secret the longest part without characters that JSON must or may escape briefly is looked for: where it is
    not, the secret can only be if one of the part's characters is escaped by number.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        anchors = {max(re.split(r'[\x00-\x1f"\\/]', secret), key=len) for secret in secrets}
        self._takes_all = "" in anchors
        self._anchors: Sequence[bytes] = sorted(anchor.encode() for anchor in anchors)
        # The backslash, `u` and the digits may be escaped by number themselves where JSON lies in JSON.
        escaped = sorted({_units(char)[0] for char in {*"".join(anchors), "\\", "u", *_DIGITS}})
        self._escape = re.compile(rb"\\" + f"(?:{'|'.join(escaped)})".encode())
        # Where the first of all is; slower than looking for each, so for what is known to have one.
        self._place = re.compile(b"|".join([*map(re.escape, self._anchors), self._escape.pattern]))

    def clears(self, data: bytes) -> bool:
        """Tell whether no secret can be in the bytes."""
        if not self._anchors:
            return True
        if self._takes_all or any(anchor in data for anchor in self._anchors):
            return False
        return self._escape.search(data) is None

    def find(self, data: bytes, start: int) -> int:
        """Return the first position from `start` on from where on a secret may be; -1: there is none.

        A secret that begins before it on the same line is possible.
        """
        if not self._anchors:
            return -1
        found = self._place.search(data, start)
        return found.start() if found else -1
