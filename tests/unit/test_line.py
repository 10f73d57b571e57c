"""What a line of a transcript is: JSON or not, and which working directory it names."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_client.session.line import (
    are_json,
    decode_string,
    encode_string,
    find_directories,
    is_json,
    read_values,
)
from support.transcript_text import LINES, values_of


@settings(max_examples=150)
@given(line=LINES)
def test_a_line_is_json_when_a_parser_takes_it(line: bytes) -> None:
    """One value or several, with a byte order mark or without; both ways of looking agree with Python's parser."""
    expected = values_of(line)
    assert is_json(line) == (expected is not None)
    found = [values_of(line[value.span.start : value.span.end]) for value in read_values(line)]
    assert repr(found) == repr([[value] for value in expected or []])  # not a number equals nothing, but reads alike


@given(lines=st.lists(LINES.map(lambda line: line.replace(b"\n", b"")), min_size=1))
def test_a_block_is_taken_only_when_each_line_is_json(lines: list[bytes]) -> None:
    """A value over two lines does not pass."""
    if are_json(b"".join(line + b"\n" for line in lines)):
        assert all(map(values_of, lines))


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        (b'{"a":"\xff"}', True),
        (b'{"a":"\\ud800"}', True),
        (b'{"a":NaN,"b":-Infinity}', True),
        (b"-NaN", False),
        (b"1" * 5000, True),
        (b"[" * 100_000 + b"]" * 100_000, True),
        (b"[" * 100_000, False),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000 + b" {}", True),
        (b"{}{}", True),
        (b"{} x", False),
        (b"{},{}", False),
        (b'{"a":1,}', False),
        (b"[1,]", False),
        (b"[,1]", False),
        (b"{,}", False),
        (b"[1}", False),
        (b"[1:2]", False),
        (b'{"a"}', False),
        (b'{"a":}', False),
        (b"{1:2}", False),
        (b"]", False),
        (b"01", True),  # two values, as Python's parser reads them one after the other
        (b"[01]", False),
        (b"1.", False),
        (b'"\x1f"', False),
        (b'"\\q"', False),
        (b'"\\u12g4"', False),
        (b'"\\', False),
        (b'"', False),
        (b'"' + b"\\n" * 5000 + b'"', True),
        (b'"' + b"\\n" * 5000 + b'\\q"', False),
        (b"\xef\xbb\xbf{}", True),
        (b"\xef\xbb\xbf", False),
        (b"{}\xef\xbb\xbf", False),
        (b"\0{}", False),
        (b"{}\0", False),
        (b"\xc2\xa0{}", False),
        (b" \t\r\n", False),
        (b"", False),
    ],
)
def test_known_lines(line: bytes, taken: bool) -> None:  # noqa: FBT001
    """Depth, digits and length have no limit; the grammar has."""
    assert is_json(line) is is_json(bytearray(line)) is taken
    assert bool(read_values(bytearray(line))) is taken


def test_a_damaged_line_costs_no_memory() -> None:
    """A line of 4 MiB that is cut off is refused without being copied or decoded."""
    line = b'{"text":"' + b"word \\u001b \\n" * (1 << 18) + b'","list":[' + b"1," * (1 << 16)
    tracemalloc.start()
    try:
        assert not is_json(line)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 18


@given(text=st.text(st.characters(codec=None)))
def test_a_string_comes_back(text: str) -> None:
    """Any text is spelled in UTF-8 and read back, lone surrogates too."""
    raw = encode_string(text)
    raw.decode("utf-8")
    halves = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert decode_string(raw) == halves


@given(line=LINES)
def test_the_places_of_directories_are_those_of_the_line(line: bytes) -> None:
    """Each place is a member `cwd` and its value a string, and none is missing."""
    values = values_of(line)
    if values is None:
        return
    assert len(list(find_directories(line))) == sum(map(_count, _pairs(line)))


def _pairs(line: bytes) -> list[object]:
    decoder, text, found = json.JSONDecoder(object_pairs_hook=tuple), line.decode("utf-8", "surrogateescape"), []
    text = text.removeprefix("\ufeff").strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    return found


def _count(value: object) -> int:
    if isinstance(value, list):
        return sum(map(_count, value))
    if isinstance(value, tuple):
        return sum((name == "cwd" and isinstance(held, str)) + _count(held) for name, held in value)
    return 0
