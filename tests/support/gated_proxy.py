"""A socket between client and daemon that holds one direction when so much has passed, until it is told to go on."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PIECE_BYTES = 16 << 10


class GatedProxy:
    """The proxy.

    Args:
        socket_path: Where the daemon listens.
        direction: What is held: what comes from the daemon, or what goes to it.
        hold_after_bytes: How much passes before; None: nothing is held.

    Attributes:
        held: Set when something is held.
        opened: What is held waits for this.
    """

    def __init__(self, socket_path: Path, direction: Literal["from", "to"], hold_after_bytes: int | None) -> None:
        self.held, self.opened = asyncio.Event(), asyncio.Event()
        self._socket_path = socket_path
        self._direction = direction
        self._hold_after_bytes = hold_after_bytes
        self._passed_bytes = 0
        self._writers: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        """Cut all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        there, here = await asyncio.open_unix_connection(self._socket_path)
        self._writers += [writer, here]

        async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_gated: bool) -> None:
            while data := await source.read(_PIECE_BYTES):
                if is_gated:
                    self._passed_bytes += len(data)
                    if self._hold_after_bytes is not None and self._passed_bytes > self._hold_after_bytes:
                        self.held.set()
                        await self.opened.wait()
                sink.write(data)
                await sink.drain()
            writer.close()
            here.close()

        with suppress(OSError):  # cut
            await asyncio.gather(
                carry(reader, here, is_gated=self._direction == "to"),
                carry(there, writer, is_gated=self._direction == "from"),
            )


@asynccontextmanager
async def gated_proxy(
    target: str, direction: Literal["from", "to"], hold_after_bytes: int | None = None
) -> AsyncIterator[tuple[str, GatedProxy]]:
    """Stand in front of the daemon at a `unix:` target; yield the target to use instead, and the proxy."""
    proxy = GatedProxy(Path(target.removeprefix("unix:")), direction, hold_after_bytes)
    with tempfile.TemporaryDirectory() as directory:  # short: the path of a socket is limited
        path = Path(directory) / "proxy"
        server = await asyncio.start_unix_server(proxy.serve, path)
        try:
            yield f"unix:{path}", proxy
        finally:
            proxy.opened.set()
            proxy.cut()
            server.close()
