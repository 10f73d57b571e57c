"""Transcripts in every spelling of JSON, damaged or not, and a slow second opinion on their relocation."""

from __future__ import annotations

import json
from json.decoder import scanstring  # type: ignore[attr-defined]  # undocumented, and just what is needed
from typing import Any

from hypothesis import strategies as st

ORIGIN = "/w/é p"
DESTINATION = "/new/place"
BYTE_ORDER_MARK = "\ufeff"
SPACE = " \t\r"
SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\t": "\\t"}


def spelled(text: str) -> st.SearchStrategy[str]:
    """A JSON string of that text, each character raw where it may be, or as an escape."""
    choices = st.just([0] * len(text)) | st.lists(st.integers(0, 2), min_size=len(text), max_size=len(text))
    return choices.map(lambda chosen: '"' + "".join(map(_spelling, text, chosen)) + '"')


def _spelling(char: str, choice: int) -> str:
    unit = char.encode("utf-16-be", "surrogatepass")
    escape = "".join(f"\\u{unit[at : at + 2].hex()}" for at in range(0, len(unit), 2))
    raw = [char] if char >= " " and char not in '"\\' else []
    forms = [*raw, *([SHORT[char]] if char in SHORT else []), escape]
    return forms[min(choice, len(forms) - 1)]


NAMES = st.sampled_from(["cwd", "cwd", "payload", "x", 'a"cwd', "cwd:"])
TEXTS = st.sampled_from(
    [ORIGIN, ORIGIN, ORIGIN + "/sub", DESTINATION, "", f'"cwd":"{ORIGIN}"', "\\", "\u2028", "\ud800", "😀"]
)
SCALARS = st.sampled_from(["1", "-0", "1e2", "true", "null", "NaN", "-Infinity", "[]", "{}", "12345678901234567890"])
GAPS = st.text(SPACE, max_size=1)


@st.composite
def objects(draw: st.DrawFn, depth_count: int = 3) -> str:
    """A JSON object: names may stand in it twice, space anywhere."""
    members = draw(st.lists(st.tuples(NAMES, st.integers(0, 5)), max_size=4))
    spelling = []
    for name, kind in members:
        if kind < 3 or depth_count == 0:
            value = draw(TEXTS.flatmap(spelled))
        elif kind == 3:
            value = draw(SCALARS)
        else:
            value = draw(objects(depth_count - 1))
            value = f"[{value}]" if kind == 5 and draw(st.booleans()) else value
        spelling.append(f"{draw(GAPS)}{draw(spelled(name))}{draw(GAPS)}:{draw(GAPS)}{value}{draw(GAPS)}")
    return "{" + ",".join(spelling) + "}"


@st.composite
def damaged(draw: st.DrawFn, text: bytes) -> bytes:
    """The text with a few bytes replaced, removed or added."""
    at = draw(st.integers(0, len(text)))
    new = draw(st.sampled_from([b"", b"\xff", b"\x00", b"\\", b'"', b"{", b"}", b"\n", b"x", b"\xef\xbb\xbf"]))
    return text[:at] + new + text[at + draw(st.integers(0, 3)) :]


def encoded(text: str) -> bytes:
    """The bytes of a text; what no UTF-8 can hold is dropped."""
    return text.encode("utf-8", "ignore")


LINES = st.one_of(
    objects().map(encoded),
    objects().map(encoded),
    objects().map(encoded).flatmap(damaged),
    st.tuples(st.sampled_from(["", BYTE_ORDER_MARK]), objects(), GAPS, objects()).map("".join).map(encoded),
    st.sampled_from([b"", b" ", b"\0\0\0", b"garbage", b"1 2", b'"cwd"', b'{"cwd":"/w/\\u00e9 p"', b"\xff"]),
    TEXTS.flatmap(spelled).map(encoded),
)
TRANSCRIPTS = st.tuples(
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\n", b"\r\n"])).map(b"".join), max_size=6), LINES
).map(lambda parts: b"".join(parts[0]) + parts[1])


def values_of(line: bytes) -> list[Any] | None:
    """The values of a line, by Python's parser, or None when it is not JSON."""
    text = line.decode("utf-8", "surrogateescape").removeprefix(BYTE_ORDER_MARK).strip(SPACE + "\n")
    decoder, values = json.JSONDecoder(), []
    while text:
        try:
            value, end = decoder.raw_decode(text)
        except ValueError:
            return None
        values.append(value)
        text = text[end:].lstrip(SPACE + "\n")
    return values or None


def directory_of(line: bytes) -> str | None:
    """The working directory that a line names."""
    for value in values_of(line) or []:
        if isinstance(value, dict):
            payload = value.get("payload")
            for holder in (value, payload if isinstance(payload, dict) else {}):
                if isinstance(holder.get("cwd"), str):
                    return str(holder["cwd"])
    return None


def relocated_line(line: bytes, origin: str, destination: str) -> bytes:
    """The line with each `cwd` that equals the origin changed, found string by string."""
    if values_of(line) is None:
        return line
    text = line.decode("utf-8", "surrogateescape")
    out, done, at = "", 0, 0
    while (at := text.find('"', at)) >= 0:
        name, end = scanstring(text, at + 1, True)
        value = text[end:].lstrip(SPACE)
        at = end
        if name == "cwd" and value.startswith(":") and value[1:].lstrip(SPACE).startswith('"'):
            start = len(text) - len(value[1:].lstrip(SPACE))
            held, at = scanstring(text, start + 1, True)
            if held == origin:
                out += text[done:start] + json.dumps(destination, ensure_ascii=False)
                done = at
    return (out + text[done:]).encode("utf-8", "surrogateescape")


def relocated(transcript: bytes, destination: str, origin: str | None = None) -> bytes:
    """The whole transcript, relocated line by line."""
    lines = transcript.split(b"\n")
    if origin is None:
        origin = next((found for found in map(directory_of, lines) if found is not None), None)
    if origin is None or origin == destination:
        return transcript
    return b"\n".join(relocated_line(line, origin, destination) for line in lines)
