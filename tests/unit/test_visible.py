"""Text of others is made safe for a terminal, and stays readable."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.cli.visible import visible, visible_line

JOINERS = "\u200c\u200d"


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_nothing_gets_through_that_drives_a_terminal(text: str) -> None:
    """No control but the newline, no surrogate, no separator of lines and no direction is left of any text."""
    for char in visible(text):
        assert char == "\n" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(char) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    assert "\n" not in visible_line(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb", r"a\rb"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("a\u2028b", r"a\u2028b"),
        ("\U000e0041", r"\U000e0041"),
        ("\udcff", r"\udcff"),
        ("\ufeffx\u200b\xad", r"\ufeffx\u200b\xad"),
        ("a\r\nb\tc", "a\nb   c"),
        ("café 中文 👩\u200d💻 می\u200cخواهم", "café 中文 👩\u200d💻 می\u200cخواهم"),
    ],
)
def test_what_is_hidden_is_shown(text: str, shown: str) -> None:
    """Escapes stand for what cannot be seen; words of any script stay what they are."""
    assert visible(text) == shown
