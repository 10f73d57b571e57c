"""A daemon that lies about processes: each lie is refused, memory is bounded, and nothing hangs."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from host_client.sandbox.sandbox import connect
from sandbox_api.v1 import process_pb2
from support.fake_daemon import Exchange, fake_daemon
from support.fake_process import ended, saying, served, stderr, stdout, taken, told_end
from support.lie import HANG_SECONDS, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from google.protobuf.message import Message

    from host_client.sandbox.sandbox import Sandbox
    from support.fake_daemon import Script

pytestmark = pytest.mark.anyio

PROTOCOL = "session/protocol"


async def refused(work: Callable[[Sandbox], Coroutine[Any, Any, object]], scripts: dict[str, Script]) -> str | None:
    """Return the code and reason with which work with such a daemon is refused."""
    async with asyncio.timeout(HANG_SECONDS), fake_daemon(**scripts) as target, connect(target) as sandbox:
        return await refusal(work(sandbox))


async def run(sandbox: Sandbox) -> object:
    """Run a command and read all it prints."""
    return await sandbox.run(["p"], max_output_bytes=1 << 20)


async def wait(sandbox: Sandbox) -> object:
    """Wait for the end of a process."""
    return await (await sandbox.processes.start(["p"])).wait()


async def find(sandbox: Sandbox) -> object:
    """Look a program up."""
    return await sandbox.processes.find_program("git")


async def look(sandbox: Sandbox) -> object:
    """List what there is."""
    return await sandbox.processes.list()


@pytest.mark.parametrize(
    "messages",
    [
        [stdout(0, b"x")],
        [taken(5), stdout(1, b"x")],
        [taken(), stdout(1, b"x")],
        [taken(), stdout(0, b"ab"), stdout(1, b"b")],
        [taken(), stderr(0, b"x"), stderr(0, b"x")],
        [taken(), stdout(0, b"")],
        [taken(), stdout(0, bytes(2 << 20))],
        [taken(), stdout(0, bytes(1 << 20)), stdout(1 << 20, b"x")],
        [taken(), stdout(0, bytes(1 << 19)), stderr(0, bytes((1 << 19) + 1))],
        [taken(1), taken(0)],
        [taken(), told_end(7)],
        [taken(), told_end(0, cause=0)],
        [taken(), told_end(), told_end()],
        [taken(), told_end(), stdout(0, b"x")],
        [process_pb2.AttachResponse()],
        [taken(), process_pb2.AttachResponse()],
        [b"\xff"],
    ],
    ids=[
        "output first",
        "a gap after foreign input",
        "a gap",
        "output twice",
        "standard error twice",
        "no byte",
        "too large a message",
        "more than asked for",
        "more than asked for on both streams",
        "input taken back",
        "an end before all output",
        "an end without a cause",
        "two ends",
        "output after the end",
        "nothing first",
        "nothing",
        "no message",
    ],
)
async def test_output_that_cannot_be_is_refused(messages: list[Message | bytes]) -> None:
    """`session`/`protocol`, and not tried again."""

    async def attach(call: Exchange) -> None:
        await call.receive()
        await call.send(*messages)
        await call.stall()

    assert await refused(run, served(attach)) == PROTOCOL


@pytest.mark.parametrize(
    ("work", "method", "answer"),
    [
        (wait, "Wait", process_pb2.WaitProcessResponse()),
        (wait, "Wait", process_pb2.WaitProcessResponse(running=False)),
        (wait, "Wait", process_pb2.WaitProcessResponse(exit=ended(cause=7))),
        (wait, "Wait", process_pb2.WaitProcessResponse(exit=ended(status=1 << 31))),
        (find, "FindProgram", process_pb2.FindProgramResponse(path=b"git")),
        (find, "FindProgram", process_pb2.FindProgramResponse(path=b"/bin/../git")),
        (look, "List", process_pb2.ListProcessesResponse(processes=[process_pb2.ProcessState(id="../x")])),
        (
            look,
            "List",
            process_pb2.ListProcessesResponse(processes=[process_pb2.ProcessState(id="x", exit=ended(cause=0))]),
        ),
    ],
)
async def test_answers_that_cannot_be_are_refused(
    work: Callable[[Sandbox], Coroutine[Any, Any, object]], method: str, answer: Message
) -> None:
    """Whatever was asked: `session`/`protocol`."""
    assert await refused(work, served(saying(), **{method: saying(answer)})) == PROTOCOL


async def test_two_ends_that_differ_are_refused() -> None:
    """What `Wait` told cannot become another end by `Attach`."""

    async def work(sandbox: Sandbox) -> None:
        process = await sandbox.processes.start(["p"])
        await process.wait()
        async for _ in process.output():
            pass

    waited = saying(process_pb2.WaitProcessResponse(exit=ended(status=1)))
    assert await refused(work, served(saying(taken(), told_end(status=2)), Wait=waited)) == PROTOCOL


async def test_a_flood_waits_at_the_daemon() -> None:
    """Output that nobody takes stays out of this process: of much a daemon can send only what connections hold."""
    is_all_sent = asyncio.Event()

    async def attach(call: Exchange) -> None:
        await call.receive()
        await call.send(taken())
        for number in range(64):
            await call.send(stdout(number << 20, bytes(1 << 20)))
        is_all_sent.set()

    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(**served(attach)) as target,
        connect(target) as sandbox,
        sandbox.run(["p"]) as process,
    ):
        async with aclosing(process.output()) as output:
            await anext(output)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(is_all_sent.wait(), 0.5)  # it takes a tenth of that when somebody reads


async def test_a_silent_daemon_is_left() -> None:
    """After the stall limit it is attached to again, and after the patience it is told."""

    async def silent(call: Exchange) -> None:
        await call.receive()
        await call.stall()

    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(**served(silent)) as target,
        connect(target, stall_seconds=0.2) as sandbox,
    ):
        assert await refusal(sandbox_run(sandbox)) == "timeout/deadline"


async def sandbox_run(sandbox: Sandbox) -> object:
    """Run a command with little patience."""
    return await sandbox.run(["p"], patience_seconds=0.3)
