"""The client process of the processes' bench: work of the public library on one daemon, timed inside, and its peers.

Run as `python -m benchmarks.process WORK TARGET`. It does the work once and prints one line of JSON: the seconds it
took, on an open connection, and the peak memory. `bare` in a name is the same by a child of this process.
"""

import asyncio
import json
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from statistics import median

from benchmarks.daemon import own_peak_mib
from host_client import Sandbox, connect

OUTPUT_BYTES = 512 << 20
STARTS_COUNT = 200
STREAMS_COUNT = 8
PROCESSES_COUNT = 100
_TIMED_STARTS_COUNT = 60
_READ_BYTES = 1 << 20

_PRINT = ["head", "-c", str(OUTPUT_BYTES), "/dev/zero"]
_ENDLESS = ["cat", "/dev/zero"]
_SHORT = ["true"]


async def output(sandbox: Sandbox) -> float:
    """Read all that a process prints."""
    began = time.perf_counter()
    size_bytes = 0
    async with sandbox.run(_PRINT) as process:
        async for piece in process.output():
            size_bytes += len(piece.data)
    _demand(size_bytes == OUTPUT_BYTES)
    return time.perf_counter() - began


async def bare_output(_: Sandbox) -> float:
    """Read the same from a pipe."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*_PRINT, stdout=PIPE, limit=_READ_BYTES)
    _demand(process.stdout is not None)
    size_bytes = 0
    while process.stdout is not None and (data := await process.stdout.read(_READ_BYTES)):
        size_bytes += len(data)
    _demand(await process.wait() == 0 and size_bytes == OUTPUT_BYTES)
    return time.perf_counter() - began


async def busy_starts(sandbox: Sandbox) -> float:
    """Run short commands one after the other, while processes print as fast as their output is read."""

    async def read() -> None:
        async with sandbox.run(_ENDLESS) as process:
            async for _ in process.output():
                pass

    async def start() -> None:
        _demand((await sandbox.run(_SHORT)).ok)

    return await _beside(read, start)


async def bare_busy_starts(_: Sandbox) -> float:
    """Do the same with children of our own."""

    async def read() -> None:
        process = await asyncio.create_subprocess_exec(*_ENDLESS, stdout=PIPE, limit=_READ_BYTES)
        try:
            while process.stdout is not None and await process.stdout.read(_READ_BYTES):
                pass
        finally:
            process.kill()
            await process.wait()

    async def start() -> None:
        process = await asyncio.create_subprocess_exec(*_SHORT, stdout=PIPE, stderr=PIPE)
        await process.communicate()
        _demand(process.returncode == 0)

    return await _beside(read, start)


async def start(sandbox: Sandbox) -> float:
    """Start a process that lives on its own: the median of many starts."""

    async def once() -> None:
        started.append(await sandbox.processes.start(_SHORT))

    started = []
    seconds = await _median(once)
    for process in started:
        _demand((await process.wait()).ok)
        await sandbox.processes.release(process.id)
    return seconds


async def bare_start(sandbox: Sandbox) -> float:
    """Start a child and make one call: what a start through a daemon is made of."""

    async def once() -> None:
        started.append(await asyncio.create_subprocess_exec(*_SHORT, stdin=DEVNULL, stdout=PIPE, stderr=PIPE))
        await sandbox.info()

    started: list[asyncio.subprocess.Process] = []
    seconds = await _median(once)
    for process in started:
        await process.communicate()
    return seconds


async def many(sandbox: Sandbox) -> float:
    """Have many processes that print and are read, and hold them all at once."""
    began = time.perf_counter()
    async with AsyncExitStack() as processes:
        for _ in range(PROCESSES_COUNT):
            process = await processes.enter_async_context(sandbox.run(["sh", "-c", "echo ready; exec sleep 1000"]))
            async for piece in process.output():
                _demand(piece.data == b"ready\n")
                break
        return time.perf_counter() - began


async def _beside(read: Callable[[], Awaitable[None]], run: Callable[[], Awaitable[None]]) -> float:
    async def reading() -> None:
        await read()

    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(reading()) for _ in range(STREAMS_COUNT)]
        await run()  # the readers have begun by then
        began = time.perf_counter()
        for _ in range(STARTS_COUNT):
            await run()
        seconds = time.perf_counter() - began
        for reader in readers:
            reader.cancel()
    return seconds


async def _median(once: Callable[[], Awaitable[None]]) -> float:
    seconds = []
    for _ in range(_TIMED_STARTS_COUNT + 1):
        began = time.perf_counter()
        await once()
        seconds.append(time.perf_counter() - began)
    return median(seconds[1:])  # the first warms up


def _demand(holds: object) -> None:
    if not holds:
        raise RuntimeError("a process did not do what it was started for")


_WORKS = {work.__name__: work for work in (output, bare_output, busy_starts, bare_busy_starts, start, bare_start, many)}


async def _main(work: str, target: str) -> None:
    async with connect(target) as sandbox:
        seconds = await _WORKS[work](sandbox)
    print(json.dumps({"seconds": seconds, "peak_mib": own_peak_mib()}))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
