"""Rules of redaction: what they do to one text, and which are refused."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import ConfigurationError, SessionError
from host_client.session.redaction import FunctionRule, LiteralRule, PatternRule, Redaction

KEY = LiteralRule("key", "hunter2")
DIGITS = PatternRule("digits", re.compile(r"\d+"))


def redact(redaction: Redaction, text: str) -> tuple[str, dict[str, int]]:
    """Redact one value; return it and the hits."""
    counts: Counter[str] = Counter()
    return redaction.redact(text, counts), dict(counts)


def shout(text: str) -> str:
    """Answer with another text; a function that can be pickled."""
    return text.upper()


@pytest.mark.parametrize(
    ("rules", "text", "expected", "counts"),
    [
        ([KEY], "a hunter2 b hunter2", "a [redacted:key] b [redacted:key]", {"key": 2}),
        ([KEY], "hunter", "hunter", {}),
        ([LiteralRule("key", "hunter2", "***")], "hunter2", "***", {"key": 1}),
        ([LiteralRule("key", "hunter2", "")], "a hunter2", "a ", {"key": 1}),
        ([PatternRule("p", re.compile("(a)b"), r"\1")], "ab", r"\1", {"p": 1}),
        # Patterns see the text as it came, not what stands for a secret.
        ([KEY, PatternRule("p", re.compile("redacted"))], "hunter2", "[redacted:key]", {"key": 1}),
        # What overlaps goes together: no rest of the one is left by the other.
        ([LiteralRule("x", "abc"), LiteralRule("y", "cde")], "-abcde-", "-[redacted:x]-", {"x": 1, "y": 1}),
        ([LiteralRule("x", "abc"), LiteralRule("y", "abcdef")], "abcdef", "[redacted:y]", {"x": 1, "y": 1}),
        ([DIGITS, LiteralRule("x", "12a")], "0123a", "[redacted:digits]a", {"digits": 1}),
        ([DIGITS, LiteralRule("x", "3a")], "0123a", "[redacted:digits]", {"digits": 1, "x": 1}),
        # What becomes a secret by replacing goes too.
        ([LiteralRule("x", "ab", "")], "aabb", "", {"x": 2}),
        ([KEY, FunctionRule("f", lambda text: text + "hunter2")], "x", "x[redacted:key]", {"f": 1, "key": 1}),
        ([FunctionRule("f", shout), FunctionRule("g", lambda _: None)], "a", "A", {"f": 1}),
        # A position is no text.
        ([PatternRule("p", re.compile("(?=x)|y"))], "xy", "x[redacted:p]", {"p": 1}),
    ],
)
def test_a_text_is_redacted(rules: list[Any], text: str, expected: str, counts: dict[str, int]) -> None:
    """Hits are replaced and counted, whatever other rules find in the same place."""
    assert redact(Redaction(rules), text) == (expected, counts)


def test_overlapping_patterns_count_what_each_found() -> None:
    """A hit within that of another rule is counted, and replaced with it."""
    rules = [PatternRule("long", re.compile("a.*z")), PatternRule("short", re.compile("m"))]
    assert redact(Redaction(rules), "a m m z") == ("[redacted:long]", {"long": 1, "short": 2})


@given(st.lists(st.text("ab[]", min_size=1, max_size=3), min_size=1, max_size=3), st.text("ab[]", max_size=10))
def test_no_literal_is_left(secrets: list[str], text: str) -> None:
    """Also not one that a replacement makes with its neighbours, however often."""
    marks = ["[-", "-]", "-"]
    rules = [LiteralRule("N" * number, secret, marks[number - 1]) for number, secret in enumerate(secrets, 1)]
    try:
        redaction = Redaction(rules)
    except ConfigurationError:
        assert any(secret in mark for secret in secrets for mark in marks)
        return
    redacted, _ = redact(redaction, text)
    assert not [secret for secret in secrets if secret in redacted]


def test_a_secret_that_keeps_coming_back_takes_the_whole_text() -> None:
    """When replacing would go on for ever, or for long, nothing of the text is kept."""
    redaction = Redaction([LiteralRule("x", "ab", "")])
    assert redact(redaction, "kept " + "a" * 5 + "b" * 5)[0] == "kept "
    assert redact(redaction, "kept " + "a" * 50 + "b" * 50)[0] == ""


@pytest.mark.parametrize(
    "rules",
    [
        [LiteralRule("hunter2", "hunter2")],
        [LiteralRule("key", "")],
        [LiteralRule("key", "\ud800hunter2")],
        [LiteralRule("key", b"hunter2")],  # type: ignore[arg-type]
        [LiteralRule("hunter2 ", "x")],
        [LiteralRule("", "hunter2")],
        [LiteralRule(7, "hunter2")],  # type: ignore[arg-type]
        [KEY, KEY],
        [KEY, PatternRule("key", re.compile("x"))],
        [KEY, PatternRule("p", re.compile("x"), "a hunter2")],
        [KEY, LiteralRule("other", "x", "hunter\\u0032")],
        [LiteralRule("key", "hunter2", "\ud800")],
        [LiteralRule("key", "hunter2", 7)],  # type: ignore[arg-type]
        [LiteralRule("key", "redacted")],
        [PatternRule("p", re.compile(b"hunter2"))],  # type: ignore[arg-type]
        [PatternRule("p", "hunter2")],  # type: ignore[arg-type]
        [PatternRule("p", re.compile("(?:hunter2)?"))],
        [FunctionRule("f", "hunter2")],  # type: ignore[arg-type]
        ["hunter2"],
        [None],
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(rules: list[Any]) -> None:
    """`invalid_argument` when it is made; the message has no secret."""
    with pytest.raises(ConfigurationError) as caught:
        Redaction(rules)
    assert caught.value.reason == "invalid_argument"
    assert "hunter2" not in f"{caught.value}{caught.value!r}{caught.value.facts}"


def test_a_choice_that_is_none_is_refused() -> None:
    """`binary` is one of two words."""
    with pytest.raises(ConfigurationError, match="'refuse' nor 'pass'"):
        Redaction([], binary="ignore")  # type: ignore[arg-type]


def test_no_representation_shows_a_secret() -> None:
    """Neither that of a rule nor of all; a pattern may spell a secret, so it is not shown either."""
    redaction = Redaction([KEY, PatternRule("p", re.compile("hunter2x")), FunctionRule("hunter2-f".upper(), shout)])
    for shown in (redaction, *redaction.rules):
        assert "hunter2" not in f"{shown!r}{shown}"
        assert "key" in repr(redaction)


def test_rules_can_be_pickled() -> None:
    """What comes out redacts alike and is equal."""
    redaction = Redaction([KEY, DIGITS, FunctionRule("f", shout)], binary="pass")
    copy = pickle.loads(pickle.dumps(redaction))  # noqa: S301 - our own
    assert copy == redaction
    assert redact(copy, "a hunter2 5") == redact(redaction, "a hunter2 5")


@pytest.mark.parametrize("answer", [7, b"hunter2", ["hunter2"]])
def test_a_function_must_answer_with_text(answer: object) -> None:
    """Anything else is `invalid_argument`, naming rule and type only."""
    with pytest.raises(ConfigurationError, match="rule 'f' returned") as caught:
        redact(Redaction([FunctionRule("f", lambda _: answer)]), "x")  # type: ignore[arg-type,return-value]
    assert "hunter2" not in str(caught.value)


def test_a_function_that_fails_tells_no_secret() -> None:
    """Its error's text may be the value: neither message nor context has it."""

    def angry(text: str) -> str:
        raise ValueError(text)

    with pytest.raises(ConfigurationError, match="rule 'f' raised ValueError") as caught:
        redact(Redaction([FunctionRule("f", angry)]), "hunter2")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_path_is_redacted_without_functions() -> None:
    """Literals and patterns hide what they find of a path; a function, which would spoil it, is not asked."""
    rules = Redaction([KEY, DIGITS, FunctionRule("f", shout)])
    assert rules.redact_path("/home/hunter2/x7.jsonl") == "/home/[redacted:key]/x[redacted:digits].jsonl"


def test_names_are_refused_all_at_once() -> None:
    """Literals and patterns count, functions do not; names are shown redacted."""
    redaction = Redaction([KEY, DIGITS, FunctionRule("f", shout)])
    redaction.check_names(["a/b.json", "c"])
    with pytest.raises(SessionError) as caught:
        redaction.check_names(["a/hunter2", "b", "c-7/hunter2"])
    assert caught.value.reason == "redaction_unsupported"
    assert [str(offender) for offender in caught.value.offenders] == [
        "a/[redacted:key]: the name has a hit of digits, key",
        "c-[redacted:digits]/[redacted:key]: the name has a hit of digits, key",
    ]
