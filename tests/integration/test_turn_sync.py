"""Turns of programs without an event loop."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from host_client import sync
from host_client.agents.adapter import Continuation
from host_client.agents.event import ConversationEvent, TextEvent
from host_client.errors import ConfigurationError, ProcessError
from host_client.turns import result, runner, turn
from host_client.turns.provider import ConnectedSandbox
from support.scripted_agent import agent_of, script
from support.turn_scene import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from support.daemon import RunningDaemon


@pytest.fixture
def blocking(tmp_path: Path, shared_daemon: RunningDaemon) -> sync.TurnRunner:
    """A runner whose turns run at the module's daemon."""
    scene = Scene(tmp_path, shared_daemon.target)
    return sync.TurnRunner(
        agent_of(), scene.provider, repository=scene.repository, conversation_home=scene.home, durability="none"
    )


def test_turns_go_on_without_a_loop(blocking: sync.TurnRunner) -> None:
    """Run, resume and fork, by the runner and by results, with the fields of the asynchronous ones."""
    first = blocking.run(script(["say", "one"]))
    second = first.resume(script(["recall"], ["say", "two"]))
    child = second.fork(script(["recall"]))
    assert (first.text, second.text, child.text) == ("one", "onetwo", "one|two")
    assert second.conversation_id == first.conversation_id != child.conversation_id
    assert blocking.resume(str(child.conversation_id), script(["recall"])).text == "one|two"
    assert blocking.fork(str(first.conversation_id), script(["recall"])).text == "one|two"
    for name in (field for field in result.TurnResult.__dataclass_fields__ if not field.startswith("_")):
        assert getattr(first, name) == getattr(first.asynchronous, name)


def test_events_are_iterated(blocking: sync.TurnRunner) -> None:
    """Each is waited for; leaving the block early ends the turn and captures it."""
    with blocking.turn(script(["say", "one"])) as running:
        events = list(running)
        assert running.result().text == "one"
    assert events == [ConversationEvent(str(running.conversation_id)), TextEvent("one")]
    continuation = Continuation(id=str(running.conversation_id))
    with blocking.turn(script(["say", "two"], ["hang"]), continuation=continuation) as left:
        for event in left:
            if isinstance(event, TextEvent):
                break
    assert left.record is not None
    assert blocking.resume(continuation.id, script(["recall"])).text == "one|two"


def test_failures_are_those_of_the_turn(blocking: sync.TurnRunner) -> None:
    """By every way of asking."""
    with pytest.raises(ProcessError):
        blocking.run(script(["exit", 1]))
    with blocking.turn(script(["exit", 1])) as running:
        with pytest.raises(ProcessError):
            list(running)
        with pytest.raises(ProcessError):
            running.result()
    with pytest.raises(ConfigurationError):
        blocking.run(script(["say", "x"], quiet=True)).resume("y")


def test_a_connected_sandbox_is_used(tmp_path: Path, shared_daemon: RunningDaemon) -> None:
    """A sandbox that was connected by the blocking half serves turns."""
    with sync.connect(shared_daemon.target) as box:
        provider = ConnectedSandbox(box.asynchronous)
        blocking = sync.TurnRunner(agent_of(), provider, conversation_home=tmp_path, durability="none")
        assert blocking.run(script(["say", "one"])).resume(script(["recall"])).text == "one"


@pytest.mark.parametrize(
    ("blocking_class", "asynchronous"),
    [(sync.TurnRunner, runner.TurnRunner), (sync.TurnResult, result.TurnResult), (sync.Turn, turn.Turn)],
)
def test_every_asynchronous_method_has_its_blocking_one(blocking_class: type, asynchronous: type) -> None:
    """What is added to the asynchronous classes and forgotten here is found; parameters are the same."""
    own = {"emit", "running"}  # what runs a turn
    for name, method in inspect.getmembers(asynchronous, inspect.isfunction):
        if not name.startswith("_") and name not in own:
            ours = list(inspect.signature(getattr(blocking_class, name)).parameters)
            assert ours == list(inspect.signature(method).parameters)
