"""The agent `copilot`: its command lines, what its output means, and the tokens of a session."""

from __future__ import annotations

import subprocess
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
)
from host_client.agents.usage import Usage
from support.agent_output import DATA, bound, check_any_line, line, odd_lines, read, recorded, turn

if TYPE_CHECKING:
    from pathlib import Path

ID = "aaaaaaaa-0000-4000-8000-000000000001"
BATCH = ["-C", "/work space", "--output-format", "json", "--allow-all", "--no-ask-user", "--no-auto-update"]
WORDS = (
    *(
        "type",
        "data",
        "content",
        "deltaContent",
        "messageId",
        "toolCallId",
        "toolName",
        "arguments",
        "success",
        "result",
    ),
    *("message", "sessionId", "exitCode", "parentToolCallId", "assistant.message", "assistant.message_delta", "error"),
    *("tool.execution_start", "tool.execution_complete", "session.error", "assistant.reasoning", "session.info"),
)


def test_a_new_conversation_gets_the_callers_id_and_the_prompt_by_standard_input() -> None:
    """No argument holds the prompt, and nothing is asked."""
    adapter = bound("copilot", model="m", arguments=["--add-dir", "/x"])
    command = adapter.request(turn("say", conversation_id=ID))
    assert command.executable == "copilot"
    assert command.stdin == "say"
    assert list(command.arguments) == [*BATCH, "--model", "m", "--session-id", ID, "--add-dir", "/x"]


def test_a_conversation_is_resumed_by_the_word_that_fails_without_it() -> None:
    """`--session-id` would begin another one without a word (1.0.102)."""
    command = bound("copilot").request(turn(resume="old", conversation_id=ID))
    assert list(command.arguments) == [*BATCH, "--resume=old"]


def test_it_is_said_that_it_cannot_fork() -> None:
    """1.0.102 has no command for that."""
    assert bound("copilot").forkable is False


def test_a_recorded_turn_is_told() -> None:
    """The text comes once, though it is printed in pieces and as a whole."""
    found = read(bound("copilot"), recorded("copilot", "1.0.102/simple"))
    said = "turn 1: I remember: hello alpha [assistant texts seen: 0, tool results seen: 0]"
    assert found == [TextEvent(said), ConversationEvent(ID), ResultEvent(said), FinishedEvent()]


def test_the_id_it_was_told_is_announced_with_the_first_line() -> None:
    """A turn that is ended from outside never prints it."""
    adapter = bound("copilot")
    adapter.request(turn(conversation_id=ID))
    found = read(adapter, recorded("copilot", "1.0.102/live-snapshot"))
    assert found[0] == ConversationEvent(ID)
    assert [event.name for event in found if isinstance(event, ToolEvent)] == ["bash"]
    assert not any(isinstance(event, FinishedEvent) for event in found)
    again = bound("copilot")
    again.request(turn(resume=ID))
    events = read(again, recorded("copilot", "1.0.102/simple"))
    assert [event for event in events if isinstance(event, ConversationEvent)] == [ConversationEvent(ID)]


def test_tools_and_sub_agents_are_told() -> None:
    """A sub-agent's tools are seen; its words are no part of the answer."""
    found = read(bound("copilot"), recorded("copilot", "1.0.102/tool"))
    tools = [(event.name, event.state) for event in found if isinstance(event, ToolEvent)]
    assert tools == [("task", "started"), ("bash", "started"), ("bash", "completed"), ("task", "completed")]
    text = "".join(event.text for event in found if isinstance(event, TextEvent))
    assert text.startswith("turn 7:")
    assert ResultEvent(text) in found


def test_pieces_of_one_message_are_joined_and_messages_are_set_apart() -> None:
    """What comes as a whole only is told as a whole."""
    found = read(
        bound("copilot"),
        [
            line(type="assistant.message_delta", data={"messageId": "1", "deltaContent": "a"}),
            line(type="assistant.message_delta", data={"messageId": "1", "deltaContent": "b"}),
            line(type="assistant.message", data={"messageId": "1", "content": "ab"}),
            line(type="assistant.message", data={"messageId": "2", "content": "c"}),
            line(type="result", sessionId=ID, exitCode=0),
        ],
    )
    assert [event.text for event in found if isinstance(event, TextEvent)] == ["a", "b", "\n\nc"]
    assert ResultEvent("c") in found


def test_a_failure_is_told_in_the_agents_words() -> None:
    """An error is the end only when the last line says so (1.0.102, HTTP 400)."""
    found = read(
        bound("copilot"),
        [
            line(type="session.error", data={"errorType": "query", "message": "400 told to fail"}),
            line(type="result", sessionId=ID, exitCode=1),
        ],
    )
    assert found == [NoticeEvent("400 told to fail"), ConversationEvent(ID), FailureEvent("400 told to fail")]
    assert read(bound("copilot"), [line(type="result", exitCode=2)]) == [FailureEvent("exit code 2")]


def test_failed_tools_and_reasoning_are_told() -> None:
    """A tool that failed says why."""
    end = {"toolCallId": "t", "success": False, "error": {"message": "denied"}}
    lines = [
        line(type="tool.execution_complete", data=end),
        line(type="assistant.reasoning", data={"reasoningId": "r", "content": "hm"}),
    ]
    assert read(bound("copilot"), lines) == [ToolEvent("", "t", "failed", output="denied"), ReasoningEvent("hm")]


@pytest.mark.parametrize(("recording", "requests"), [("simple", 1), ("multiturn", 4), ("tool", 16)])
@pytest.mark.parametrize("variable", ["HOME", "COPILOT_HOME"])
def test_the_session_tells_all_tokens(recording: str, requests: int, variable: str) -> None:
    """Those of all turns and sub-agents, whether the CLI's home is named or not."""
    folder = DATA / "copilot" / "1.0.102" / recording / "home"
    (session,) = folder.glob(".copilot/session-state/*/events.jsonl")
    command = bound("copilot").usage_command(session.parent.name)
    assert command is not None
    home = folder if variable == "HOME" else folder / ".copilot"
    done = subprocess.run(
        [command.executable, *command.arguments],
        env={"PATH": "/usr/bin:/bin", variable: str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert bound("copilot").usage_result(done.stdout) == Usage(
        input_tokens=105 * requests,
        output_tokens=10 * requests,
        cache_read_tokens=20 * requests,
        cache_write_tokens=0,
        reasoning_tokens=4 * requests,
    )


def test_a_session_killed_before_its_first_answer_has_used_nothing(tmp_path: Path) -> None:
    """The command tells one without a record from one that cannot be read: what follows is counted from there."""
    folder = tmp_path / ".copilot/session-state/1"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text('{"type":"session.start"}\n{"type":"user.message"}\n')
    command = bound("copilot").usage_command("1")
    assert command is not None
    done = subprocess.run(
        [command.executable, *command.arguments],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert bound("copilot").usage_result(done.stdout) == Usage(input_tokens=0, output_tokens=0)


def test_a_session_that_is_not_there_has_no_tokens(tmp_path: Path) -> None:
    """The command fails, and nothing is made up; an id is no piece of a command line."""
    command = bound("copilot").usage_command("$(touch made)/../x")
    assert command is not None
    done = subprocess.run(
        [command.executable, *command.arguments],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert done.returncode
    assert not list(tmp_path.iterdir())
    assert bound("copilot").usage_result("") is None


def test_a_counter_that_a_record_lacks_is_not_known() -> None:
    """The sum of the others is not called the whole; a torn line is passed over."""
    records = [
        line(type="session.usage_record", data={"usage": {"inputTokens": 5, "outputTokens": 1}}),
        line(type="session.usage_record", data={"usage": {"inputTokens": 5}}),
        '{"type":"session.usage_record","da',
    ]
    assert bound("copilot").usage_result("\n".join(records)) == Usage(input_tokens=10)


@pytest.mark.parametrize("recording", ["simple", "multiturn", "tool", "live-snapshot"])
def test_every_recorded_line_is_understood(recording: str) -> None:
    """No line is left raw."""
    assert read(bound("copilot"), recorded("copilot", f"1.0.102/{recording}"))


@given(odd_lines(WORDS))
def test_any_line_is_events_or_a_value_error(text: str) -> None:
    """Whatever stands in a line, nothing else comes of it."""
    adapter = bound("copilot")
    adapter.request(turn(conversation_id=ID))
    check_any_line(adapter, text)
