"""Turns whose daemon or connection goes away: typed errors or recovery, and the conversation kept where it can be."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents.event import TextEvent
from host_client.errors import ProcessError, UnavailableError
from host_client.stores.transcript import TranscriptConversations
from support.cutting_proxy import cutting_proxy
from support.daemon import running_daemon
from support.scripted_agent import script
from support.transcript_format import LAYOUT
from support.turn_scene import Scene

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from host_client.agents.event import AgentEvent
    from host_client.sandbox.place import SessionSummary
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio


def _kill(daemon: RunningDaemon) -> None:
    daemon.process.kill()
    daemon.process.wait()


async def test_a_daemon_that_is_gone_fails_the_turn(tmp_path: Path) -> None:
    """Within the patience of the runner, by one error, which names the conversation: it goes on there later."""
    with running_daemon(tmp_path) as daemon:
        scene = Scene(tmp_path, daemon.target)
        go = tmp_path / "go"

        def observe(event: AgentEvent) -> None:
            if isinstance(event, TextEvent) and not go.exists():
                _kill(daemon)

        runner = scene.runner(patience_seconds=0.5, on_event=observe)
        with pytest.raises(UnavailableError) as caught:
            await runner.run(script(["say", "half"], ["await", str(go)]))
        go.touch()
        assert scene.provider.released == scene.provider.acquired
    conversation_id = caught.value.facts["conversation"]
    assert not scene.kept(conversation_id).exists()
    with running_daemon(tmp_path):
        assert (await runner.resume(conversation_id, script(["recall"]))).text == "half"
    assert '"half"' in scene.said(conversation_id)


async def test_a_daemon_that_comes_back_has_the_conversation(tmp_path: Path) -> None:
    """A restarted daemon does not know the process any more: the turn fails, and what was said is captured."""
    with running_daemon(tmp_path) as first:
        scene = Scene(tmp_path, first.target)
        may_end, is_back, replaced = threading.Event(), threading.Event(), threading.Event()

        def serve() -> None:
            with running_daemon(tmp_path):
                is_back.set()
                may_end.wait(60)

        successor = threading.Thread(target=serve)

        def observe(event: AgentEvent) -> None:
            if isinstance(event, TextEvent) and not replaced.is_set():
                replaced.set()
                _kill(first)
                successor.start()

        try:
            with pytest.raises(ProcessError) as caught:
                await scene.runner(on_event=observe).run(script(["say", "half"], ["hang"]))
        finally:
            may_end.set()
            successor.join()
        assert is_back.is_set()
        assert caught.value.reason == "unknown"
        assert '"half"' in scene.said(caught.value.facts["conversation"])


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon that is ended when the loop of the test, which carries its connections, has ended."""
    with running_daemon(tmp_path) as running:
        yield running


async def test_a_cut_connection_loses_and_doubles_nothing(tmp_path: Path, daemon: RunningDaemon) -> None:
    """A turn goes on over connections that break in the middle of its output."""
    async with cutting_proxy(daemon.target, [20_000, 40_000]) as (target, proxy):
        result = await Scene(tmp_path, target).runner().run(script(["flood", 10_000], ["say", "end"]))
    assert result.text == "".join(f"{number} " for number in range(10_000)) + "end"
    assert proxy.cuts_count == 2
    assert result.record is not None


@pytest.mark.parametrize(("flags", "steps"), [({}, []), ({"quiet": True}, [["exit", 1]])])
async def test_a_connection_that_breaks_during_the_capture_is_made_again(
    tmp_path: Path, flags: dict[str, bool], steps: list[Any]
) -> None:
    """What follows the agent's run is repeated when the daemon was away for a moment, in listing and in capturing."""

    class Store(TranscriptConversations):
        failures_count = 0

        async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
            self._break()
            return await super().capture(conversation_id, context)

        async def list_sessions(self, context: ConversationContext) -> AsyncIterator[SessionSummary]:
            if self.failures_count or ran.exists():
                self._break()
            async for item in super().list_sessions(context):
                yield item

        def _break(self) -> None:
            self.failures_count += 1
            if self.failures_count < 3:
                raise UnavailableError("unreachable", "it went away")

    ran = tmp_path / "ran"
    with running_daemon(tmp_path) as daemon:
        scene, store = Scene(tmp_path, daemon.target), Store(LAYOUT)
        runner = scene.runner(features={"storage": store})
        async with runner.turn(script(["say", "said"], ["touch", str(ran)], *steps, **flags)) as turn:
            try:
                await turn.result()
            except ProcessError:
                assert steps
    assert turn.record is not None
    assert '"said"' in scene.said(str(turn.conversation_id))
    assert store.failures_count >= 3


async def test_cancelled_turns_leave_nothing(tmp_path: Path) -> None:
    """After turns that were left early threads and descriptors of this process are as before, and no process runs."""
    with running_daemon(tmp_path) as daemon:
        scene = Scene(tmp_path, daemon.target)

        async def leave() -> None:
            async with scene.runner().turn(script(["say", "half"], ["hang"])) as turn:
                await anext(turn)

        await leave()  # whatever is made once is made now
        before = _held()
        for _ in range(5):
            await leave()
        assert _held() == before
        assert not _runs_agent(daemon.process.pid)


def _held() -> tuple[list[str], list[str]]:
    """Return open files and running threads, except those of the loop's pool, which come and stay."""
    links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists()]  # noqa: PTH115
    threads = [thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio_")]
    return sorted(link for link in links if link.startswith("/") and not link.startswith("/proc")), sorted(threads)


def _runs_agent(daemon_pid: int) -> bool:
    """Tell whether a child of the daemon is the agent."""
    pids = Path(f"/proc/{daemon_pid}/task/{daemon_pid}/children").read_text().split()
    commands = [Path(f"/proc/{pid}/cmdline") for pid in pids]
    return any(b"mycli" in path.read_bytes() for path in commands if path.exists())
