"""The thread side of a call: one step at a time, closed in a thread after the last one."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.services.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """Two threads: one for a step, one for closing."""
    with ThreadPoolExecutor(2) as threads:
        yield threads


class _Held:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.may_end = threading.Event()
        self.begun = threading.Event()
        self.error: BaseException | None = None

    @contextmanager
    def manager(self, failure: Exception | None = None) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.events.append("closed" if threading.current_thread() is not threading.main_thread() else "in loop")
            if failure is not None:
                raise failure

    def step(self) -> None:
        self.begun.set()
        self.may_end.wait()
        self.events.append("stepped")


async def test_leaving_closes_in_a_thread(executor: ThreadPoolExecutor) -> None:
    """What a call holds is closed in a thread."""
    held = _Held()
    async with Worker(executor) as worker:
        await worker.enter(held.manager())
        assert await worker.run(max, 1, 2) == 2
    assert held.events == ["closed"]


async def test_cancel_waits_for_the_running_step(executor: ThreadPoolExecutor) -> None:
    """A cancel, and a second one, stop the waiting only: the step ends, then its object is closed, then the call."""
    held = _Held()

    async def call() -> None:
        async with Worker(executor) as worker:
            await worker.enter(held.manager())
            await worker.run(held.step)

    task = asyncio.ensure_future(call())
    await asyncio.to_thread(held.begun.wait)
    for _ in range(2):
        task.cancel()
        await asyncio.wait([task], timeout=0.02)
    assert (task.done(), held.events) == (False, [])
    held.may_end.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert held.events == ["stepped", "closed"]
    assert isinstance(held.error, asyncio.CancelledError)


async def test_step_that_has_not_begun_never_does() -> None:
    """What waits for a free thread when its call ends is not run any more."""
    held, ran = _Held(), []
    with ThreadPoolExecutor(1) as executor:
        blocking = executor.submit(held.step)
        await asyncio.to_thread(held.begun.wait)

        async def call() -> None:
            async with Worker(executor) as worker:
                await worker.run(ran.append, 1)

        task = asyncio.ensure_future(call())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=0.02)
        held.may_end.set()
        await asyncio.wait([task])
        blocking.result()
    assert task.cancelled()
    assert ran == []


async def test_first_error_is_reported(executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture) -> None:
    """When cleaning up fails after an error, the caller sees the error and the log the rest."""
    held = _Held()

    async def call() -> None:
        async with Worker(executor) as worker:
            await worker.enter(held.manager(OSError("while cleaning up")))
            await worker.run({}.pop, "missing")

    with pytest.raises(KeyError):
        await call()
    assert [record.getMessage() for record in caplog.records] == ["cleaning up failed"]


async def test_failing_to_close_is_an_error(executor: ThreadPoolExecutor) -> None:
    """Without an earlier error, one while closing is the call's."""
    with pytest.raises(OSError, match="while closing"):
        async with Worker(executor) as worker:
            await worker.enter(_Held().manager(OSError("while closing")))
