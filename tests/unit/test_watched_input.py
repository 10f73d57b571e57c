"""What a process is given to read by the client: whole, once, in order, and while its output waits."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from host_client.sandbox.process import MAX_BUFFERED_BYTES
from host_client.sandbox.sandbox import connect
from sandbox_api.v1 import process_pb2
from support.fake_daemon import Exchange, fake_daemon
from support.fake_process import (
    Typed,
    collected,
    ended,
    saying,
    served,
    stdout,
    taken,
    told_end,
)

pytestmark = pytest.mark.anyio


async def test_input_is_taken_whole_and_once() -> None:
    """More than one message has, over calls that break in the middle, each byte in its place."""
    data = bytes(range(256)) * 8192
    typed = Typed(break_after_bytes=300_000)
    async with (
        fake_daemon(**served(typed.attach)) as target,
        connect(target) as sandbox,
        sandbox.run(["p"], open_input=True) as process,
    ):
        assert await process.write(data)
        assert await process.write(b"more")
        await process.close_input()
        await process.close_input()
        assert not await process.write(b"late")
        await collected(process)
    assert bytes(typed.content) == data + b"more"
    assert typed.calls_count > 5


async def test_large_input_of_an_awaited_run_is_written() -> None:
    """What does not fit into the start follows it, then the end."""
    data = bytes(range(256)) * 8192
    typed = Typed()
    async with fake_daemon(**served(typed.attach, Start=typed.start)) as target, connect(target) as sandbox:
        assert (await sandbox.run(["p"], input=data)).ok
    assert bytes(typed.content) == data


async def test_a_cancelled_write_leaves_no_hole() -> None:
    """What had been sent once is sent again before what comes next, since the process may be given it at any time."""
    typed = Typed(take_up_to_bytes=3)
    async with (
        fake_daemon(**served(typed.attach)) as target,
        connect(target) as sandbox,
        sandbox.run(["p"], open_input=True) as process,
    ):
        writing = asyncio.ensure_future(process.write(b"abcdef"))
        await typed.is_full.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        typed.take_up_to_bytes = 1000
        assert await process.write(b"XYZ")
        assert bytes(typed.content) == b"abcdefXYZ"


async def test_a_process_that_reads_no_more_is_told_to_the_writer() -> None:
    """`write` says so and does not wait for ever."""
    attach = saying(taken(closed=True), told_end())
    async with (
        fake_daemon(**served(attach)) as target,
        connect(target) as sandbox,
        sandbox.run(["p"], open_input=True) as process,
    ):
        assert not await process.write(b"x")


async def test_output_waits_while_input_is_written() -> None:
    """A writer takes output off the connection only as far as there is room for it; none of it is lost."""
    sent = asyncio.Event()
    pieces = [stdout(offset << 20, bytes(1 << 20)) for offset in range(4)]

    async def attach(call: Exchange) -> None:
        await call.receive()
        await call.send(taken())
        await call.receive()
        await call.send(pieces[0])
        sent.set()
        await call.send(*pieces[1:], taken(1), told_end(4 << 20))

    async with (
        fake_daemon(**served(attach)) as target,
        connect(target) as sandbox,
        sandbox.run(["p"], open_input=True) as process,
    ):
        writing = asyncio.ensure_future(process.write(b"x"))
        await sent.wait()
        assert not writing.done()
        assert process._buffered_bytes <= MAX_BUFFERED_BYTES
        assert len(await collected(process)) == 4 << 20
        assert await writing


async def test_waiting_lets_go_of_output_that_nobody_reads() -> None:
    """A process that is held up by us would never end: the connection that is not read is given up."""
    is_cut = asyncio.Event()

    async def attach(call: Exchange) -> None:
        await call.receive()
        await call.send(taken())
        await call.receive()
        await call.send(taken(1))
        try:
            for offset in range(64):
                await call.send(stdout(offset << 20, bytes(1 << 20)))
        except BaseException:
            is_cut.set()
            raise

    async def wait(call: Exchange) -> None:
        await is_cut.wait()
        await call.send(process_pb2.WaitProcessResponse(exit=ended(64 << 20)))

    async with (
        fake_daemon(**served(attach, Wait=wait)) as target,
        connect(target) as sandbox,
        sandbox.run(["p"], open_input=True) as process,
    ):
        assert await process.write(b"x")
        assert (await process.wait()).stdout_bytes == 64 << 20


async def test_a_terminal_keeps_its_last_size() -> None:
    """A size that is given is sent at once, and again by a new call."""
    sizes: list[tuple[int, int]] = []
    is_told = asyncio.Event()

    async def attach(call: Exchange) -> None:
        await call.receive()
        await call.send(taken())
        size = process_pb2.AttachRequest.FromString(await call.receive() or b"").resize
        sizes.append((size.rows, size.columns))
        if len(sizes) == 1:
            await call.send(stdout(0, b"a"))
            is_told.set()
            await call.fail(grpc.StatusCode.UNAVAILABLE)
        await call.send(told_end(1))

    async with (
        fake_daemon(**served(attach)) as target,
        connect(target) as sandbox,
        sandbox.run(["p"], terminal=(24, 80)) as process,
    ):
        await process.resize(50, 100)
        await is_told.wait()
        assert await collected(process) == b"a"
    assert sizes == [(50, 100), (50, 100)]
