"""What events add up to: text, conversation, failure, and events that are kept within a limit."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, cast

import pytest

from host_client.agents.event import (
    ConversationEvent,
    FailureEvent,
    FinishedEvent,
    RawEvent,
    ReasoningEvent,
    ResultEvent,
    TextEvent,
    ToolEvent,
    UsageEvent,
)
from host_client.agents.usage import Usage
from host_client.errors import ProcessError
from host_client.sandbox.process_exit import Exit
from host_client.turns.ending import failure_of
from host_client.turns.reading import MAX_KEPT_BYTES, Reading
from support.scripted_agent import ScriptedAdapter

if TYPE_CHECKING:
    from host_client.agents.event import AgentEvent
    from host_client.sandbox.process_exit import Cause


def read(*events: AgentEvent, resumed_id: str = "", is_fork: bool = False) -> Reading:
    """Return the reading of events."""
    reading = Reading(ScriptedAdapter(), resumed_id, is_fork=is_fork)
    for event in events:
        reading.take(event, 10)
    return reading


def test_pieces_are_joined_and_a_result_wins() -> None:
    """The text is that of all pieces, or the agent's own final answer."""
    assert read(TextEvent("a"), ToolEvent("t"), TextEvent("b")).text == "ab"
    assert read(TextEvent("a"), ResultEvent("whole"), TextEvent("b")).text == "whole"
    assert read(TextEvent("a"), ResultEvent("")).text == ""


@pytest.mark.parametrize(
    "line",
    [
        "{not json",
        "[1]",
        "null",
        "\x00",
        '{"usage": {"no": 1}}',
        '{"usage": {"input_tokens": "5"}}',
        '{"usage": {"input_tokens": -1}}',
        '{"usage": {"input_tokens": true}}',
        '{"session": 5}',
        '{"text": null}',
        '{"text": "x", "failure": []}',
    ],
)
def test_a_line_that_the_adapter_cannot_read_is_one_raw_event(line: str) -> None:
    """Nothing that an agent prints makes a turn crash."""
    assert read().line(line) == (RawEvent(line),)


@pytest.mark.parametrize(
    "told",
    [
        None,
        [None],
        "text",
        [{"text": "x"}],
        [TextEvent("good"), "bad"],
        [ToolEvent(cast("str", None))],
        [ReasoningEvent(cast("str", 5))],
        [UsageEvent(Usage(), cumulative=cast("bool", "no"))],
        itertools.repeat(TextEvent("on")),
    ],
    ids=["nothing", "none", "text", "mapping", "mixed", "no name", "a number", "no flag", "no end"],
)
def test_what_is_no_sequence_of_events_is_one_raw_event(told: Any) -> None:
    """An adapter is somebody's own: whatever it returns, those who watch get events, whose values have their types."""

    class Careless(ScriptedAdapter):
        def events(self, line: str) -> Any:  # noqa: ARG002  whatever the line is
            return told

    assert Reading(Careless()).line("x") == (RawEvent("x"),)


def test_lines_without_meaning_are_no_events() -> None:
    """Neither empty lines nor those that the adapter has nothing to tell of."""
    assert not read().line("")
    assert not read().line('{"progress": 1}')


def test_the_announced_id_is_the_conversation() -> None:
    """Of a new turn and of a fork; a resumed one has its id from the beginning."""
    assert read().conversation_id == ""
    assert read(ConversationEvent("a")).conversation_id == "a"
    assert read(resumed_id="a").conversation_id == "a"
    assert read(resumed_id="a", is_fork=True).conversation_id == ""
    assert read(ConversationEvent("b"), resumed_id="a", is_fork=True).conversation_id == "b"
    assert read(ConversationEvent("a"), resumed_id="a").conversation_id == "a"


@pytest.mark.parametrize(("announced", "is_fork"), [("b", False), ("a", True)])
def test_another_conversation_than_asked_for_is_a_failure(announced: str, *, is_fork: bool) -> None:
    """An agent that begins anew instead of resuming, or goes on instead of forking, is found out at once."""
    reading = Reading(ScriptedAdapter(), "a", is_fork=is_fork)
    with pytest.raises(ProcessError) as caught:
        reading.take(ConversationEvent(announced), 1)
    assert caught.value.reason == "reported_failure"
    assert caught.value.facts == {"resumed": "a"}
    assert reading.conversation_id == announced


def test_an_id_that_is_none_is_noticed() -> None:
    """No path is ever made of an id that breaks the rule."""
    reading = read(ConversationEvent("../x\n"))
    assert reading.conversation_id == ""
    assert [notice.reason for notice in reading.notices] == ["unusable_id"]


def test_kept_events_are_the_last_ones() -> None:
    """What is kept is bounded by the size of the output; all are counted."""
    reading = read()
    for number in range(5):
        reading.take(TextEvent(str(number)), MAX_KEPT_BYTES // 3)
    assert [event for event in reading.events if isinstance(event, TextEvent)] == [TextEvent("3"), TextEvent("4")]
    assert reading.events_count == 5
    reading.take(TextEvent("huge"), 2 * MAX_KEPT_BYTES)
    assert reading.events == (TextEvent("huge"),)


def ended(status: int = 0, signal: int = 0, cause: Cause = "itself") -> Exit:
    """Return an end."""
    return Exit(status, signal, cause, 1.0, 0, 0)


@pytest.mark.parametrize(
    ("end", "events", "expected"),
    [
        (ended(), [], None),
        (ended(), [FinishedEvent()], None),
        (ended(3), [FinishedEvent()], "process/failed"),
        (ended(signal=9), [], "process/failed"),
        (ended(3), [FailureEvent("out of tokens")], "process/reported_failure"),
        (ended(), [FailureEvent(""), FinishedEvent()], "process/reported_failure"),
        (ended(signal=15, cause="deadline"), [FailureEvent("interrupted")], "timeout/deadline"),
        (ended(cause="deadline"), [FinishedEvent()], "timeout/deadline"),
        (ended(signal=15, cause="idle"), [], "timeout/idle"),
        (ended(signal=15, cause="output"), [], "limit/max_output_bytes"),
        (ended(signal=15, cause="shutdown"), [], "unavailable/unreachable"),
        (ended(signal=15, cause="signal"), [], "process/failed"),
    ],
)
def test_a_turn_has_the_failure_that_says_most(end: Exit, events: list[AgentEvent], expected: str | None) -> None:
    """What ended the process from outside, then the agent's own word, then its exit status."""
    error = failure_of(ScriptedAdapter(), end, read(*events))
    assert (f"{error.code}/{error.reason}" if error else None) == expected


def test_the_failure_tells_what_the_agent_said() -> None:
    """In one printable line of a bounded length, with status and signal as facts."""
    said = "first\n\x1b[31m" + "x" * 1000
    error = failure_of(ScriptedAdapter(), ended(3), read(FailureEvent(said)))
    assert error is not None
    assert error.message.isprintable()
    assert "first" in error.message
    assert len(error.message) < 600
    assert error.facts == {"status": "3", "signal": "0"}


@pytest.mark.parametrize(("required", "expected"), [(True, "unfinished"), (False, None)])
def test_a_missing_final_event_fails_where_it_is_required(*, required: bool, expected: str | None) -> None:
    """Exit status 0 is not enough for an agent that says when it is finished."""
    adapter = type("Tested", (ScriptedAdapter,), {"requires_finished_event": required})()
    error = failure_of(adapter, ended(), read(ResultEvent("answer")))
    assert (error.reason if error else None) == expected
    assert failure_of(adapter, ended(), read(FinishedEvent())) is None
