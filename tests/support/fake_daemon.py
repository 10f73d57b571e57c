"""A daemon whose answers a test writes down, message by message: what a hostile or broken sandbox might send."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from sandbox_api.v1 import bundle_pb2, daemon_pb2
from sandbox_api.wire import STATUS_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from google.protobuf.message import Message

    Script = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One call as the fake daemon sees it. A script that returns ends the call with OK."""

    def __init__(self, context: Any) -> None:
        self._context = context

    async def receive(self) -> bytes | None:
        """Return the next request, or None when the client writes no more."""
        data = await self._context.read()
        return data if isinstance(data, bytes) else None

    async def send(self, *messages: Message | bytes) -> None:
        """Send answers."""
        for message in messages:
            await self._context.write(message if isinstance(message, bytes) else message.SerializeToString())

    async def fail(self, code: grpc.StatusCode, details: bytes | None = None) -> None:
        """End the call with a status and, when given, the bytes of its details."""
        metadata = ((STATUS_KEY, details),) if details is not None else ()
        await self._context.abort(code, "text of gRPC", metadata)

    async def stall(self) -> None:
        """Say nothing until the client gives up."""
        await asyncio.Event().wait()


def info(**fields: Any) -> daemon_pb2.GetInfoResponse:
    """Return a proper answer of GetInfo, with these fields changed."""
    proper: dict[str, Any] = {
        "version": "0",
        "contracts": ["sandbox_api.v1"],
        "home": b"/home/agent",
        "workspace": b"/workspace",
        "limits": bundle_pb2.BundleLimits(max_bytes=1 << 30, max_files=1 << 20),
    }
    return daemon_pb2.GetInfoResponse(**{**proper, **fields})


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self._scripts = scripts

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        script = self._scripts.get(handler_call_details.method.removeprefix("/sandbox_api.v1."))
        if script is None:
            return None

        async def behave(_: Any, context: Any) -> None:
            await script(Exchange(context))

        return grpc.stream_stream_rpc_method_handler(behave)


@asynccontextmanager
async def fake_daemon(**scripts: Script) -> AsyncIterator[str]:
    """Serve the scripts, named `Service_Method`, and yield the target; GetInfo is answered properly unless scripted."""

    async def get_info(exchange: Exchange) -> None:
        await exchange.send(info())

    named = {"DaemonService/GetInfo": get_info}
    named |= {name.replace("_", "/"): script for name, script in scripts.items()}
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1), ("grpc.max_metadata_size", 1 << 20)])
    server.add_generic_rpc_handlers([_Handlers(named)])
    with tempfile.TemporaryDirectory() as directory:  # short: the path of a socket is limited
        target = f"unix:{Path(directory) / 'fake'}"
        server.add_insecure_port(target)
        await server.start()
        try:
            yield target
        finally:
            await server.stop(None)
