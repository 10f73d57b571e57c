"""The agent `claude`: its command lines, and what its output means."""

from __future__ import annotations

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
from support.agent_output import bound, check_any_line, line, odd_lines, read, recorded, recordings, turn

ID = "f1000000-0000-4000-8000-000000000001"
WORDS = (
    *("type", "subtype", "message", "content", "id", "name", "input", "text", "thinking", "tool_use_id", "is_error"),
    *("error", "errors", "result", "usage", "modelUsage", "model_usage_since_last_result", "session_id", "inputTokens"),
    *("assistant", "user", "system", "result", "init", "tool_use", "tool_result", "parent_tool_use_id", "api_retry"),
)


def test_a_new_conversation_gets_the_callers_id_and_the_prompt_by_standard_input() -> None:
    """No argument holds the prompt; nothing is asked, of root neither; the user's arguments and model are there."""
    command = bound("claude", model="opus", arguments=["--add-dir", "/x"]).request(turn("say", conversation_id=ID))
    assert command.executable == "claude"
    assert command.stdin == "say"
    assert list(command.arguments) == [
        *("--print", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"),
        *("--model", "opus", "--session-id", ID, "--add-dir", "/x"),
    ]
    assert command.variables["IS_SANDBOX"] == "1"


def test_a_conversation_is_resumed_under_its_own_id() -> None:
    """A resumed one keeps its id, whatever id a new one would get."""
    command = bound("claude").request(turn(resume="old", conversation_id=ID))
    assert list(command.arguments[-2:]) == ["--resume", "old"]


def test_a_fork_gets_the_callers_id() -> None:
    """The id of a fork is known before it runs."""
    command = bound("claude").request(turn(fork="old", conversation_id=ID))
    assert list(command.arguments[-5:]) == ["--resume", "old", "--fork-session", "--session-id", ID]


def test_a_recorded_turn_is_told() -> None:
    """Id, tool with its result, text, answer, tokens and end, from 2.1.332."""
    found = read(bound("claude"), recorded("claude", "2.1.332/multiturn"))
    assert found[0] == ConversationEvent("f1000000-0000-4000-8000-000000000004")
    text = "".join(event.text for event in found if isinstance(event, TextEvent))
    assert text.startswith("turn 3: I remember: multi one")
    assert "\u2028" in text
    used = Usage(input_tokens=100, output_tokens=10, cache_read_tokens=20, cache_write_tokens=5, reasoning_tokens=0)
    assert found[-3:] == [UsageEvent(used), ResultEvent(text), FinishedEvent()]


def test_tools_are_told_with_their_ends() -> None:
    """The end has the name of the call, and says whether it failed."""
    found = read(bound("claude"), recorded("claude", "1.0.128/tool"))
    called, returned = (event for event in found if isinstance(event, ToolEvent))
    assert (called.name, called.state, returned.name, returned.state) == ("Bash", "started", "Bash", "completed")
    assert "pwd && echo hi" in called.input
    assert returned.output == "/home/dev/demo-app\nwrote note.txt"
    assert called.id == returned.id
    failed = line(type="user", message={"content": [{"type": "tool_result", "tool_use_id": "x", "is_error": True}]})
    assert read(bound("claude"), [failed]) == [ToolEvent("", "x", "failed")]


def test_messages_are_set_apart_and_the_answer_is_the_last() -> None:
    """What was said before a tool does not run into what is said after it."""
    found = read(bound("claude"), recorded("claude", "2.1.197/tool"))
    pieces = [event.text for event in found if isinstance(event, TextEvent)]
    assert pieces[0] == "Calling Bash."
    assert pieces[1].startswith("\n\nturn 1")
    assert [event.text for event in found if isinstance(event, ResultEvent)] == [pieces[1][2:]]


def test_a_second_answer_of_a_background_task_wins_and_its_tokens_are_counted_once() -> None:
    """2.1.332 ends twice then: what its models used stands in the first end, and the second adds nothing."""
    found = read(bound("claude"), recorded("claude", "2.1.332/subagent"))
    results = [event.text for event in found if isinstance(event, ResultEvent)]
    assert len(results) == 2
    assert "assistant texts seen: 2" in results[-1]
    used = [event for event in found if isinstance(event, UsageEvent)]
    assert [event.tokens.input_tokens for event in used] == [500, 0]
    assert not any(event.cumulative for event in used)


def test_what_a_sub_agent_says_is_no_part_of_the_answer() -> None:
    """Its tools are told, its words are not."""
    found = read(bound("claude"), recorded("claude", "2.1.332/subagent"))
    assert not any("SUBTASK" in event.text for event in found if isinstance(event, TextEvent))
    assert [event.name for event in found if isinstance(event, ToolEvent) and event.state == "started"] == [
        "Agent",
        "Bash",
    ]


def test_older_versions_count_by_process() -> None:
    """2.1.197 and 1.0.128 tell all models' tokens of their process, which is one turn; so it is a total."""
    for recording, tokens in (("2.1.197/multiturn", 100), ("1.0.128/tool", 400)):
        (used,) = (e for e in read(bound("claude"), recorded("claude", recording)) if isinstance(e, UsageEvent))
        assert used.cumulative
        assert used.tokens.input_tokens == tokens


def test_without_a_word_of_models_the_own_tokens_count() -> None:
    """A version that tells nothing of models is believed in its `usage`; what it lacks is not known."""
    ended = line(type="result", usage={"input_tokens": 7, "cache_read_input_tokens": -1})
    used = read(bound("claude"), [ended])[0]
    assert used == UsageEvent(Usage(input_tokens=7))


def test_a_failure_is_told_in_the_agents_words() -> None:
    """An error of the model is a failure, and the text that stands for an answer is none (2.1.332, HTTP 400)."""
    said = {"content": [{"type": "text", "text": "API Error: 400"}]}
    found = read(
        bound("claude"),
        [
            line(type="assistant", message=said, error="unknown"),
            line(type="result", subtype="success", is_error=True, result="API Error: 400"),
        ],
    )
    assert found[0] == NoticeEvent("API Error: 400")
    assert found[-1] == FailureEvent("API Error: 400")
    assert not any(isinstance(event, TextEvent | FinishedEvent) for event in found)


def test_a_conversation_that_is_not_there_is_a_failure_and_announces_none() -> None:
    """2.1.332 repeats the id that it was asked for in its only line."""
    ended = line(type="result", is_error=True, session_id=ID, errors=["No conversation found"], usage={})
    found = read(bound("claude"), [ended])
    assert found[-1] == FailureEvent('["No conversation found"]')
    assert not any(isinstance(event, ConversationEvent) for event in found)


def test_thinking_and_retries_are_told() -> None:
    """They are for whoever watches."""
    found = read(
        bound("claude"),
        [
            line(type="assistant", message={"content": [{"type": "thinking", "thinking": "hm"}]}),
            line(type="system", subtype="api_retry", error="authentication_failed", error_status=401),
            line(type="system", subtype="compact_boundary"),
            line(type="stream_event", event={"delta": {"text": "twice"}}),
        ],
    )
    assert found == [
        ReasoningEvent("hm"),
        NoticeEvent("the model is asked again: authentication_failed"),
        NoticeEvent("the conversation was compacted"),
    ]


@pytest.mark.parametrize("recording", recordings("claude"))
def test_every_recorded_line_is_understood(recording: str) -> None:
    """No line of any version is left raw, and every turn ends well."""
    assert FinishedEvent() in read(bound("claude"), recorded("claude", recording))


@given(odd_lines(WORDS))
def test_any_line_is_events_or_a_value_error(text: str) -> None:
    """Whatever stands in a line, nothing else comes of it."""
    check_any_line(bound("claude"), text)


def test_a_line_of_endless_depth_is_refused() -> None:
    """It is no line that anybody understands, and no crash."""
    with pytest.raises(ValueError, match="deep"):
        bound("claude").events("[" * 100_000)
