"""Steps of one call that wait for each other: their order, their failures, and their end."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.services import backlog as tested
from sandbox_agent.services.backlog import Backlog
from sandbox_agent.services.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """Threads for the steps."""
    with ThreadPoolExecutor(4) as made:
        yield made


async def test_steps_run_in_order(executor: ThreadPoolExecutor) -> None:
    """All steps have run, one after the other, when the backlog is finished."""
    ran: list[int] = []
    async with Worker(executor) as worker:
        with Backlog(worker) as backlog:
            for number in range(1000):
                await backlog.add(lambda number=number: ran.append(number), number)
            await backlog.finish()
    assert ran == list(range(1000))


async def test_last_step_runs_without_another(executor: ThreadPoolExecutor) -> None:
    """A step that was added while another one ran begins when that one ends, though nothing is added any more."""
    release, ran = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    async with Worker(executor) as worker:
        with Backlog(worker) as backlog:
            await backlog.add(lambda: release.wait(60))
            await backlog.add(lambda: loop.call_soon_threadsafe(ran.set))
            release.set()
            await asyncio.wait_for(ran.wait(), 60)
            await backlog.finish()


@pytest.mark.parametrize("is_large", [False, True])
async def test_adding_waits_when_enough_are_waiting(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    """Neither many steps nor large ones pile up behind one that takes long."""
    monkeypatch.setattr(tested, "_MAX_STEPS_COUNT", 1000 if is_large else 3)
    release = threading.Event()
    async with Worker(executor) as worker:
        with Backlog(worker) as backlog:
            await backlog.add(lambda: release.wait(60))
            size_bytes = tested.CHUNK_BYTES // 3 + 1 if is_large else 0
            for _ in range(2):
                await backlog.add(lambda: None, size_bytes)
            adding = asyncio.ensure_future(backlog.add(lambda: None, size_bytes))
            for _ in range(10):
                await asyncio.sleep(0)  # gives it every chance to end
            assert not adding.done()
            release.set()
            await adding
            await backlog.finish()


async def test_end_of_a_turn_that_nobody_was_told_of(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn whose end has not begun the next one yet leaves no step behind, and begins none beside another."""
    ran: list[int] = []
    go_on = Backlog._go_on
    monkeypatch.setattr(Backlog, "_go_on", lambda *_: None)
    release = threading.Event()
    async with Worker(executor) as worker:
        with Backlog(worker) as backlog:
            await backlog.add(lambda: ran.append(1))
            turn = backlog._turn
            await backlog.add(lambda: ran.append(2))
            assert turn is not None
            await turn
            await backlog.finish()
            assert ran == [1, 2]
            await backlog.add(lambda: release.wait(60))
            await backlog.add(lambda: ran.append(3))
            running = backlog._turn
            go_on(backlog, turn)
            assert backlog._turn is running
            release.set()
            await backlog.finish()
    assert ran == [1, 2, 3]


async def test_failure_ends_it(executor: ThreadPoolExecutor) -> None:
    """What a step raises comes out of what follows; no later step runs."""
    ran: list[int] = []
    release = threading.Event()

    def fail() -> None:
        release.wait(60)
        raise OSError(5, "injected")

    async with Worker(executor) as worker:
        with Backlog(worker) as backlog:
            await backlog.add(fail)
            await backlog.add(lambda: ran.append(1))
            release.set()
            with pytest.raises(OSError, match="injected"):
                await backlog.finish()
            with pytest.raises(OSError, match="injected"):
                await backlog.add(lambda: ran.append(2))
    assert ran == []


async def test_no_step_begins_after_the_block(executor: ThreadPoolExecutor) -> None:
    """A call that is cancelled waits for the step that runs, and begins none of those that wait."""
    ran: list[int] = []
    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def run() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(60)
        ran.append(1)

    async def call() -> None:
        async with Worker(executor) as worker:
            with Backlog(worker) as backlog:
                await backlog.add(run)
                await backlog.add(lambda: ran.append(2))
                await asyncio.Event().wait()

    task = asyncio.ensure_future(call())
    await started.wait()
    task.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ran == [1]
