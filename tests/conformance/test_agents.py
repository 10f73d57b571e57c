"""What the adapter of every agent keeps to: one suite over the built-in ones and those of the tests."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_client.agents.adapter import AgentAdapter, Continuation, TurnInput
from host_client.agents.event import RawEvent
from host_client.agents.registry import agent_names, builtin_agent
from host_client.turns.reading import Reading
from sandbox_api.names import VARIABLE
from support.scripted_agent import ChoosingAdapter, CountingAdapter, ForkingAdapter, ScriptedAdapter, agent_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from host_client.agents.adapter import Command
    from host_client.agents.harness import Agent

MAKERS: dict[str, Callable[[], Agent]] = {
    **{name: (lambda name=name: builtin_agent(name)) for name in agent_names()},
    **{
        adapter.__name__: (lambda adapter=adapter: agent_of(adapter))
        for adapter in (ScriptedAdapter, ChoosingAdapter, ForkingAdapter, CountingAdapter)
    },
}
TEXT = "say what you know,\nwith 'quotes' and $variables"
ID, CHOSEN = "11111111-2222-3333-4444-555555555555", "99999999-8888-7777-6666-555555555555"

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(params=MAKERS)
def agent(request: pytest.FixtureRequest) -> Agent:
    """One agent."""
    return MAKERS[request.param]()


def asked(agent: Agent, continuation: Continuation | None = None) -> Command:
    """Return the command of a turn."""
    turn = TurnInput(
        text=TEXT,
        continuation=continuation,
        conversation_id=CHOSEN if continuation is None or continuation.fork else "",
        workspace=PurePosixPath("/workspace"),
        home=PurePosixPath("/home/agent"),
    )
    return agent.bind().request(turn)


def test_a_command_can_be_run(agent: Agent) -> None:
    """Words and variables are such that a process can be given them, and what the user says reaches the program."""
    command = asked(agent)
    words = [command.executable, *command.arguments]
    assert command.executable
    assert all(isinstance(word, str) and "\0" not in word for word in words)
    assert all(VARIABLE.fullmatch(name) for name in command.variables)
    stdin = command.stdin if isinstance(command.stdin, str) else command.stdin.decode()
    assert TEXT in stdin or TEXT in command.arguments


def test_a_resumed_conversation_is_named(agent: Agent) -> None:
    """The command that goes on names the conversation, and one that begins does not."""
    assert any(ID in word for word in asked(agent, Continuation(id=ID)).arguments)
    assert not any(ID in word for word in asked(agent).arguments)
    assert not any(CHOSEN in word for word in asked(agent, Continuation(id=ID)).arguments)


def test_a_fork_is_asked_for_in_some_way(agent: Agent) -> None:
    """By a request that differs from the one that resumes, by a hook, or it is refused before."""
    if agent.features.forkable is False or type(agent.bind()).fork is not AgentAdapter.fork:
        return
    fork = asked(agent, Continuation(id=ID, fork=True))
    assert any(ID in word for word in fork.arguments)
    assert fork.arguments != asked(agent, Continuation(id=ID)).arguments


def test_the_storage_is_of_the_agents_format(agent: Agent) -> None:
    """Built-in stores are of the format that has the agent's name."""
    storage = agent.features.storage
    assert storage is not None
    assert storage.format == agent.name


@settings(max_examples=30)
@given(lines=st.lists(st.text(max_size=20) | values.map(json.dumps), max_size=6))
@pytest.mark.parametrize("name", MAKERS)
def test_no_output_makes_an_adapter_crash(name: str, lines: list[str]) -> None:
    """Whatever is printed, a line is events that can be added up, or one that is raw."""
    reading = Reading(MAKERS[name]().bind())
    for line in lines:
        for event in reading.line(line):
            reading.take(event, len(line))
            assert not isinstance(event, RawEvent) or event.line == line
    assert isinstance(reading.text, str)


def test_adapters_of_two_turns_know_nothing_of_each_other(agent: Agent) -> None:
    """What lines of one turn said does not reach the next one."""
    lines = [json.dumps(line) for line in _SAID]
    first, second = Reading(agent.bind()), Reading(agent.bind())
    told: list[Any] = [[first.line(line) for line in lines], [second.line(line) for line in lines]]
    assert told[0] == told[1]


_SAID = [
    {"session": ID, "session_id": ID, "type": "system", "subtype": "init"},
    {"type": "thread.started", "thread_id": ID},
    {"text": "one", "role": "assistant", "content": "one"},
    {"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "one"}]}},
]
