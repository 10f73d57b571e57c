"""Winding up: a cancel waits for what must be done, within a limit, and no failure hides another."""

from __future__ import annotations

import asyncio

import pytest

from host_client.errors import DeadlineError, ProcessError, SessionError
from host_client.turns import winding
from host_client.turns.winding import completed, joined

pytestmark = pytest.mark.anyio

PROCESS = ProcessError("failed", "it failed")
SESSION = SessionError("not_found", "it is gone")


async def test_a_result_is_passed_on() -> None:
    """Without a cancel it is as if the work had been awaited."""

    async def work() -> int:
        return 5

    async def fail() -> None:
        raise SESSION

    assert await completed(work()) == 5
    with pytest.raises(SessionError):
        await completed(fail())


async def test_a_cancel_waits_for_the_work() -> None:
    """Cancels, also a second one, do not reach the work; when it is done the first goes on."""
    started, may_end, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        await may_end.wait()
        done.set()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(completed(work()))
        await started.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        may_end.set()
        await asyncio.wait([task])
        assert done.is_set()
        assert task.cancelled()


async def test_a_failure_during_a_cancel_is_noted() -> None:
    """The cancel stays a cancel, and says what failed meanwhile."""
    started, may_end = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        started.set()
        await may_end.wait()
        raise SESSION

    async def cancelled() -> BaseException:
        try:
            await completed(fail())
        except asyncio.CancelledError as error:
            return error
        raise AssertionError

    async with asyncio.TaskGroup() as group:
        task = group.create_task(cancelled())
        await started.wait()
        task.cancel()
        await asyncio.sleep(0)
        may_end.set()
        assert "it is gone" in str((await task).__notes__)


async def test_the_time_of_a_cancel_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that does not end is cancelled itself; a caller that was cancelled before is told so."""
    monkeypatch.setattr(winding, "CANCELLED_SECONDS", 0.0)
    ended = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(DeadlineError):
        await completed(hang(), is_cancelled=True)
    assert ended.is_set()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(completed(hang()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


def test_failures_are_grouped_flat() -> None:
    """Two failures are a group, a third one joins it; one is itself."""
    assert joined(None, PROCESS) is PROCESS
    assert joined(PROCESS, PROCESS) is PROCESS
    group = joined(joined(PROCESS, SESSION), ValueError("third"))
    assert isinstance(group, ExceptionGroup)
    assert [str(error).split(" (")[0] for error in group.exceptions] == ["it failed", "it is gone", "third"]


@pytest.mark.parametrize("cancel_first", [True, False])
def test_a_cancel_wins_and_names_the_failure(*, cancel_first: bool) -> None:
    """Whichever came first."""
    cancel = asyncio.CancelledError()
    error = joined(cancel, SESSION) if cancel_first else joined(SESSION, cancel)
    assert error is cancel
    assert "it is gone" in str(cancel.__notes__)
