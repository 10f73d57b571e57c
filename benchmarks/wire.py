"""Count the bytes between a client and a daemon, from outside both: a Unix socket that passes all on."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.daemon import Daemon
from benchmarks.harness import MAX_COMMAND_SECONDS, BenchError

_CHUNK_BYTES = 256 * 1024


@dataclass
class Meter:
    """What went over the wire so far, both directions and all framing included."""

    target: str
    to_daemon_bytes: int = 0
    from_daemon_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Return the bytes of both directions."""
        return self.to_daemon_bytes + self.from_daemon_bytes


@contextmanager
def metered(daemon: Daemon) -> Iterator[Meter]:
    """Offer the daemon under a second socket beside its own and yield the meter of all that passes it."""
    meter = Meter(f"{daemon.target}.metered")
    socket_path = meter.target.removeprefix("unix:")
    daemon_path = daemon.target.removeprefix("unix:")
    ready, done = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def relay() -> None:
        server = await asyncio.start_unix_server(
            lambda reader, writer: _join(meter, daemon_path, reader, writer), socket_path
        )
        async with server:
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(relay(),), name="bench-wire")
    thread.start()
    try:
        if not ready.wait(MAX_COMMAND_SECONDS):
            raise BenchError("the metering socket did not open")
        yield meter
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()


async def _join(
    meter: Meter, daemon_path: str, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter
) -> None:
    daemon_reader, daemon_writer = await asyncio.open_unix_connection(daemon_path)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            if up:
                meter.to_daemon_bytes += len(chunk)
            else:
                meter.from_daemon_bytes += len(chunk)
            writer.write(chunk)
            await writer.drain()
        writer.close()

    async with asyncio.TaskGroup() as both:
        both.create_task(pass_on(client_reader, daemon_writer, up=True))
        both.create_task(pass_on(daemon_reader, client_writer, up=False))
