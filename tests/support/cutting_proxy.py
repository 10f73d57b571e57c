"""A socket between client and daemon that cuts each connection after so many bytes."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

_PIECE_BYTES = 16 << 10


class CuttingProxy:
    """The proxy.

    Args:
        socket_path: Where the daemon listens.
        cut_after_bytes: After how many bytes, of both directions, each connection is cut; later ones never are.

    Attributes:
        cuts_count: How many were cut.
    """

    def __init__(self, socket_path: Path, cut_after_bytes: Sequence[int]) -> None:
        self.cuts_count = 0
        self._socket_path = socket_path
        self._left = list(cut_after_bytes)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        finally:
            self._tasks.discard(task)

    async def close(self) -> None:
        """End all connections: their daemon waits for them when it ends."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left_bytes = self._left.pop(0) if self._left else None
        there, here = await asyncio.open_unix_connection(self._socket_path)

        async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            nonlocal left_bytes
            while data := await source.read(_PIECE_BYTES):
                if left_bytes == 0:
                    break
                if left_bytes is not None:
                    data = data[:left_bytes]
                    left_bytes -= len(data)
                    self.cuts_count += not left_bytes
                sink.write(data)
                await sink.drain()
            writer.close()
            here.close()

        try:
            with suppress(OSError, asyncio.CancelledError):  # the other direction has cut it, or the test is over
                await asyncio.gather(carry(reader, here), carry(there, writer))
        finally:
            for transport in (writer.transport, here.transport):
                if not transport.is_closing():
                    transport.abort()


@asynccontextmanager
async def cutting_proxy(target: str, cut_after_bytes: Sequence[int]) -> AsyncIterator[tuple[str, CuttingProxy]]:
    """Stand in front of the daemon at a `unix:` target; yield the target to use instead, and the proxy."""
    proxy = CuttingProxy(Path(target.removeprefix("unix:")), cut_after_bytes)
    with tempfile.TemporaryDirectory() as directory:  # short: the path of a socket is limited
        path = Path(directory) / "proxy"
        server = await asyncio.start_unix_server(proxy.serve, path)
        try:
            yield f"unix:{path}", proxy
        finally:
            server.close()
            await proxy.close()
            await asyncio.sleep(0)  # aborted connections are closed in the loop's next round
