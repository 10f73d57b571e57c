"""Processes whose connection is cut, or whose daemon goes: nothing is lost, nothing comes twice, nothing hangs."""

from __future__ import annotations

import asyncio
import random
import sys
from typing import TYPE_CHECKING

import pytest

from host_client.errors import OutpostError, ProcessError
from host_client.sandbox.sandbox import connect
from support.cutting_proxy import cutting_proxy
from support.daemon import running_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from host_client.sandbox.process import Process
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio

NUMBERS_COUNT = 100_000
ECHO_AND_COUNT = f"""
import os, sys
numbers = b"".join(number.to_bytes(8, "big") for number in range({NUMBERS_COUNT}))
at = 0
while data := os.read(0, 65536):
    os.write(1, data) if len(data) <= 4096 else sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    sys.stderr.buffer.write(numbers[at : at + 50_000])
    sys.stderr.buffer.flush()
    at += 50_000
sys.stderr.buffer.write(numbers[at:])
"""
"""Prints what it reads, and beside it numbers on standard error."""

INPUT = random.Random(11).randbytes(1 << 20)  # noqa: S311 - any bytes


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon for this module."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.mark.parametrize("seed", range(6))
async def test_every_byte_comes_once_however_the_connection_is_cut(daemon: RunningDaemon, seed: int) -> None:
    """Input and both outputs are byte-exact over connections that end anywhere, in the middle of messages too."""
    chance = random.Random(seed)  # noqa: S311 - a test's
    cuts = [chance.randrange(5_000, 700_000) for _ in range(5)]
    collected = {"stdout": bytearray(), "stderr": bytearray()}

    async def feed(process: Process) -> None:
        at = 0
        while at < len(INPUT):
            size = chance.randrange(1, 300_000)
            assert await process.write(INPUT[at : at + size])
            at += size
        await process.close_input()

    async with (
        cutting_proxy(daemon.target, cuts) as (target, proxy),
        connect(target) as sandbox,
        sandbox.run([sys.executable, "-I", "-S", "-c", ECHO_AND_COUNT], open_input=True) as process,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(feed(process))
        async for item in process.output():
            assert item.offset == len(collected[item.stream])
            collected[item.stream] += item.data
    assert process.exit is not None
    assert process.exit.ok
    assert collected["stdout"] == INPUT
    assert collected["stderr"] == b"".join(number.to_bytes(8, "big") for number in range(NUMBERS_COUNT))
    assert proxy.cuts_count >= 3


async def test_a_process_outlives_the_client_that_started_it(daemon: RunningDaemon) -> None:
    """Another connection attaches to it, from any offset that is kept, and writes."""
    async with connect(daemon.target) as first:
        started = await first.processes.start(["cat"], open_input=True)
        await started.write(b"from the first")
    async with connect(daemon.target) as second:
        assert [state.exit for state in await second.processes.list() if state.id == started.id] == [None]
        process = second.processes.attach(started.id, stdout_offset=5)
        assert await process.write(b", from the second")
        await process.close_input()
        assert b"".join([item.data async for item in process.output()]) == b"the first, from the second"
        await second.processes.release(started.id)
        with pytest.raises(ProcessError) as caught:
            await process.wait() if process.exit is None else await second.processes.attach(started.id).wait()
    assert caught.value.reason == "unknown"


async def test_a_daemon_that_is_killed_fails_its_readers(tmp_path: Path) -> None:
    """Within the patience of the run; leaving the block does not hang."""

    async def watch() -> None:
        async with sandbox.run(["cat"], open_input=True, patience_seconds=0.5) as process:
            await process.write(b"x")
            running.process.kill()
            async for _ in process.output():
                pass

    with running_daemon(tmp_path) as running:
        async with connect(running.target) as sandbox:
            with pytest.raises(OutpostError) as caught:
                await watch()
    assert (caught.value.code, caught.value.reason) == ("unavailable", "unreachable")


async def test_a_daemon_that_is_restarted_knows_no_process(tmp_path: Path) -> None:
    """Who watches a process over the restart of its daemon learns at once that it is gone."""
    with running_daemon(tmp_path) as first:
        async with connect(first.target) as sandbox:
            process = await sandbox.processes.start(["sleep", "1000"])
            first.process.kill()
            first.process.wait()
            with running_daemon(tmp_path) as second:
                assert second.target == first.target
                with pytest.raises(ProcessError) as caught:
                    async for _ in process.output():
                        pass
                with pytest.raises(ProcessError):
                    await process.wait()
    assert caught.value.reason == "unknown"
