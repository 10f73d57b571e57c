"""What the failures of a gRPC call mean to the client."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from host_client.errors import (
    ConflictError,
    DeadlineError,
    Offender,
    OutpostError,
    SessionError,
    UnavailableError,
)
from host_client.sandbox.channel import failure_of, translated
from host_client.sandbox.task import in_thread, task_group
from sandbox_api.wire import STATUS_KEY, pack_status

pytestmark = pytest.mark.anyio

FALLBACK = {
    grpc.StatusCode.UNAVAILABLE: (UnavailableError, "unreachable"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (DeadlineError, "deadline"),
    grpc.StatusCode.CANCELLED: (UnavailableError, "cancelled"),
    grpc.StatusCode.UNIMPLEMENTED: (UnavailableError, "unsupported"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (SessionError, "protocol"),
}


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_status_without_details_is_a_row_of_the_table(code: grpc.StatusCode) -> None:
    """Every status code has its failure, which names the target."""
    family, reason = FALLBACK.get(code, (UnavailableError, "internal"))
    failure = failure_of(code, None, "unix:/x")
    assert (type(failure), failure.reason) == (family, reason)
    assert "unix:/x" in failure.message
    assert failure.facts["grpc_status"] == code.name


def test_details_win_over_the_status_code() -> None:
    """What the daemon says in detail is raised as it was raised there."""
    said = ConflictError("busy", "S1 is held", hint="wait", facts={"pid": "7"}, offenders=[Offender("a", "is held")])
    failure = failure_of(grpc.StatusCode.UNAVAILABLE, [("x", "y"), (STATUS_KEY, pack_status(said))], "unix:/x")
    assert type(failure) is ConflictError
    assert (failure.reason, failure.message, failure.hint, failure.facts) == (
        "busy",
        "S1 is held",
        "wait",
        {"pid": "7"},
    )
    assert failure.offenders == said.offenders
    assert failure.retryable


def test_texts_of_a_daemon_are_made_printable() -> None:
    """No control character a daemon sends reaches a terminal, wherever it was put."""
    bad = "a\x1b[31m\nb"
    said = SessionError("symlink", bad, hint=bad, facts={bad: bad}, offenders=[Offender(bad, bad)])
    failure = failure_of(grpc.StatusCode.INTERNAL, [(STATUS_KEY, pack_status(said))], "unix:/x")
    texts = [failure.message, *failure.args, failure.hint, *failure.facts, *failure.facts.values()]
    texts += [text for offender in failure.offenders for text in (offender.path, offender.problem)]
    assert len(texts) == 7
    assert all(text.isprintable() for text in texts)


async def test_cancel_by_the_other_side_is_a_failure() -> None:
    """A cancelled call in a task that nobody cancelled is `unavailable`/`cancelled`, not a cancel of the task."""
    with pytest.raises(UnavailableError) as caught, translated("unix:/x"):
        raise asyncio.CancelledError
    assert caught.value.reason == "cancelled"


async def test_cancel_of_the_task_stays_a_cancel() -> None:
    """A task that is cancelled in a call ends as cancelled."""

    async def wait() -> None:
        with translated("unix:/x"):
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(wait())
    await asyncio.wait([task], timeout=0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_cancel_waits_for_the_thread() -> None:
    """A cancelled step has left its thread when the cancel is seen: nothing works on the same things at once."""
    began, goes_on, done = asyncio.Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def block() -> None:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(goes_on.wait(), loop).result()
        done.append("thread")

    async def step() -> None:
        try:
            await in_thread(block)
        finally:
            done.append("task")

    task = loop.create_task(step())
    await began.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.wait([task], timeout=0)
    assert not task.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["thread", "task"]


async def test_first_failure_of_a_group_is_raised_as_itself() -> None:
    """Concurrent steps fail with the failure, not with a group, and the others are cancelled."""
    cancelled = []

    async def fail() -> None:
        raise SessionError("changed", "a changed")

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def both() -> None:
        async with task_group() as group:
            group.create_task(wait())
            group.create_task(fail())

    with pytest.raises(OutpostError) as caught:
        await both()
    assert type(caught.value) is SessionError
    assert cancelled == [1]
