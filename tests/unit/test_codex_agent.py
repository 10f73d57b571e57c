"""The agent `codex`: its command lines, what its output means, and the tokens of a rollout's newest turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from host_client.agents.event import (
    ConversationEvent,
    FailureEvent,
    FinishedEvent,
    NoticeEvent,
    ReasoningEvent,
    ResultEvent,
    TextEvent,
    ToolEvent,
    UsageEvent,
)
from host_client.agents.usage import Usage
from support.agent_output import DATA, bound, check_any_line, line, odd_lines, read, recorded, recordings, turn

if TYPE_CHECKING:
    from host_client.agents.adapter import TurnInput

BATCH = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
WORDS = (
    *("type", "item", "id", "text", "command", "aggregated_output", "status", "exit_code", "tool", "prompt", "error"),
    *("message", "usage", "input_tokens", "cached_input_tokens", "thread_id", "item.started", "item.completed"),
    *("thread.started", "turn.completed", "turn.failed", "agent_message", "command_execution", "collab_tool_call"),
)


def rollout(recording: str, index: int = 0) -> str:
    """Return a recorded rollout."""
    return sorted((DATA / "codex" / recording).rglob("rollout-*.jsonl"))[index].read_bytes().decode()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (turn("say"), []),
        (turn("say", resume="old"), ["resume", "old"]),
        (turn("say", fork="old"), ["fork", "old"]),
    ],
    ids=["new", "resume", "fork"],
)
def test_the_prompt_goes_to_standard_input(asked: TurnInput, words: list[str]) -> None:
    """All options come before the word that resumes or forks, which takes them from there."""
    command = bound("codex", model="m", arguments=["-c", "a=1"]).request(asked)
    assert command.executable == "codex"
    assert command.stdin == "say"
    assert list(command.arguments) == [*BATCH, "--model", "m", "-c", "a=1", *words, "-"]


def test_a_recorded_turn_is_told() -> None:
    """Id, notice, tool, text, tokens, answer and end, from 0.171.0."""
    adapter = bound("codex")
    adapter.request(turn())
    found = read(adapter, recorded("codex", "0.171.0/tool"))
    said = "turn 1: I remember: please use-tool for me [assistant texts seen: 0, tool results seen: 1]"
    command = "/bin/bash -lc 'pwd && echo hi > note.txt && echo wrote note.txt'"
    assert isinstance(found[1], NoticeEvent)
    assert [found[0], *found[2:]] == [
        ConversationEvent("01a22be9-613c-7661-9f95-bd377fa86db8"),
        ToolEvent("command_execution", "item_1", input=command),
        ToolEvent("command_execution", "item_1", "completed", output="/home/dev/demo-app\nwrote note.txt\n"),
        TextEvent(said),
        UsageEvent(
            Usage(input_tokens=210, output_tokens=20, cache_read_tokens=40, cache_write_tokens=0, reasoning_tokens=8),
            cumulative=True,
        ),
        ResultEvent(said),
        FinishedEvent(),
    ]


@pytest.mark.parametrize("asked", [turn(resume="old"), turn(fork="old")], ids=["resume", "fork"])
def test_the_count_of_a_thread_is_not_taken_for_that_of_a_turn(asked: TurnInput) -> None:
    """A thread that goes on prints the sum of all its turns; of a fork, those of what it was forked from, too."""
    adapter = bound("codex")
    adapter.request(asked)
    found = read(adapter, recorded("codex", "0.171.0/multiturn"))
    assert not any(isinstance(event, UsageEvent) for event in found)
    assert found[-1] == FinishedEvent()


def test_the_rollout_tells_the_newest_turn() -> None:
    """Of three turns, the last; of a fork, its own; and a record that is torn does not hide those before."""
    last = Usage(input_tokens=105, output_tokens=10, cache_read_tokens=20, cache_write_tokens=0, reasoning_tokens=4)
    text = rollout("0.171.0/multiturn")
    assert bound("codex").transcript_usage(text) == last
    assert bound("codex").transcript_usage(text + '{"type":"token_usage_record","payl') == last
    assert bound("codex").transcript_usage(rollout("0.171.0/fork", 1)) == last
    until_second = text[: text.rindex('"turn_context"')].rpartition("\n")[0]
    second = bound("codex").transcript_usage(until_second)
    assert second is not None
    assert (second.input_tokens, second.output_tokens) == (210, 20)


def test_a_turn_without_an_answer_has_no_tokens_of_the_turn_before() -> None:
    """A model that refused leaves a rollout whose newest turn has no record."""
    text = rollout("0.171.0/simple")
    begun = next(one for one in text.split("\n") if '"turn_context"' in one)
    again = begun.replace('"turn_id":"', '"turn_id":"0')
    assert bound("codex").transcript_usage(text) is not None
    assert bound("codex").transcript_usage(f"{text}{again}\n") is None


def test_tokens_of_sub_agents_are_said_to_be_missing() -> None:
    """They stand in rollouts of their own."""
    used = bound("codex").transcript_usage(rollout("0.171.0/subagent"))
    assert used is not None
    assert not used.complete
    assert used.output_tokens == 30


def test_a_rollout_without_records_tells_nothing() -> None:
    """Those of 0.128.0 have none."""
    assert bound("codex").transcript_usage(rollout("0.128.0/multiturn")) is None


def test_tools_of_agents_have_their_own_names() -> None:
    """What a sub-agent was told and said is input and output of the tool."""
    found = read(bound("codex"), recorded("codex", "0.171.0/subagent"))
    tools = [(event.name, event.state) for event in found if isinstance(event, ToolEvent)]
    assert tools == [
        ("spawn_agent", "started"),
        ("spawn_agent", "completed"),
        ("wait", "started"),
        ("wait", "completed"),
    ]


def test_failures_and_what_is_tried_again_are_told_apart() -> None:
    """An `error` alone is not the end: 0.171.0 prints it before each new try, and then once more."""
    found = read(
        bound("codex"),
        [
            line(type="error", message="Reconnecting... 1/1"),
            line(type="turn.failed", error={"message": "unexpected status 401"}),
        ],
    )
    assert found == [NoticeEvent("Reconnecting... 1/1"), FailureEvent("unexpected status 401")]


def test_failed_tools_and_reasoning_are_told() -> None:
    """A command with another exit status than 0 has the status `failed`."""
    item = {"id": "i", "type": "command_execution", "command": "false", "aggregated_output": "", "status": "failed"}
    thought = {"id": "j", "type": "reasoning", "text": "hm"}
    found = read(
        bound("codex"),
        [
            line(type="item.started", item=item),
            line(type="item.completed", item=item),
            line(type="item.completed", item=thought),
            line(type="item.completed", item={"type": "todo_list"}),
        ],
    )
    assert found == [
        ToolEvent("command_execution", "i", input="false"),
        ToolEvent("command_execution", "i", "failed"),
        ReasoningEvent("hm"),
    ]


@pytest.mark.parametrize("recording", recordings("codex"))
def test_every_recorded_line_is_understood(recording: str) -> None:
    """No line of any version is left raw, and every turn ends well."""
    assert read(bound("codex"), recorded("codex", recording))[-1] == FinishedEvent()


@given(odd_lines(WORDS))
def test_any_line_is_events_or_a_value_error(text: str) -> None:
    """Whatever stands in a line, nothing else comes of it."""
    check_any_line(bound("codex"), text)


@given(odd_lines(("type", "payload", "turn_id", "turn_context", "token_usage_record", "turn_token_usage")))
def test_any_rollout_can_be_counted(text: str) -> None:
    """What stands in it is usage or nothing."""
    assert isinstance(bound("codex").transcript_usage(text), Usage | None)
