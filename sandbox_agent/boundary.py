"""The one place where failures leave the daemon.

Every call of the contract runs inside it. Whatever a call raises becomes a status with a code and a reason of the
table; the text of a foreign library, a class name or a traceback never crosses the wire.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from sandbox_agent import log
from sandbox_agent.errors import from_os
from sandbox_api.errors import OutpostError, SessionError, UnavailableError
from sandbox_api.wire import STATUS_KEY, pack_status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from google.protobuf.message import Message

    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = Callable[[Any, Context], Awaitable[Any]]

CONTRACT_PREFIX = "/sandbox_api."
"""Methods of the contract; health and reflection are foreign and have their own manners."""

_MAX_DETAILS_CHARS = 128  # beside the packed status, so that both fit gRPC's 8 KiB of metadata


class Boundary(grpc.aio.ServerInterceptor):
    """Run each call of the contract, turn its failure into a status and write one line of log about it."""

    def __init__(self) -> None:
        self._active_count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until no call is left, those included that are cleaning up after their client went away."""
        await self._idle.wait()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of a call of the contract."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(CONTRACT_PREFIX):
            return handler
        if handler.request_streaming and handler.response_streaming:
            make, inner = grpc.stream_stream_rpc_method_handler, handler.stream_stream
        elif handler.request_streaming:
            make, inner = grpc.stream_unary_rpc_method_handler, handler.stream_unary
        elif handler.response_streaming:
            make, inner = grpc.unary_stream_rpc_method_handler, handler.unary_stream
        else:
            make, inner = grpc.unary_unary_rpc_method_handler, handler.unary_unary
        # A single request is decoded in here, so that its failure to be is ours to report.
        decode = None if handler.request_streaming else handler.request_deserializer
        return make(
            self._wrap(method, inner, decode),
            request_deserializer=handler.request_deserializer if handler.request_streaming else None,
            response_serializer=_serialize,
        )

    def _wrap(self, method: str, inner: Handler, decode: Callable[[bytes], Any] | None) -> Handler:
        async def run(request: Any, context: Context) -> Any:
            call_id = uuid.uuid4().hex[:12]
            began = time.monotonic()
            self._active_count += 1
            self._idle.clear()
            outcome = "ok"
            try:
                return await inner(decode(request) if decode else request, context)
            except asyncio.CancelledError:
                # The client went away or the daemon is ending: nobody is left to be told.
                outcome = "unavailable/cancelled"
                raise
            except Exception as error:  # noqa: BLE001  the boundary is where everything ends
                failure = _failure(error, call_id)
                outcome = f"{failure.code}/{failure.reason}"
                _tell(failure, error, call_id)
                return await _abort(context, failure)
            finally:
                seconds = f"{time.monotonic() - began:.3f}"
                log.info("call", call=call_id, method=method, seconds=seconds, outcome=outcome)
                self._active_count -= 1
                if not self._active_count:
                    self._idle.set()

        return run


def _serialize(message: Message | bytes) -> bytes:
    # A message with a chunk comes as bytes already, made with one copy of its data (`wire.chunk_message`).
    return message if isinstance(message, bytes) else message.SerializeToString()


def _tell(failure: OutpostError, error: Exception, call_id: str) -> None:
    log.debug("failure", call=call_id, message=failure.message)
    for note in getattr(error, "__notes__", ()):
        # What failed while cleaning up after the error.
        log.warning("something may be left behind", call=call_id)
        log.debug("note", call=call_id, text=note)


def _failure(error: Exception, call_id: str) -> OutpostError:
    if isinstance(error, OutpostError):
        return error
    if isinstance(error, OSError):
        return from_os(error)
    if isinstance(error, DecodeError):
        return SessionError("protocol", "a message of the call cannot be decoded")
    if isinstance(error, grpc.aio.BaseError):
        return UnavailableError("cancelled", "the call ended while it was in progress")
    log.failure("incident", error, call=call_id)
    return UnavailableError(
        "internal",
        f"an unforeseen error; the daemon's log has it as incident {call_id}",
        hint="report it with the lines of the daemon's log that have this number",
        facts={"incident": call_id},
    )


async def _abort(context: Context, failure: OutpostError) -> None:
    await context.abort(
        grpc.StatusCode[failure.grpc_status],
        f"{failure.code}/{failure.reason}: {failure.message[:_MAX_DETAILS_CHARS]}",
        ((STATUS_KEY, pack_status(failure)),),
    )
