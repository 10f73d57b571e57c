"""Turns that end badly: one typed error each, the group ended, and what there is of the conversation kept."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents.adapter import Command
from host_client.agents.event import TextEvent
from host_client.errors import (
    DeadlineError,
    OutpostError,
    ProcessError,
    SessionError,
    UnavailableError,
)
from host_client.sandbox.process_run import Run
from host_client.session.redaction import LiteralRule, Redaction
from host_client.stores.transcript import TranscriptConversations
from support.scripted_agent import ChoosingAdapter, ScriptedAdapter, script
from support.transcript_format import LAYOUT
from support.turn_scene import Scene, wait_until_gone

if TYPE_CHECKING:
    from host_client.agents.adapter import TurnInput
    from host_client.sandbox.process import Process
    from host_client.sandbox.sandbox import Sandbox
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio


@pytest.fixture
def scene(tmp_path: Path, shared_daemon: RunningDaemon) -> Scene:
    """A host whose turns run at the module's daemon."""
    return Scene(tmp_path, shared_daemon.target)


async def failure(scene: Scene, *steps: Any, flags: dict[str, bool] | None = None, **options: Any) -> OutpostError:
    """Run a turn that fails, and return the one error that it raises."""
    with pytest.raises(OutpostError) as caught:
        await scene.runner(**options).run(script(*steps, **(flags or {})))
    assert scene.provider.released == scene.provider.acquired
    return caught.value


@pytest.mark.parametrize(
    ("steps", "options", "expected", "facts"),
    [
        ([["exit", 3]], {}, "process/failed", {"status": "3", "signal": "0"}),
        ([["signal", 9]], {}, "process/failed", {"status": "0", "signal": "9"}),
        ([["signal", 11]], {}, "process/failed", {"signal": "11"}),
        ([["tell", {"failure": "no quota"}]], {}, "process/reported_failure", {"status": "0"}),
        ([["tell", {"failure": "x"}], ["exit", 2]], {}, "process/reported_failure", {"status": "2"}),
        ([["tell", {"result": "x"}]], {"features": {"requires_finished_event": True}}, "process/unfinished", {}),
        ([["hang"]], {"deadline_seconds": 2}, "timeout/deadline", {}),
        ([["hang"]], {"idle_seconds": 2}, "timeout/idle", {}),
        ([["insist"], ["hang"]], {"deadline_seconds": 2, "grace_seconds": 0.2}, "timeout/deadline", {}),
        ([["close"], ["hang"]], {"deadline_seconds": 2}, "timeout/deadline", {}),
        ([["line", 20 << 20], ["hang"]], {}, "process/oversized_event", {}),
        ([["flood", 1 << 30]], {"max_output_bytes": 1 << 20}, "limit/max_output_bytes", {}),
    ],
)
async def test_a_failed_turn_is_one_error_and_captured(
    scene: Scene, steps: list[Any], options: dict[str, Any], expected: str, facts: dict[str, str]
) -> None:
    """Exit status, signals, the agent's word, silence, floods, endless lines: typed, and all that was said is kept."""
    error = await failure(scene, ["say", "what was said"], ["complain", "the reason"], *steps, **options)
    assert f"{error.code}/{error.reason}" == expected
    assert facts.items() <= error.facts.items()
    assert error.facts["stderr"] == "the reason"
    assert '"what was said"' in scene.said(error.facts["conversation"])


async def test_a_torn_line_is_kept_and_noted(scene: Scene) -> None:
    """Of a turn that was ended in the middle of a line all lines are kept, and the record says that one is torn."""
    async with scene.runner(deadline_seconds=2).turn(script(["say", "whole"], ["tear"], ["hang"])) as turn:
        with pytest.raises(DeadlineError) as caught:
            await turn.result()
    assert caught.value.reason == "deadline"
    assert turn.record is not None
    assert [notice.reason for notice in turn.record.notices] == ["torn_tail"]
    assert '"whole"' in scene.said(str(turn.conversation_id))


async def test_a_finished_event_is_enough_where_it_is_required(scene: Scene) -> None:
    """The agent's own word and exit status 0 are a success."""
    runner = scene.runner(features={"requires_finished_event": True})
    assert (await runner.run(script(["say", "x"], ["tell", {"finished": True}]))).text == "x"


async def test_complaints_are_shown_printable_and_short(scene: Scene) -> None:
    """Of standard error the end is told, without control characters."""
    error = await failure(scene, ["complain", "x" * 100_000], ["complain", "\x1b[31mthe end"], ["exit", 1])
    assert error.facts["stderr"].endswith("\\x1b[31mthe end")
    assert len(error.facts["stderr"]) <= 2048


@pytest.mark.parametrize("steps", [[["complain", "the token is s3cr3t"]], [["tell", {"failure": "bad token s3cr3t"}]]])
async def test_failures_tell_no_secrets(scene: Scene, steps: list[Any]) -> None:
    """What must not be saved is not told by an error either."""
    redaction = Redaction([LiteralRule("token", "s3cr3t")])
    error = await failure(scene, *steps, ["exit", 1], redaction=redaction)
    told = str(error) + str(error.facts)
    assert "token" in told
    assert "s3cr3t" not in told


async def test_a_failed_conversation_goes_on(scene: Scene) -> None:
    """The fact `conversation` is what can be resumed."""
    error = await failure(scene, ["say", "one"], ["exit", 1])
    again = await scene.runner().resume(error.facts["conversation"], script(["recall"]))
    assert again.text == "one"


class StandIn(ScriptedAdapter):
    """An agent whose program is another one."""

    executable = ""

    def request(self, turn: TurnInput) -> Command:
        """Run it."""
        return Command(self.executable, (), turn.text)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: path / "missing", "process/no_such_program"),
        (lambda _: "no-such-cli", "process/no_such_program"),
        (lambda path: path, "process/not_executable"),
        (lambda path: Path(path / "plain"), "process/not_executable"),
    ],
)
async def test_a_program_that_cannot_be_started(scene: Scene, tmp_path: Path, make: Any, expected: str) -> None:
    """A CLI that is missing or not executable is told apart; nothing ran, so nothing is captured."""
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    with pytest.raises(OutpostError) as caught:
        await scene.runner(StandIn, features={"executable": str(make(tmp_path))}).run("x")
    assert f"{caught.value.code}/{caught.value.reason}" == expected
    assert "conversation" not in caught.value.facts
    assert list(scene.home.iterdir()) == []


async def test_a_child_that_left_does_not_hold_a_turn_up(scene: Scene, shared_daemon: RunningDaemon) -> None:
    """A grandchild in a group of its own that keeps standard output open is no part of the turn."""
    result = await scene.runner().run(script(["leave child"], ["say", "done"]))
    assert result.text == "done"
    child_path = shared_daemon.home / "child.pid"
    child = int(child_path.read_text())
    child_path.unlink()
    os.kill(child, signal.SIGKILL)
    wait_until_gone(child)


async def test_children_that_left_end_with_a_turn_that_is_ended(scene: Scene, shared_daemon: RunningDaemon) -> None:
    """At its deadline everything that the agent started goes, whatever group it moved to."""
    error = await failure(scene, ["leave child"], ["hang"], deadline_seconds=2)
    assert error.reason == "deadline"
    child_path = shared_daemon.home / "child.pid"
    child = int(child_path.read_text())
    child_path.unlink()
    wait_until_gone(child)


async def test_leaving_a_turn_ends_and_captures_it(scene: Scene) -> None:
    """Leaving the context early is no failure; the process is gone and the conversation kept, and it can go on."""
    runner = scene.runner()
    async with runner.turn(script(["say", "half"], ["hang"])) as turn:
        async for event in turn:
            if isinstance(event, TextEvent):
                break
    assert turn.record is not None
    with pytest.raises(UnavailableError) as left:  # not a cancel, which nobody asked for
        await turn.result()
    assert left.value.reason == "cancelled"
    assert '"half"' in scene.said(str(turn.conversation_id))
    assert scene.provider.released == scene.provider.acquired
    assert (await runner.resume(str(turn.conversation_id), script(["recall"]))).text == "half"


async def test_a_cancelled_turn_is_captured(scene: Scene) -> None:
    """A cancel ends the process, captures, gives back the sandbox, and then goes on as a cancel."""
    said = asyncio.Event()

    def observe(event: object) -> None:
        if isinstance(event, TextEvent):
            said.set()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(scene.runner(on_event=observe).run(script(["say", "half"], ["hang"])))
        await said.wait()
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
    (kept,) = (scene.home / ".mycli/sessions").iterdir()
    assert '"half"' in kept.read_text()
    assert scene.provider.released == scene.provider.acquired


async def test_a_time_limit_of_the_caller_is_a_cancel(scene: Scene) -> None:
    """`asyncio.timeout` around a turn works, and the conversation is kept."""

    async def run() -> None:
        async with asyncio.timeout(None) as limit:

            def observe(event: object) -> None:
                if isinstance(event, TextEvent):
                    limit.reschedule(0)

            await scene.runner(on_event=observe).run(script(["say", "half"], ["hang"]))

    with pytest.raises(TimeoutError):
        await run()
    (kept,) = (scene.home / ".mycli/sessions").iterdir()
    assert '"half"' in kept.read_text()


async def test_an_observer_that_raises_ends_the_turn(scene: Scene) -> None:
    """Its exception comes out as it is, after the conversation was captured."""

    def observe(event: object) -> None:
        if isinstance(event, TextEvent):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await scene.runner(on_event=observe).run(script(["say", "half"], ["hang"]))
    (kept,) = (scene.home / ".mycli/sessions").iterdir()
    assert '"half"' in kept.read_text()
    assert scene.provider.released == scene.provider.acquired


async def test_an_exception_in_the_context_ends_the_turn(scene: Scene) -> None:
    """What the caller raises while events are iterated comes out, after the conversation was captured."""
    runner = scene.runner()
    turns = []

    async def run() -> None:
        async with runner.turn(script(["say", "half"], ["hang"])) as turn:
            turns.append(turn)
            await anext(turn)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run()
    (turn,) = turns
    assert turn.record is not None


async def test_a_failure_that_nobody_asked_for_is_raised_at_the_end(scene: Scene) -> None:
    """A context that is left without asking for the result raises what went wrong."""

    async def leave() -> None:
        async with scene.runner().turn(script(["exit", 4])) as turn:
            while await turn._next() is not None:  # as `result`, which would tell
                pass

    with pytest.raises(ProcessError) as caught:
        await leave()
    assert caught.value.facts["status"] == "4"


class BrokenStore(TranscriptConversations):
    """A store that cannot capture."""

    def __init__(self) -> None:
        super().__init__(LAYOUT)

    async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Fail."""
        del conversation_id, context
        raise SessionError("changed", "it changed all the time")


async def test_a_capture_that_fails_fails_the_turn(scene: Scene) -> None:
    """No result exists of a turn whose conversation could not be kept; the failure says which it is."""
    error = await failure(scene, ["say", "x"], features={"storage": BrokenStore()})
    assert error.reason == "changed"
    assert error.facts["conversation"]


async def test_a_second_failure_joins_the_first(scene: Scene) -> None:
    """Of a failed turn that cannot be captured or released, all failures are told, first to last."""

    class Provider:
        acquire = scene.provider.acquire

        async def release(self, sandbox: Sandbox) -> None:
            await scene.provider.release(sandbox)
            raise UnavailableError("unreachable", "it does not answer")

    runner = scene.runner(features={"storage": BrokenStore()})
    runner._provider = Provider()
    with pytest.raises(ExceptionGroup) as caught:
        await runner.run(script(["exit", 1]))
    errors = [error for error in caught.value.exceptions if isinstance(error, OutpostError)]
    assert [error.reason for error in errors] == ["failed", "changed", "unreachable"]
    assert len({error.facts["conversation"] for error in errors}) == 1


async def test_a_failure_of_a_turn_that_is_left_is_raised(scene: Scene) -> None:
    """Leaving early wants no result, but a conversation that could not be captured is no secret."""
    runner = scene.runner(features={"storage": BrokenStore()})
    with pytest.raises(SessionError) as caught:
        async with runner.turn(script(["say", "half"], ["hang"])) as turn:
            await anext(turn)
    assert caught.value.reason == "changed"


async def test_a_cancel_names_the_capture_that_failed(scene: Scene) -> None:
    """A cancel stays one, and its notes say that the conversation was not kept."""
    said = asyncio.Event()
    runner = scene.runner(features={"storage": BrokenStore()}, on_event=lambda _: said.set())
    caught: list[BaseException] = []

    async def run() -> None:
        try:
            await runner.run(script(["say", "half"], ["hang"]))
        except asyncio.CancelledError as error:
            caught.append(error)
            raise

    async with asyncio.TaskGroup() as group:
        task = group.create_task(run())
        await said.wait()
        task.cancel()
        await asyncio.wait([task])
    assert "it changed all the time" in str(caught[0].__notes__)


@pytest.mark.parametrize("adapter", [ScriptedAdapter, ChoosingAdapter])
async def test_a_turn_that_failed_before_its_id_was_told_is_captured(
    scene: Scene, adapter: type[ScriptedAdapter]
) -> None:
    """The one conversation that is new in the sandbox, or that has the chosen id, is the turn's."""
    await scene.runner().run(script(["say", "another"]))
    with pytest.raises(ProcessError) as caught:
        await scene.runner(adapter).run(script(["say", "half"], ["signal", 9], quiet=True))
    assert '"half"' in scene.said(caught.value.facts["conversation"])


@pytest.mark.parametrize("adapter", [ScriptedAdapter, ChoosingAdapter])
async def test_a_turn_that_failed_before_it_kept_anything_has_one_failure(
    scene: Scene, adapter: type[ScriptedAdapter]
) -> None:
    """Where there is no conversation yet, that is no second error."""
    for quiet in (True, False):
        with pytest.raises(ProcessError) as caught:
            await scene.runner(adapter).run(script(["exit", 1], quiet=quiet, unkept=True))
        assert caught.value.reason == "failed"
        assert "conversation" not in caught.value.facts
    assert list(scene.home.iterdir()) == []


async def test_a_conversation_that_is_gone_is_brought_back(scene: Scene, shared_daemon: RunningDaemon) -> None:
    """A resumed turn that fails and leaves no session is no reason to begin anew: the next one restores it."""
    runner = scene.runner()
    first = await runner.run(script(["say", "one"]))
    (shared_daemon.home / f".mycli/sessions/{first.conversation_id}.jsonl").unlink()
    with pytest.raises(ProcessError) as caught:
        await first.resume(script(["say", "two"]))
    assert caught.value.facts["conversation"] == first.conversation_id
    assert (await first.resume(script(["recall"]))).text == "one"


async def test_another_conversation_that_is_not_there_is_not_told(scene: Scene) -> None:
    """An agent that began anew, and was ended before it kept anything, left nothing that could be resumed."""
    runner = scene.runner()
    first = await runner.run(script(["say", "one"]))
    with pytest.raises(ProcessError) as caught:
        await first.resume(script(["tell", {"session": "another"}], ["hang"], quiet=True))
    assert caught.value.reason == "reported_failure"
    assert "conversation" not in caught.value.facts


async def test_of_several_new_conversations_none_is_taken(scene: Scene, shared_daemon: RunningDaemon) -> None:
    """What may be somebody else's is not told as the turn's."""
    other = shared_daemon.home / ".mycli/sessions/other.jsonl"
    with pytest.raises(ProcessError) as caught:
        await scene.runner().run(script(["touch", str(other)], ["exit", 1], quiet=True))
    assert "conversation" not in caught.value.facts
    other.unlink()


async def test_an_id_that_cannot_be_is_told_and_not_used(scene: Scene) -> None:
    """An agent that announces a path has no conversation; the turn says so."""
    result = await scene.runner().run(script(["tell", {"session": "../../x"}], quiet=True))
    assert (result.conversation_id, result.record) == (None, None)
    assert [notice.reason for notice in result.notices] == ["unusable_id"]


async def test_a_start_without_an_answer_is_captured(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent may have run all the same: what it said is kept and told."""
    enter = Run.__aenter__

    async def answer_is_lost(run: Run) -> Process:
        await (await enter(run)).wait()
        raise UnavailableError("unreachable", "no answer came")

    monkeypatch.setattr(Run, "__aenter__", answer_is_lost)
    lost = await failure(scene, ["say", "it ran"])
    assert isinstance(lost, UnavailableError)
    assert '"it ran"' in scene.said(lost.facts["conversation"])
