r"""Text of others for a person to read: as it is, but for what would drive a terminal or deceive the reader.

The one rule: no control character, no escape sequence and no override of the direction of writing gets through; each is
shown as an escape, such as `\x1b`, so that nothing is lost either.
"""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "["
    "\x00-\x09\x0b-\x1f\x7f-\x9f"  # controls, C0 and C1, but for the newline
    "\xad\u061c\u180e\u200b\u200e\u200f"  # invisible, or marks of direction; joiners stay: scripts need them
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # separators of lines, directions, invisible operators
    "\U000e0000-\U000e007f"  # tags, in which a text can hide
    "\ud800-\udfff"  # no characters
    "]"
)


def visible(text: str) -> str:
    """Return a text of several lines for people; a tab becomes spaces, and the end of a DOS line a newline."""
    return _UNSEEN.sub(_escaped, text.replace("\r\n", "\n").expandtabs(4))


def visible_line(text: str) -> str:
    """Return a text for people in one line: a newline is shown as an escape, too."""
    return visible(text).replace("\n", "\\n")


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
