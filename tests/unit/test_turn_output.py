"""A turn as people and scripts see it: text apart from everything else, nothing that a terminal would obey."""

from __future__ import annotations

import json
import sys

import pytest

from host_client.agents.event import (
    AgentEvent,
    ConversationEvent,
    FailureEvent,
    FinishedEvent,
    NoticeEvent,
    RawEvent,
    ReasoningEvent,
    ResultEvent,
    TextEvent,
    ToolEvent,
    UsageEvent,
)
from host_client.agents.usage import Usage
from host_client.cli.output import Output
from host_client.cli.turn_output import TurnOutput, shown_text, usage_text

EVENTS: list[AgentEvent] = [
    ConversationEvent("c-1"),
    ReasoningEvent("let me\nlook"),
    TextEvent("I look. "),
    ToolEvent("Bash", "t1", input='{"command": "ls"}'),
    ToolEvent("Bash", "t1", "completed", output="a\nb"),
    ToolEvent("Bash", "t2", "failed", output="no"),
    NoticeEvent("the model is asked again"),
    RawEvent("garbage"),
    UsageEvent(Usage(input_tokens=5)),
    TextEvent("Done"),
    ResultEvent("Done"),
    FinishedEvent(),
    FailureEvent("told by the command itself"),
]


def shown(*events: AgentEvent, answer: str = "", as_json: bool = False) -> None:
    """Show a turn with these events and that answer."""
    turn = TurnOutput(Output(as_json))
    for event in events:
        turn.show(event)
    turn.finish(answer)


def test_text_goes_to_standard_output_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe standard output is what the agent says, and standard error what it does."""
    shown(*EVENTS, answer="Done")
    printed = capsys.readouterr()
    assert printed.out == "I look. Done\n"
    assert printed.err.splitlines() == [
        "conversation c-1",
        "thinks: let me",
        "look",
        'tool Bash: {"command": "ls"}',
        "tool Bash completed: a b",
        "tool Bash failed: no",
        "notice: the model is asked again",
        "printed: garbage",
    ]


def test_each_event_is_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    """With `--json` every event is told whole, by its kind, and nothing else is printed."""
    shown(*EVENTS, answer="Done", as_json=True)
    printed = capsys.readouterr()
    documents = [json.loads(line) for line in printed.out.splitlines()]
    assert [document["kind"] for document in documents] == [event.kind for event in EVENTS]
    assert documents[3] == {
        "kind": "tool",
        "name": "Bash",
        "id": "t1",
        "state": "started",
        "input": '{"command": "ls"}',
        "output": "",
    }
    assert documents[8]["tokens"]["input_tokens"] == 5
    assert printed.err == ""


@pytest.mark.parametrize(
    ("said", "answer", "expected"),
    [
        (["Hello"], "Hello", "Hello\n"),
        (["First. ", "Hello\n"], "Hello", "First. Hello\n"),
        ([], "Hello", "Hello\n"),
        (["Working"], "Hello", "Working\nHello\n"),
        (["x" * 100_000], "x" * 100_000, "x" * 100_000 + "\n"),
        (["Hello"], "", "Hello\n"),
        ([], "", ""),
    ],
)
def test_an_answer_is_told_once(
    capsys: pytest.CaptureFixture[str], said: list[str], answer: str, expected: str
) -> None:
    """The final answer is printed unless it is what the agent has just said."""
    shown(*(TextEvent(text) for text in said), answer=answer)
    assert capsys.readouterr().out == expected


def test_no_control_character_gets_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Sequences that move a cursor, set a title or hide text are shown as escapes, wherever an agent puts them."""
    evil = "\x1b]0;owned\x07\x1b[2J\r\x08\x9b1m\u202e"
    shown(
        TextEvent(evil),
        ToolEvent(evil, input=evil),
        ToolEvent("t", state="completed", output=evil),
        ReasoningEvent(evil),
        NoticeEvent(evil),
        RawEvent(evil),
        ConversationEvent(evil),
        answer=evil,
    )
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert "\\x1b]0;owned" in text
        assert all(character.isprintable() or character == "\n" for character in text)


def test_lines_and_tabs_stay() -> None:
    """What only lays text out is left as it is; a half of a surrogate pair can be printed."""
    assert shown_text("a\tb\r\nc\n") == "a\tb\nc\n"
    assert shown_text("😀 é \ud83d") == "😀 é \\ud83d"


def test_long_lines_of_tools_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """A tool that returns a file does not fill the screen."""
    shown(ToolEvent("Read", state="completed", output="word " * 100_000))
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < 300
    assert line.endswith("…")


def test_on_a_terminal_each_begins_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where text and tools are in one place, a tool does not begin within a line of text."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown(TextEvent("I look."), ToolEvent("Bash"), TextEvent("Done\n"), ToolEvent("Bash"))
    assert capsys.readouterr().out == "I look.\nDone\n"


def test_tokens_are_told_as_far_as_they_are_known() -> None:
    """Counters that are missing or nothing are left out; missing ones make it incomplete."""
    assert usage_text(Usage(input_tokens=5, output_tokens=7, cache_read_tokens=0)) == "tokens 5 in, 7 out"
    assert usage_text(Usage(complete=False)) == "tokens none (incomplete)"
