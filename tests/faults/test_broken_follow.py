"""What is left of a follow that is broken off: by its daemon, by its own end, by the host's disk."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from host_client.errors import LimitError, UnavailableError
from host_client.sandbox.sandbox import connect
from host_client.sandbox.transcript import Transcripts
from host_client.session import transcript_growth
from host_client.stores import transcript_followed
from host_client.stores.patience import Patience
from support.daemon import running_daemon
from support.follow_scene import BEGUN, FollowScene, said

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from host_client.sandbox.follow import FollowPart
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[1]


class Served:
    """A scene whose daemon can be killed and started again at the same socket."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self.daemon: RunningDaemon
        self.start()

    def start(self) -> None:
        """Start a daemon."""
        self.daemon = self._stack.enter_context(running_daemon(self._directory))

    def kill(self) -> None:
        """Kill the daemon."""
        self.daemon.process.kill()
        self.daemon.process.wait()

    def stop(self) -> None:
        """End the daemon and clean up behind it."""
        self._stack.close()


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[tuple[FollowScene, Served]]:
    """Serve a conversation by a daemon of its own."""
    server = await asyncio.to_thread(Served, tmp_path)
    try:
        async with connect(server.daemon.target) as sandbox:
            it = FollowScene(tmp_path, sandbox)
            it.write(BEGUN)
            yield it, server
    finally:
        await asyncio.to_thread(server.stop)


async def test_daemon_that_comes_back_is_gone_on_with(tmp_path: Path) -> None:
    """Killed and started again in the middle, twice: nothing is there twice, nothing is missing, nothing captured."""
    async with served(tmp_path) as (it, server), it.following() as updates:
        for number in range(2):
            it.append(said(number) + b'{"half')
            await it.until(updates)
            await asyncio.to_thread(server.kill)
            it.append(b'":1}\n' + said(number))
            await asyncio.to_thread(server.start)
            told = await it.until(updates)
            assert all(update.record is None for update in told)


async def test_killed_sandbox_loses_what_was_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was marked is on the host, the failure comes out after the patience, and later the rest is brought."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    now = [0.0]
    patient = partial(Patience, clock=lambda: now[0], sleep=sleep)
    monkeypatch.setattr("host_client.stores.transcript.Patience", patient)
    async with served(tmp_path) as (it, server):
        async with it.following(patience_seconds=5.0) as updates:
            it.append(said(1))
            await it.until(updates)
            await asyncio.to_thread(server.kill)
            before = it.copy.read_bytes()
            it.append(said(2))
            with pytest.raises(UnavailableError) as caught:
                await anext(updates)
        assert caught.value.reason == "unreachable"
        assert [round(seconds, 6) for seconds in waited] == [0.1, 0.2, 0.4, 0.8, 1.6, 1.9]
        assert it.copy.read_bytes() == before
        await asyncio.to_thread(server.start)
        async with connect(server.daemon.target) as sandbox:
            it.context = replace(it.context, sandbox=sandbox)
            record = await it.capture()
        assert (record.received_bytes, list(record.notices)) == (len(said(2)), [])
        assert it.is_current


STEPS = {
    "before lines are written": (transcript_growth, "extend", True),
    "after lines were written": (transcript_growth, "extend", False),
    "before the state is kept": (transcript_followed, "save_state", True),
    "after the state was kept": (transcript_followed, "save_state", False),
    "before the lock is taken": (transcript_followed, "locked", True),
}


def act_at(patch: pytest.MonkeyPatch, step: str, action: Callable[[], object]) -> None:
    """Act when a step is reached for the second time, in its thread."""
    module, name, before = STEPS[step]
    real, calls = getattr(module, name), []

    def called(*args: Any, **options: Any) -> Any:
        calls.append(name)
        if before and len(calls) == 2:
            action()
        result = real(*args, **options)
        if not before and len(calls) == 2:
            action()
        return result

    patch.setattr(module, name, called)


@pytest.mark.parametrize("step", STEPS)
async def test_cancelled_follow_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Wherever a cancel comes: the copy is whole lines, its state is kept, and a capture goes on with both."""
    monkeypatch.setattr("host_client.stores.transcript_follow._SAVE_SECONDS", 0.0)
    async with served(tmp_path) as (it, _):
        loop = asyncio.get_running_loop()

        async def run() -> None:
            task = asyncio.current_task()
            assert task is not None
            act_at(monkeypatch, step, lambda: loop.call_soon_threadsafe(task.cancel))
            async with it.following() as updates:
                for number in range(100):
                    it.append(said(number))
                    await it.until(updates)

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(run())
        copy = it.copy.read_bytes()
        assert copy.endswith(b"\n")
        assert it.moved().startswith(copy)
        missing_bytes = len(it.source.read_bytes()) - len(copy.replace(str(it.repository).encode(), b"/old"))
        record = await it.capture()
        assert (record.received_bytes, list(record.notices)) == (missing_bytes, [])
        assert it.is_current


_FOLLOWING = """
import asyncio, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
import pytest
from faults.test_broken_follow import act_at, partly_written
from host_client.sandbox.sandbox import connect
from support.follow_scene import FollowScene, said

async def main(target, directory, step):
    patch = pytest.MonkeyPatch()
    patch.setattr("host_client.stores.transcript_follow._SAVE_SECONDS", 0.0)
    kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
    if step == "in the middle of a line":
        partly_written(patch, kill)
    else:
        act_at(patch, step, kill)
    async with connect(target) as sandbox:
        it = FollowScene(Path(directory), sandbox)
        async with it.following() as updates:
            for number in range(100):
                it.append(said(number))
                await it.until(updates)

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[4]))
"""


def partly_written(patch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Write a part of a line and act."""

    def extend(fd: int, *_args: object, **_options: object) -> None:
        os.write(fd, b'{"type": "us')
        action()

    patch.setattr(transcript_growth, "extend", extend)


@pytest.mark.parametrize("step", [*STEPS, "in the middle of a line"])
async def test_killed_follow_is_gone_on_with(tmp_path: Path, step: str) -> None:
    """Wherever it is killed, what is there is a beginning, and the next follow adds what is missing and no more."""
    async with served(tmp_path) as (it, server):
        words = [server.daemon.target, str(tmp_path), str(TESTS), step]
        done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", _FOLLOWING, *words], check=False)
        assert done.returncode == -signal.SIGKILL
        assert it.moved().startswith(it.copy.read_bytes())
        async with it.following() as updates:
            (update,) = it.updates
            assert update.record is not None
            assert list(update.record.notices) == []
            assert update.record.received_bytes < len(BEGUN)
            assert it.is_current
            it.append(said(7))
            assert [update.record for update in await it.until(updates)] == [None]
        await it.capture()


async def test_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that is cut short is taken back, and the failure comes out; with room again it goes on."""

    def full() -> None:
        raise OSError(errno.ENOSPC, "no space")

    async with served(tmp_path) as (it, _):
        before = it.moved(BEGUN)
        with monkeypatch.context() as patch:
            async with it.following() as updates:
                partly_written(patch, full)
                it.append(said(1))
                with pytest.raises(LimitError) as caught:
                    await anext(updates)
        assert caught.value.reason == "disk_full"
        assert it.copy.read_bytes() == before
        record = await it.capture()
        assert (record.received_bytes, list(record.notices)) == (len(said(1)), [])


async def test_connection_that_breaks_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it breaks, at whatever part, each line is on the host once; what came counts as success."""
    real = Transcripts.follow
    left = [1, 2, 3, 1, 2]

    async def follow(self: Transcripts, *args: Any, **options: Any) -> AsyncGenerator[FollowPart, None]:
        parts_count = left.pop(0) if left else 1000
        async for part in real(self, *args, **options):
            yield part
            parts_count -= 1
            if not parts_count:
                raise UnavailableError("unreachable", "the connection broke")

    monkeypatch.setattr(Transcripts, "follow", follow)
    # Less than all pauses together would take if no success came between them.
    async with served(tmp_path) as (it, _), it.following(patience_seconds=0.35) as updates:
        for number in range(10):
            it.append(said(number))
            await it.until(updates)
        assert left == []
        assert all(update.record is None for update in it.updates[1:])
