"""The JSON scanner: strict, and independent of where its window ends."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.session import scanner
from host_client.session.scanner import JsonError, Scanner

if TYPE_CHECKING:
    from pathlib import Path

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def accepts(path: Path, text: bytes) -> bool:
    """Tell whether the scanner takes the text as one JSON value."""
    path.write_bytes(text)
    fd = os.open(path, os.O_RDONLY)
    try:
        read = Scanner(fd, len(text))
        read.skip()
        read.finish()
    except JsonError:
        return False
    finally:
        os.close(fd)
    return True


def is_json(text: bytes) -> bool:
    """Tell the same by Python's parser, made strict where it is not."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text.decode("utf-8"), object_pairs_hook=once, parse_constant=refuse)
    except ValueError:
        return False
    return True


@pytest.fixture(params=[(1, 16), (7, 16), (1 << 20, 64 << 10)], ids=["byte by byte", "small", "real"])
def _window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    window_bytes, token_bytes = request.param
    monkeypatch.setattr(scanner, "WINDOW_BYTES", window_bytes)
    monkeypatch.setattr(scanner, "MAX_TOKEN_BYTES", token_bytes)


@given(value=JSON_VALUES, indent=st.sampled_from([None, 0, 3]), is_ascii=st.booleans())
def test_every_json_value_is_taken(
    tmp_path_factory: pytest.TempPathFactory,
    value: Any,
    indent: Any,
    is_ascii: bool,  # noqa: FBT001 - drawn
) -> None:
    """Whatever Python writes as JSON, in any of its spellings, is taken."""
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    path = tmp_path_factory.getbasetemp() / "value.json"
    assert accepts(path, b" \n" + text + b"\t\r\n")


@given(value=JSON_VALUES, data=st.data())
def test_damaged_json_is_never_taken(tmp_path_factory: pytest.TempPathFactory, value: Any, data: st.DataObject) -> None:
    """Whatever the scanner takes after one byte was replaced, removed or added, is still JSON for a strict parser."""
    text = bytearray(json.dumps(value, ensure_ascii=False).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    new = data.draw(st.binary(min_size=0, max_size=2))
    text[at : at + 1] = new
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    assert accepts(path, bytes(text)) == is_json(bytes(text))


@pytest.mark.usefixtures("_window")
@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (b'{"a":[1,-0.5e+3,true,false,null,"x"],"b":{}}', True),
        (b'"\\u00e9\\ud83d\\ude00\\/\\n and a long string that passes through several windows"', True),
        (b'"unfinished', False),
        (b'"ends in an escape\\', False),
        (b'"half an escape\\u00', False),
        (b'"control \x01 character"', False),
        (b'"not UTF-8 \xff"', False),
        (b'{"a":1,"a":2}', False),
        (b'{"a":1,"\\u0061":2}', False),
        (b"{'a':1}", False),
        (b"[1,]", False),
        (b"[1 2]", False),
        (b"{}{}", False),
        (b"01", False),
        (b"1.", False),
        (b"+1", False),
        (b"NaN", False),
        (b"\xef\xbb\xbf{}", False),
        (b"", False),
        (b"[" * 64 + b"]" * 64, True),
        (b"[" * 65 + b"]" * 65, False),
    ],
)
def test_text_is_judged_alike_in_every_window(tmp_path: Path, text: bytes, taken: bool) -> None:  # noqa: FBT001
    """What is JSON and what is not does not depend on where the window ends; nesting ends at 64."""
    assert accepts(tmp_path / "text.json", text) is taken


@pytest.mark.usefixtures("_window")
def test_a_span_is_the_inside_of_a_string(tmp_path: Path) -> None:
    """A string's place is told without its content, with or without escapes, wherever the window ends."""
    text = b'["", "abcdefghijklmnopqrstuvwxyz", "ab\\/\\u0041cd", "x"]'
    path = tmp_path / "spans.json"
    path.write_bytes(text)
    fd = os.open(path, os.O_RDONLY)
    try:
        read = Scanner(fd, len(text))
        spans = [read.span() for _ in read.elements()]
        read.finish()
    finally:
        os.close(fd)
    assert [text[span.start : span.end] for span in spans] == [
        b"",
        b"abcdefghijklmnopqrstuvwxyz",
        b"ab\\/\\u0041cd",
        b"x",
    ]
    assert [span.escaped for span in spans] == [False, False, True, False]
    assert [span.tail for span in spans] == [b"", b"yz", b"", b"x"]


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    """A file that somebody truncates while it is read is an error with a place, not a signal."""
    path = tmp_path / "short.json"
    path.write_bytes(b'["abc"')
    fd = os.open(path, os.O_RDONLY)
    try:
        read = Scanner(fd, 100)
        with pytest.raises(JsonError, match="ends early"):
            read.skip()
    finally:
        os.close(fd)
