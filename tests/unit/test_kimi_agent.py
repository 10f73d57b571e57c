"""The agent `kimi`: its command lines, what its output means, its fork, and the tokens of a session."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from host_client.agents.adapter import Command, CommandResult
from host_client.agents.event import (
    ConversationEvent,
    FinishedEvent,
    NoticeEvent,
    ResultEvent,
    TextEvent,
    ToolEvent,
)
from host_client.agents.kimi_agent import MAX_TEXT_BYTES
from host_client.agents.usage import Usage
from host_client.errors import ConfigurationError, ProcessError
from support.agent_output import DATA, bound, check_any_line, line, odd_lines, read, recorded, turn

if TYPE_CHECKING:
    from pathlib import Path

ID = "session_711e1847-a7f0-4f15-befb-7fe77666400b"
WORDS = (
    *("type", "role", "content", "tool_calls", "id", "function", "name", "arguments", "tool_call_id", "session_id"),
    *("assistant", "tool", "meta", "system.version", "session.resume_hint", "turn.step.retrying", "error_message"),
)


def test_the_prompt_is_an_argument_and_a_conversation_is_resumed_by_its_id() -> None:
    """2.1.0 takes it in no other way; the prompt is the last word, so that it may begin with a dash."""
    adapter = bound("kimi", model="m", arguments=["--add-dir", "/x"])
    command = adapter.request(turn("-say", resume=ID))
    assert command.executable == "kimi"
    assert not command.stdin
    assert list(command.arguments) == [
        *("--output-format", "stream-json", "--model", "m", "--session", ID, "--add-dir", "/x", "--prompt", "-say"),
    ]


def test_a_prompt_that_no_argument_can_hold_is_refused() -> None:
    """The limit is the kernel's, in bytes, not in characters."""
    bound("kimi").request(turn("x" * MAX_TEXT_BYTES))
    for text in ("x" * (MAX_TEXT_BYTES + 1), "é" * (MAX_TEXT_BYTES // 2 + 1)):
        with pytest.raises(ConfigurationError) as refused:
            bound("kimi").request(turn(text))
        assert refused.value.reason == "invalid_argument"
        assert refused.value.facts["max_bytes"] == str(MAX_TEXT_BYTES)


def test_the_limit_is_that_of_the_kernel() -> None:
    """The longest prompt can be an argument, and one byte more cannot."""
    subprocess.run(["/bin/true", "x" * MAX_TEXT_BYTES], check=True)
    with pytest.raises(OSError, match="too long"):
        subprocess.run(["/bin/true", "x" * (MAX_TEXT_BYTES + 1)], check=True)


def test_a_recorded_turn_is_told() -> None:
    """Text, id, answer and end."""
    found = read(bound("kimi"), recorded("kimi", "2.1.0/simple"))
    said = "turn 1: I remember: hello alpha [assistant texts seen: 0, tool results seen: 0]"
    assert found == [TextEvent(said), ConversationEvent(ID), ResultEvent(said), FinishedEvent()]


def test_a_resumed_conversation_is_announced_at_once() -> None:
    """A turn that is ended from outside never prints the id."""
    adapter = bound("kimi")
    adapter.request(turn(resume=ID))
    assert read(adapter, recorded("kimi", "2.1.0/live-snapshot")) == [ConversationEvent(ID)]


def test_tools_are_told() -> None:
    """The end has the name of the call."""
    found = read(bound("kimi"), recorded("kimi", "2.1.0/subagent"))
    called, returned = (event for event in found if isinstance(event, ToolEvent))
    assert (called.name, called.state, returned.name, returned.state) == ("Agent", "started", "Agent", "completed")
    assert "SUBTASK" in called.input
    assert returned.output.startswith("agent_id: agent-0")


def test_what_is_tried_again_is_told() -> None:
    """It is for whoever watches; other remarks are passed over."""
    lines = [
        line(role="meta", type="turn.step.retrying", error_message="Connection error."),
        line(role="meta", type="goal.summary"),
    ]
    assert read(bound("kimi"), lines) == [NoticeEvent("the model is asked again: Connection error.")]


def test_a_fork_is_made_by_the_cli() -> None:
    """`kimi fork` copies a session and prints the copy's id (2.1.0)."""
    ran: list[Command] = []

    async def run(command: Command) -> CommandResult:
        ran.append(command)
        return CommandResult(0, f'Forked to {ID} ("Fork: session_old") in 378ms\n'.encode(), b"")

    assert asyncio.run(bound("kimi").fork("session_old", run)) == ID
    assert ran == [Command("kimi", ["fork", "session_old", "--yes"])]


@pytest.mark.parametrize("result", [CommandResult(1, b"", b'Session "x" was not found'), CommandResult(0, b"ok", b"")])
def test_a_fork_that_was_not_made_is_an_error(result: CommandResult) -> None:
    """Nothing is resumed in its place."""

    async def run(_: Command) -> CommandResult:
        return result

    with pytest.raises(ProcessError) as failed:
        asyncio.run(bound("kimi").fork("session_old", run))
    assert failed.value.reason == "failed"
    assert failed.value.facts["status"] == str(result.status)


@pytest.mark.parametrize(("recording", "requests"), [("simple", 1), ("multiturn", 4), ("subagent", 4)])
@pytest.mark.parametrize("variable", ["HOME", "KIMI_CODE_HOME"])
def test_the_session_tells_all_tokens(recording: str, requests: int, variable: str) -> None:
    """Those of all turns and agents, whether the CLI's home is named or not."""
    folder = DATA / "kimi" / "2.1.0" / recording / "home"
    (session,) = folder.glob(".kimi-code/sessions/wd_*/session_*")
    command = bound("kimi").usage_command(session.name)
    assert command is not None
    home = folder if variable == "HOME" else folder / ".kimi-code"
    done = subprocess.run(
        [command.executable, *command.arguments],
        env={"PATH": "/usr/bin:/bin", variable: str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert bound("kimi").usage_result(done.stdout) == Usage(
        input_tokens=105 * requests, output_tokens=10 * requests, cache_read_tokens=20 * requests, cache_write_tokens=0
    )


def test_a_session_killed_before_its_first_answer_used_nothing_that_is_known() -> None:
    """The turn that goes on with it is counted from there; what cannot be read at all is not known."""
    agent = bound("kimi")
    assert agent.usage_result('{"type":"metadata"}\n{"type":"turn.prompt"}\n{"ty') == Usage(
        input_tokens=0, output_tokens=0
    )
    assert agent.usage_result("") is None
    assert agent.usage_result("no session\n") is None


def test_a_session_killed_before_its_first_answer_is_counted_by_its_command(tmp_path: Path) -> None:
    """The command tells one without a record from one that cannot be read: what follows is counted from there."""
    folder = tmp_path / ".kimi-code/sessions/wd_x/session_1/agents/main"
    folder.mkdir(parents=True)
    (folder / "wire.jsonl").write_text('{"type":"metadata"}\n{"type":"turn.prompt"}\n')
    command = bound("kimi").usage_command("session_1")
    assert command is not None
    done = subprocess.run(
        [command.executable, *command.arguments],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert bound("kimi").usage_result(done.stdout) == Usage(input_tokens=0, output_tokens=0)


@pytest.mark.parametrize("recording", ["simple", "multiturn", "tool", "subagent", "live-snapshot"])
def test_every_recorded_line_is_understood(recording: str) -> None:
    """No line is left raw, and what was not interrupted ends well."""
    found = read(bound("kimi"), recorded("kimi", f"2.1.0/{recording}"))
    assert (FinishedEvent() in found) == (recording != "live-snapshot")


@given(odd_lines(WORDS))
def test_any_line_is_events_or_a_value_error(text: str) -> None:
    """Whatever stands in a line, nothing else comes of it."""
    check_any_line(bound("kimi"), text)
