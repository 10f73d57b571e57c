"""Lines of an agent's output: ended by newlines alone, bounded, and text whatever the bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import ProcessError
from host_client.turns.line import Lines, Tail


def cut(data: bytes, sizes: list[int]) -> list[str]:
    """Feed data in pieces of these sizes, the rest at the end."""
    lines, found = Lines(), []
    for size in [*sizes, len(data)]:
        piece, data = data[:size], data[size:]
        found += lines.feed(piece)
    return [*found, *lines.end()]


@given(st.binary(max_size=200), st.lists(st.integers(min_value=0, max_value=20), max_size=10))
def test_pieces_do_not_matter(data: bytes, sizes: list[int]) -> None:
    """However output is cut on its way, the lines are those of the whole."""
    parts = data.split(b"\n")
    whole = [part[:-1] if part.endswith(b"\r") else part for part in parts]
    if not parts[-1]:
        whole.pop()
    assert cut(data, sizes) == [part.decode("utf-8", "replace") for part in whole]


def test_lines_end_at_newlines_alone() -> None:
    """Separators of Unicode, form feeds and lone carriage returns are part of a line."""
    text = "a\u2028b\u0085c\x0cd\re"
    assert cut(f"{text}\r\nnext\n".encode(), []) == [text, "next"]


def test_a_line_of_the_limit_is_a_line_and_one_byte_more_is_none() -> None:
    """The limit counts the bytes of a line without its newline; what came before is not lost."""
    lines = Lines(max_bytes=4)
    assert list(lines.feed(b"1234\n")) == ["1234"]
    found = lines.feed(b"ab\n12345")
    assert next(found) == "ab"
    with pytest.raises(ProcessError) as caught:
        next(found)
    assert caught.value.reason == "oversized_event"


def test_an_endless_line_is_refused_before_it_is_kept() -> None:
    """Pieces of a line add up, and memory does not."""
    lines = Lines(max_bytes=10)
    assert list(lines.feed(b"12345678")) == []
    with pytest.raises(ProcessError):
        list(lines.feed(b"90ab"))


def test_bytes_that_are_no_text_are_replaced() -> None:
    """A line is text, also when its bytes are none."""
    assert cut(b"\xff\xfea\xc3\n\xa9", []) == ["\ufffd\ufffda\ufffd", "\ufffd"]


def test_a_tail_is_the_end_in_printable_characters() -> None:
    """Of complaints the end is kept; escape sequences do not reach whoever reads it."""
    tail = Tail()
    tail.add(b"x" * Tail.MAX_BYTES)
    tail.add("\n\x1b[31mfailé\x07\n".encode())
    text = tail.text(lambda whole: whole.replace("fail", "***"))
    assert text.splitlines()[-1] == "\\x1b[31m***é\\x07"
    assert len(text) <= Tail.MAX_CHARS
    assert len(tail._data) == Tail.MAX_BYTES
