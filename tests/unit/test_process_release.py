"""Releasing a process: also one that is just being started, as a client does that has cancelled its start."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from sandbox_agent.core.process_plan import Plan
from sandbox_agent.services.process import ProcessService
from sandbox_api.errors import ProcessError
from sandbox_api.v1 import process_pb2 as pb
from support.process_sandbox import processes_in
from support.wait import MAX_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox_agent.core.processes import Processes

pytestmark = pytest.mark.anyio


class Starting:
    """Processes of which one is being started, as far as a release looks at them."""

    def __init__(self) -> None:
        self.start: Future[Any] = Future()
        self.released: list[str] = []
        self.pump = SimpleNamespace(call=lambda call: call())

    def starting(self, process_id: str) -> Future[Any] | None:
        """Return the start of the only one."""
        return self.start if process_id == "one" else None

    def get(self, process_id: str) -> Any:
        """Return it once it is started."""
        if process_id != "one" or not self.start.done() or self.start.exception():
            raise ProcessError("unknown", "not known")
        return self.start.result()

    def release(self, process_id: str) -> None:
        """Note it."""
        self.released.append(process_id)


async def released(processes: Starting | Processes, process_id: str) -> asyncio.Task[pb.ReleaseProcessResponse]:
    """Begin a release and give it every chance to end."""
    with ThreadPoolExecutor(1) as executor:
        service = ProcessService(cast("Any", processes), executor, "instance")
        request = pb.ReleaseProcessRequest(id=process_id)
        task = asyncio.ensure_future(service.Release(request, cast("Any", None)))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def test_a_process_that_is_being_started_is_released() -> None:
    """It is waited for: otherwise it would run on with nobody who knows of it."""
    processes = Starting()
    task = await released(processes, "one")
    assert not task.done()
    audience = SimpleNamespace(wake_by=lambda _: None, wake_no_more=lambda _: None)
    processes.start.set_result(SimpleNamespace(exit=object(), audience=audience))
    await task
    assert processes.released == ["one"]


async def test_a_start_that_fails_leaves_nothing_to_release() -> None:
    """That is no error of the release."""
    processes = Starting()
    task = await released(processes, "one")
    processes.start.set_exception(ProcessError("no_such_program", "none"))
    await task
    assert processes.released == []


async def test_an_unknown_process_is_no_error() -> None:
    """Nothing is waited for."""
    processes = Starting()
    await asyncio.wait_for(await released(processes, "other"), 30)
    assert processes.released == []


def test_the_answer_comes_when_it_is_forgotten(tmp_path: Path) -> None:
    """Not before: who had the answer may start another one by that id."""
    may_go_on = threading.Event()

    async def release(processes: Processes) -> None:
        task = await released(processes, "one")
        assert not task.done()
        may_go_on.set()
        await task
        assert processes.known() == []

    with processes_in(tmp_path) as processes:
        process = processes.start("one", Plan(argv=(b"true",)), b"").result(MAX_SECONDS)
        wait_until(lambda: process.exit is not None, "its end")
        processes.pump.call(may_go_on.wait)
        try:
            asyncio.run(release(processes))
        finally:
            may_go_on.set()
