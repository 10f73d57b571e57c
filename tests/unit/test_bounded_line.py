"""Lines for showing: whole ones as they are, long ones with their strings cut, in memory that is bounded."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.session.bounded_line import (
    MAX_CUT_BYTES,
    MAX_STRING_BYTES,
    MAX_WHOLE_BYTES,
    BoundedLine,
    bounded_lines,
    read_objects,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Yield data in pieces of a size."""
    return (data[start : start + size] for start in range(0, len(data), size))


def whole(data: bytes) -> BoundedLine:
    """Return a line that a newline ends."""
    return BoundedLine(data, len(data), is_given_up=False, is_ended=True)


@given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
def test_lines_come_back_as_they_were(found: list[bytes], size: int) -> None:
    """However a stream is cut, its lines are those between newlines, and a last one without is told."""
    data = b"\n".join(found)
    lines = list(bounded_lines(pieces(data, size)))
    expected = data.split(b"\n")
    assert [line.data for line in lines] == (expected if expected[-1] else expected[:-1])
    assert [line.is_ended for line in lines] == [True] * data.count(b"\n") + [False] * bool(expected[-1])


@pytest.mark.parametrize("size", [1000, 4096, 1 << 17, 1 << 22])
@pytest.mark.parametrize(
    "text",
    [
        "a" * 2 * MAX_WHOLE_BYTES,
        "\\" * MAX_WHOLE_BYTES,
        '"é\u2028😀\n' * (MAX_WHOLE_BYTES // 8),
        "\0\x1f" * MAX_WHOLE_BYTES,
    ],
    ids=["plain", "backslashes", "mixed", "escapes"],
)
def test_a_long_string_is_cut_with_a_note(text: str, size: int) -> None:
    """A line beyond 1 MiB is still JSON after the cut: its long string begins as it did, and the others are whole."""
    line = json.dumps({"a": "before", "long": text, "b": ["after", {"c": '\\"'}]}).encode()
    (cut,) = bounded_lines(pieces(line + b"\n", size))
    assert (cut.size_bytes, cut.is_given_up, cut.is_ended) == (len(line), False, True)
    assert len(cut.data) < MAX_STRING_BYTES + 1000
    (value,) = read_objects(cut) or ()
    told = value.pop("long")
    assert value == {"a": "before", "b": ["after", {"c": '\\"'}]}
    assert isinstance(told, str)
    begin, _, note = told.rpartition(" [cut here: ")
    assert text.startswith(begin)
    assert len(json.dumps(begin)) - 2 >= MAX_STRING_BYTES
    assert note == f"{len(json.dumps(text)) - len(json.dumps(begin))} more bytes]"


def test_bytes_that_are_no_text_do_not_stop_a_cut() -> None:
    """A character that is cut in two, and bytes that are not UTF-8, become marks of replacement."""
    line = b'{"long":"' + b"x" + "é".encode() * MAX_WHOLE_BYTES + b'","odd":"\xff"}\n'
    (cut,) = bounded_lines([line])
    (value,) = read_objects(cut) or ()
    assert str(value["long"]).startswith("xéé")
    assert value["odd"] == "\ufffd"


def test_a_line_of_many_small_values_is_given_up() -> None:
    """What is too long with nothing to cut costs no more memory than others, and the next line is read."""
    line = b"[" + b"1," * MAX_CUT_BYTES + b"1]\n"
    given_up, following = bounded_lines(pieces(line + b"{}\n", 1 << 16))
    assert (given_up.data, given_up.size_bytes, given_up.is_given_up) == (b"", len(line) - 1, True)
    assert read_objects(following) == [{}]


def test_memory_is_bounded() -> None:
    """A line of 100 MiB passes in a few."""
    block = b"x" * (1 << 20)

    def stream() -> Iterator[bytes]:
        yield b'{"a":"'
        for _ in range(100):
            yield block
        yield b'"}\n'

    tracemalloc.start()
    try:
        (cut,) = bounded_lines(stream())
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert cut.size_bytes > 100 << 20
    assert peak_bytes < 8 << 20


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"a":1}', [{"a": 1}]),
        (b'\xef\xbb\xbf{"a":1}\r', [{"a": 1}]),
        (b'{"a":1}{"b":2} {"c":3}', [{"a": 1}, {"b": 2}, {"c": 3}]),
        (b'{"a":1}{"b":', [{"a": 1}]),
        (b'{"a":NaN}', None),
        (b"", []),
        (b" \t\r", []),
        (b"\0" * 100, []),
        (b'\0\0{"a":1}', [{"a": 1}]),
        (b'{"a":', None),
        (b"[1]", None),
        (b"17", None),
        (b"[" * 100_000, None),
        (b'{"a":"\x01"}', [{"a": "\x01"}]),
    ],
)
def test_what_a_line_holds(data: bytes, found: list[dict[str, object]] | None) -> None:
    """Several objects, a byte order mark, NULs around and control characters are read; what is no object is told."""
    value = read_objects(whole(data))
    if b"NaN" in data:
        assert value is not None
    else:
        assert value == found
