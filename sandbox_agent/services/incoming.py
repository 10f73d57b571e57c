"""Receive a stream: header, chunks, trailer, end; any other order is refused.

The one rule: nothing counts before the trailer has come and the client has closed its side. gRPC ends a stream that was
cut like a complete one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from sandbox_api.errors import LimitError, SessionError
from sandbox_api.framing import PayloadCheck

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from sandbox_agent.services.worker import Worker
    from sandbox_api.limits import Limits


_EOF = grpc.aio.EOF


class Incoming:
    """The client's side of one call.

    All its messages are a choice named `part` of `header`, `chunk` and `trailer`.

    Attributes:
        is_cut: Whether the stream ended before its trailer, as one does whose connection broke.

    Raises:
        SessionError: from every method: `protocol` for another order, `incomplete` for an end before the trailer.
    """

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._context = context
        self._check = PayloadCheck()
        self.is_cut = False
        self._early = b""
        self._trailer: Any = None

    async def header(self) -> Any:
        """Return the header, which comes first."""
        part, message = await self._next()
        if part != "header":
            raise SessionError("protocol", f"the stream begins with a {part} instead of its header")
        return message

    async def manifest(self, size: int, limits: Limits) -> bytes:
        """Return the first `size` bytes of the payload, the serialized manifest.

        Raises:
            LimitError: `max_manifest_bytes`.
        """
        if size > limits.max_manifest_bytes:
            raise LimitError(
                "max_manifest_bytes",
                f"a manifest of {size} bytes is larger than the {limits.max_manifest_bytes} bytes allowed",
                hint="raise max_files on both sides",
                facts={"max_manifest_bytes": str(limits.max_manifest_bytes)},
            )
        received = bytearray()
        while len(received) < size:
            data = await self._chunk()
            if data is None:
                raise SessionError("incomplete", "the stream ended within its manifest")
            received += data
        self._early = bytes(received[size:])
        return bytes(received[:size])

    def expect(self, left_bytes: int) -> None:
        """Refuse, from now on, a payload with more than that many bytes after the manifest."""
        self._check.max_bytes = self._check.size - len(self._early) + left_bytes

    async def pass_on(self, worker: Worker, feed: Callable[[bytes], None]) -> bytes:
        """Feed the rest of the payload to a blocking function; return the trailer's digest once all has arrived.

        The next chunk is received while the current one is being fed.
        """
        step: Future[None] | None = worker.start(feed, self._early) if self._early else None
        while (data := await self._chunk()) is not None:
            if step is not None:
                await asyncio.wrap_future(step)
            step = worker.start(feed, data)
        if step is not None:
            await asyncio.wrap_future(step)
        self._check.finish(self._trailer.size)
        await self.end()
        digest: bytes = self._trailer.sha256
        return digest

    async def part(self, *names: str) -> tuple[str, Any]:
        """Return the next message, which must be one of these parts."""
        part, message = await self._next()
        if part not in names:
            raise SessionError("protocol", f"a {part} stands where {' or '.join(names)} was next")
        return part, message

    async def _chunk(self) -> bytes | None:
        part, message = await self._next()
        if part == "trailer":
            self._trailer = message
            return None
        if part != "chunk":
            raise SessionError("protocol", f"a {part} stands where a chunk or the trailer was next")
        return self._check.accept(message.offset, message.data)

    async def _next(self) -> tuple[str, Any]:
        message = await self._context.read()
        if message is _EOF:
            self.is_cut = True
            raise SessionError("incomplete", "the stream ended before its trailer")
        part = message.WhichOneof("part") or "message without content"
        return part, getattr(message, part, None)

    async def end(self) -> None:
        """Wait for the end of the stream, which is next."""
        if await self._context.read() is not _EOF:
            raise SessionError("protocol", "the stream goes on after its end")
