"""The stream redactor: no secret survives, nothing else changes, wherever the input is cut."""

from __future__ import annotations

import json
import random
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import LimitError
from host_client.session import line_block
from host_client.session.redaction import FunctionRule, LiteralRule, PatternRule, Redaction
from host_client.session.redactor import DocumentRedactor, Redactor, redactor_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from host_client.session.redaction import Rule

MARK = "#"
CHARS = 'sS"\\/\n\té😀u0ab '
"""What secrets and values are made of: every kind of escape, and what an escape is made of."""


def hide(*secrets: str) -> Redaction:
    """Return a redaction of literals that leave a mark."""
    return Redaction([LiteralRule("N" * number, secret, MARK) for number, secret in enumerate(secrets, 1)])


def redacted(redaction: Redaction, *pieces: bytes) -> bytes:
    """Redact one JSONL file that comes in pieces."""
    redactor = Redactor(redaction)
    return b"".join([*(part for piece in pieces for part in redactor.feed(piece)), *redactor.finish()])


def spelled(text: str, seed: int) -> str:
    """Return a JSON string of the text, each character in one of its legal spellings."""
    choose = random.Random(seed)  # noqa: S311 - any spelling
    parts: list[str] = []
    for char in text:
        options = [json.dumps(char, ensure_ascii=False)[1:-1]]
        if char == "/":
            options.append("\\/")
        pairs = char.encode("utf-16-be", "surrogatepass")
        options += [
            "".join("\\u" + digits % tuple(pairs[at : at + 2]) for at in range(0, len(pairs), 2))
            for digits in ("%02x%02x", "%02X%02X")
        ]
        parts.append(choose.choice(options))
    return '"' + "".join(parts) + '"'


def strings(value: Any) -> Iterator[str]:
    """Yield every string of a value, names of members included, and those of JSON within them."""
    if isinstance(value, str):
        yield value
        try:
            inner = json.loads(value)
        except ValueError:
            return
        if not isinstance(inner, str) or inner != value:
            yield from strings(inner)
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from strings(name)
            yield from strings(member)
    elif isinstance(value, list):
        for element in value:
            yield from strings(element)


def values(line: str) -> list[Any]:
    """Return the JSON values of a line, one after the other."""
    found = []
    while line := line.strip():
        value, end = json.JSONDecoder().raw_decode(line)
        found.append(value)
        line = line[end:]
    return found


secrets = st.text(CHARS, min_size=1, max_size=5)
texts = st.text(CHARS, max_size=12)


@st.composite
def lines(draw: st.DrawFn, secret: str) -> bytes:
    """Make a line: JSON with the secret anywhere and spelled in any way, JSON in JSON, or no JSON at all."""
    value = draw(texts) + draw(st.sampled_from([secret, ""])) + draw(texts)
    seed = draw(st.integers(0, 1 << 16))
    depth = draw(st.integers(0, 2))
    if depth:
        value = '{"k": ' + spelled(value, seed) + "}"
    if depth > 1:
        value = json.dumps([value], ensure_ascii=draw(st.booleans())).replace("/", draw(st.sampled_from(["/", "\\/"])))
    string = spelled(value, seed + 1)
    line = draw(
        st.sampled_from(
            [
                f'{{"a":[1, {string} ]}}',
                f"{{{string} : true}}",
                f'{{"a":{string}}}{{"b":{string}}}',
                f'{{"a":{string}',
                string[:-1],
                value.replace("\n", " "),
                "\ufeff" + string,
                "",
            ]
        )
    )
    return line.encode() + draw(st.sampled_from([b"", b"", b"\xff", b"\0", b"\r"])) + b"\n"


@given(st.data(), st.lists(secrets, min_size=1, max_size=3))
def test_no_secret_survives_and_no_cut_matters(data: st.DataObject, hidden: list[str]) -> None:
    """Neither a string of a JSON line nor the text of any other line holds a secret; any split gives the same."""
    content = b"".join(data.draw(st.lists(lines(hidden[0]), max_size=4)))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=5)))
    redaction = hide(*hidden)
    output = redacted(redaction, content)
    pieces = [content[start:end] for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    assert redacted(redaction, *pieces) == output
    assert output.count(b"\n") == content.count(b"\n")
    for line in output.split(b"\n"):
        found = [line.decode("utf-8", "replace")]
        for end in ("", "}"):  # a line that lacks but its last brace is read as JSON
            with suppress(ValueError):
                found = list(strings(values(line.decode("utf-8-sig") + end)))
                break
        assert not [text for text in found for secret in hidden if secret in text]


@given(st.lists(st.tuples(texts, st.booleans(), st.integers(0, 99)), max_size=6), st.sampled_from([" ", "", "\t"]))
def test_only_tokens_with_a_hit_change(values: list[tuple[str, bool, int]], gap: str) -> None:
    """Between and beside them every byte stays: spaces, escapes, number forms, the order and repetition of names."""
    before, after = [], []
    for text, hit, seed in values:
        kept = text.replace("\\", "")
        token = spelled(kept + ("SECRET" if hit else "") + kept, seed)
        before.append(f'"\\u0061":{gap}{token}{gap}, "n": 1e2, "n" :-0.50')
        shown = json.dumps(kept + MARK + kept, ensure_ascii=token.isascii()) if hit else token
        after.append(f'"\\u0061":{gap}{shown}{gap}, "n": 1e2, "n" :-0.50')
    assert redacted(hide("SECRET"), f"{{{','.join(before)}}}\r\n".encode()) == f"{{{','.join(after)}}}\r\n".encode()


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_bytes_without_a_hit_stay(content: list[bytes]) -> None:
    """Any bytes, with rules of every kind that find nothing."""
    rules: list[Rule] = [
        LiteralRule("a", "a long secret"),
        PatternRule("b", re.compile("a long pattern")),
        FunctionRule("c", lambda _: None),
    ]
    for chosen in (rules, rules[:1], []):
        assert redacted(Redaction(chosen), *content) == b"".join(content)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"a": 12345, "b": 1.5}', b'{"a": "#", "b": 1.5}'),
        (b"[9123450, -12345e1]", b'["9#0", "-#e1"]'),
        (b"n 12345", b"n #"),
        (b"012345", b"0#"),
    ],
)
def test_a_number_with_a_hit_becomes_a_string(line: bytes, expected: bytes) -> None:
    """The line stays JSON; what is no number of JSON is text."""
    assert redacted(hide("12345"), line) == expected


def test_patterns_see_values_and_functions_see_strings() -> None:
    """Anchors hold at the ends of a value; a function is asked for names and values, not for numbers."""
    asked: list[str] = []
    rules: list[Rule] = [PatternRule("p", re.compile(r"^tok-\d+$|^77$")), FunctionRule("f", asked.append)]
    line = b'{"k":"tok-1","l":"tok-1 ","m":77,"n":"\\u0074ok-2"}\n'
    redactor = Redactor(Redaction(rules))
    output = b"".join(redactor.feed(line * 2))
    assert output == b'{"k":"[redacted:p]","l":"tok-1 ","m":"[redacted:p]","n":"[redacted:p]"}\n' * 2
    assert redactor.counts == {"p": 6, "f": 0}
    assert set(asked) == {"k", "l", "m", "n", "[redacted:p]", "tok-1 "}
    assert redacted(Redaction(rules), b"tok-1\n tok-1\n") == b"[redacted:p]\n tok-1\n"


def test_hits_are_counted_once_for_each() -> None:
    """Names of all rules are there from the beginning; a line that turned out to be no JSON counts no hit twice."""
    redactor = Redactor(hide("one", "two"))
    assert redactor.counts == {"N": 0, "NN": 0}
    list(redactor.feed(b'{"one":"two two"}\n{"one":"one" no json\n'))
    assert redactor.counts == {"N": 3, "NN": 2}


def test_a_document_is_read_over_its_lines() -> None:
    """JSON value by value, other text as a whole, so a secret of several lines is found; layout stays."""

    def whole(name: str, *pieces: bytes) -> bytes:
        redactor = redactor_for(name, hide("a\nb"))
        return b"".join([*(part for piece in pieces for part in redactor.feed(piece)), *redactor.finish()])

    assert whole("x.json", b'{\n  "k":', b' "a\\nb"\n}\n') == b'{\n  "k": "#"\n}\n'
    assert whole("x.json", b"{ a\n", b"b") == b"{ #"
    assert whole("x.md", b"a", b"\nb\n") == b"#\n"
    assert whole("x.jsonl", b'"a\\nb"\na\nb\n') == b'"#"\na\nb\n'
    assert whole("x.md") == b""


@pytest.mark.parametrize("content", [b"\xff", b"SECRET\0", b"\xff\xfeS\0"])
def test_what_is_not_text_is_told_and_stays(content: bytes) -> None:
    """Bytes that are not UTF-8, or a NUL, as in UTF-16 and in databases."""
    redactor = DocumentRedactor(hide("SECRET"), is_json=False)
    assert b"".join([*redactor.feed(content), *redactor.finish()]) == content
    assert redactor.is_binary


@pytest.mark.parametrize("deep", [b"[" * 100_000 + b'"SECRET"', b'{"a":"' + b'\\"\\\\' * 200_000 + b'SECRET"}'])
@pytest.mark.parametrize("rules", [hide("SECRET"), Redaction([PatternRule("p", re.compile("SECRET"), MARK)])])
def test_depth_and_escapes_cost_no_stack(deep: bytes, rules: Redaction) -> None:
    """Values nested deeper than any parser goes, and strings of nothing but escapes, are redacted."""
    assert redacted(rules, deep) == deep.replace(b"SECRET", MARK.encode())


@pytest.mark.parametrize("secret", ["\\", "\\\\", '"', '"\\', "\\a", 'a\\"b', "/\\/", "\\u"])
@pytest.mark.parametrize("filler", ["\\", '\\"', "\\u005c", "a\\", "/", '"'])
def test_no_content_makes_the_search_slow(secret: str, filler: str) -> None:
    """A long run of what a secret is made of is read a few times, not once for each of its characters."""
    line = (filler * (200_000 // len(filler))).encode() + b" torn"
    assert secret.encode() not in redacted(hide(secret), line)


@pytest.mark.parametrize("path", ["a.jsonl", "a.json", "a.txt"])
def test_what_is_too_large_to_be_looked_at_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a line nor a file that never ends takes all memory."""
    monkeypatch.setattr(line_block, "MAX_LINE_BYTES", 1000)
    redactor = redactor_for(path, hide("secret"))
    list(redactor.feed(b"x" * 1000))
    with pytest.raises(LimitError) as caught:
        list(redactor.feed(b"x"))
    assert caught.value.reason == "max_bytes"
