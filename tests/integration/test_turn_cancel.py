"""A cancel at each step of a turn: what was begun is ended or taken back, and what ran is captured."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents.event import TextEvent
from host_client.errors import SessionError
from host_client.stores.transcript import TranscriptConversations
from host_client.turns import winding
from support.scripted_agent import ForkingAdapter, script
from support.transcript_format import LAYOUT
from support.turn_scene import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from host_client.sandbox.sandbox import Sandbox
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord, RestoreOutcome
    from host_client.turns.provider import AcquireContext
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio


@pytest.fixture
def scene(tmp_path: Path, shared_daemon: RunningDaemon) -> Scene:
    """A host whose turns run at the module's daemon."""
    return Scene(tmp_path, shared_daemon.target)


class Gate:
    """A place at which a turn waits."""

    def __init__(self) -> None:
        self.reached, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def wait(self) -> None:
        """Wait until the test lets it go on."""
        self.reached.set()
        await self.may_go_on.wait()


class GatedStore(TranscriptConversations):
    """A store that waits before each of its steps that has a gate."""

    def __init__(self, **gates: Gate) -> None:
        super().__init__(LAYOUT)
        self.gates = gates
        self.begun: list[str] = []

    async def _reach(self, name: str) -> None:
        if name in self.gates:
            await self.gates[name].wait()
        self.begun.append(name)

    async def locate(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Locate."""
        await self._reach("locate")
        return await super().locate(conversation_id, context)

    async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Capture."""
        await self._reach("capture")
        return await super().capture(conversation_id, context)

    async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
        """Restore."""
        await self._reach("restore")
        return await super().restore(record, context)


async def cancelled_at(gate: Gate, turn: Any, *, goes_on: bool = False) -> None:
    """Cancel a turn when it waits there, once more when it has seen that, and let it go on if it waits for that."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(turn)
        await gate.reached.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        if goes_on:
            assert not task.done()
            gate.may_go_on.set()
        await asyncio.wait([task])
    assert task.cancelled()


async def test_while_a_sandbox_is_acquired(scene: Scene) -> None:
    """The provider is cancelled, and there is nothing to give back."""
    gate = Gate()

    class Provider:
        release = scene.provider.release

        async def acquire(self, context: AcquireContext) -> Sandbox:
            await gate.wait()
            return await scene.provider.acquire(context)

    runner = scene.runner()
    runner._provider = Provider()
    await cancelled_at(gate, runner.run("x"))
    assert scene.provider.released == []


@pytest.mark.parametrize("step", ["locate", "restore"])
async def test_before_the_agent_runs(tmp_path: Path, step: str) -> None:
    """No program is started, nothing is captured, and a sandbox that was acquired goes back."""
    scene = Scene(tmp_path)
    first = await scene.runner().run(script(["say", "one"]))
    gate, ran = Gate(), tmp_path / "ran"
    store = GatedStore(**{step: gate})
    runner = scene.runner(features={"storage": store})
    await cancelled_at(gate, runner.resume(str(first.conversation_id), script(["touch", str(ran)])))
    assert not ran.exists()
    assert "capture" not in store.begun
    assert scene.provider.released == scene.provider.acquired
    assert len(scene.provider.acquired) == (1 if step == "locate" else 2)


async def test_while_a_hook_forks(scene: Scene) -> None:
    """The turn is over; the parent can be resumed."""
    gate = Gate()

    class Adapter(ForkingAdapter):
        async def fork(self, conversation_id: str, run: Any) -> str:
            await gate.wait()
            return await super().fork(conversation_id, run)

    runner = scene.runner(Adapter)
    first = await runner.run(script(["say", "one"]))
    await cancelled_at(gate, first.fork(script(["say", "two"])))
    assert (await first.resume(script(["recall"]))).text == "one"
    assert scene.provider.released == scene.provider.acquired


async def test_while_the_conversation_is_captured(scene: Scene) -> None:
    """The capture goes on to its end, then the sandbox goes back, then the cancel goes on."""
    gate = Gate()
    store = GatedStore(capture=gate)
    runner = scene.runner(features={"storage": store})
    await cancelled_at(gate, runner.run(script(["say", "one"])), goes_on=True)
    assert store.begun == ["capture"]
    (kept,) = (scene.home / ".mycli/sessions").iterdir()
    assert '"one"' in kept.read_text()
    assert scene.provider.released == scene.provider.acquired


async def test_while_the_sandbox_goes_back(scene: Scene) -> None:
    """It goes back."""
    gate = Gate()

    class Provider:
        acquire = scene.provider.acquire

        async def release(self, sandbox: Sandbox) -> None:
            await gate.wait()
            await scene.provider.release(sandbox)

    runner = scene.runner()
    runner._provider = Provider()
    await cancelled_at(gate, runner.run(script(["say", "one"])), goes_on=True)
    assert scene.provider.released == scene.provider.acquired


async def test_while_a_turn_that_was_left_is_captured(scene: Scene) -> None:
    """The cancel says what the turn was left for, and what failed meanwhile."""
    gate = Gate()

    class Store(GatedStore):
        async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
            await super().capture(conversation_id, context)
            raise SessionError("changed", "it changed all the time")

    caught: list[BaseException] = []

    async def leave() -> None:
        try:
            async with scene.runner(features={"storage": Store(capture=gate)}).turn(script(["say", "half"])) as turn:
                await anext(turn)
                raise ValueError("it was left")
        except asyncio.CancelledError as error:
            caught.append(error)
            raise

    await cancelled_at(gate, leave(), goes_on=True)
    notes = str(caught[0].__notes__)
    assert "it was left" in notes
    assert "it changed all the time" in notes


async def test_a_capture_that_does_not_end_is_given_up(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled turn ends within a limited time, whatever its store does; the sandbox goes back all the same."""
    monkeypatch.setattr(winding, "CANCELLED_SECONDS", 0.2)
    gate = Gate()
    runner = scene.runner(features={"storage": GatedStore(capture=gate)})
    await cancelled_at(gate, runner.run(script(["say", "one"])))
    assert scene.provider.released == scene.provider.acquired


async def test_a_turn_that_was_cancelled_goes_on(scene: Scene) -> None:
    """What a cancelled turn kept is resumed by the same runner, without a restore."""
    told = asyncio.Event()
    store = GatedStore()
    runner = scene.runner(
        features={"storage": store}, on_event=lambda event: told.set() if isinstance(event, TextEvent) else None
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.run(script(["say", "half"], ["hang"])))
        await told.wait()
        task.cancel()
        await asyncio.wait([task])
    (kept,) = (scene.home / ".mycli/sessions").iterdir()
    assert (await runner.resume(kept.stem, script(["recall"]))).text == "half"
    assert "restore" not in store.begun
