"""Calls to one daemon as the rest of the client sees them: messages in, messages out, `OutpostError` on failure.

A daemon that stops answering cannot hang a call: every step waits at most `stall_seconds`.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from host_client.errors import SessionError, UnavailableError
from host_client.sandbox.channel import failure_of, open_channel, translated
from host_client.session.forked import refuse_forked

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType
    from typing import Self

    from host_client.errors import OutpostError

STALL_SECONDS = 60.0
"""Longest silence of a daemon in the middle of a call."""

_OPEN: dict[int, int] = {}
"""The connections that are open, each with its process: a forked child inherits them, and not gRPC's threads."""

R = TypeVar("R", bound=Message)


class Stream(Generic[R]):
    """One call whose messages are written and read one by one. Leaving the context cancels it unless it is over."""

    def __init__(self, call: Any, response: type[R], target: str, stall_seconds: float) -> None:
        self._call = call
        self._end: tuple[grpc.StatusCode, Any] | None = None
        self._has_failed_write = False
        call.add_done_callback(self._note_end)
        self._response = response
        self._target = target
        self._stall_seconds = stall_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Give the call up; nothing happens when it is over."""
        self._call.cancel()

    async def read(self, *, more_seconds: float = 0.0) -> R | None:
        """Return the next message, or None when the daemon ended the call with success.

        Args:
            more_seconds: Time beside the stall limit for a daemon that has something long to do.

        Raises:
            OutpostError: what the daemon reported; `session`/`protocol` for a message that cannot be decoded;
                `timeout`/`deadline` when none came within the stall limit; `unavailable`.
        """
        data = await self.read_serialized(more_seconds=more_seconds)
        return None if data is None else decoded(self._response, data)

    async def read_serialized(self, *, more_seconds: float = 0.0) -> bytes | None:
        """Return the next message as it came; as `read` else."""
        with translated(self._target):
            async with asyncio.timeout(self._stall_seconds + more_seconds):
                try:
                    data: Any = await self._call.read()
                except grpc.aio.AioRpcError:
                    if self._has_failed_write:  # in another task, and its failure may be all that the call tells
                        raise await self._reported() from None
                    raise
        return data if isinstance(data, bytes) else None

    async def write(self, message: Message) -> None:
        """Send one message; see `write_serialized`."""
        await self.write_serialized(message.SerializeToString())

    async def write_serialized(self, data: bytes) -> None:
        """Send one message that is serialized already; returns when there is room for the next.

        Raises:
            OutpostError: as `read`. A call that the daemon ended while we were writing fails with what the daemon
                reported.
        """
        with translated(self._target):
            async with asyncio.timeout(self._stall_seconds):
                try:
                    await self._call.write(data)
                except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
                    self._has_failed_write = True
                    raise await self._reported() from None

    async def finish_writing(self) -> None:
        """Tell the daemon that nothing more comes."""
        with translated(self._target):
            async with asyncio.timeout(self._stall_seconds):
                await self._call.done_writing()

    async def next(self, *, more_seconds: float = 0.0) -> R:
        """Return the next message of a call that is not complete.

        Args:
            more_seconds: As for `read`.

        Raises:
            OutpostError: as `read`; `unavailable`/`unreachable` when the call ends without an answer.
        """
        answer = await self.read(more_seconds=more_seconds)
        if answer is None:
            raise self.cut()
        return answer

    async def only(self, *, more_seconds: float = 0.0) -> R:
        """Return the one message of a call that answers once.

        Args:
            more_seconds: As for `read`.

        Raises:
            OutpostError: as `read`; `unavailable`/`unreachable` when the call ends without an answer.
        """
        answer = await self.next(more_seconds=more_seconds)
        await self.end()
        return answer

    async def end(self) -> None:
        """Wait for the end of the call.

        Raises:
            OutpostError: as `read`; `session`/`protocol` when another message comes.
        """
        if await self.read() is not None:
            raise SessionError("protocol", f"the daemon at {self._target} goes on after the end of the stream")

    def cut(self) -> UnavailableError:
        """Return the failure of a call that ended with success before it was complete."""
        return UnavailableError("unreachable", f"the daemon at {self._target} ended the call before it was complete")

    async def _reported(self) -> OutpostError:
        code, metadata = self._end or (await self._call.code(), await self._call.trailing_metadata())
        # gRPC's own word for a write that found the call ended, when the daemon's is still behind unread messages.
        is_unknown = code is grpc.StatusCode.INTERNAL and not metadata
        if code is grpc.StatusCode.OK or is_unknown:
            return self.cut()
        return failure_of(code, metadata, self._target)

    def _note_end(self, call: Any) -> None:
        # A write that meets the end of the call replaces the daemon's status by one of gRPC's (measured, grpcio 1.85),
        # so it is kept as soon as it is there. It is there: these coroutines return at once.
        self._end = (_returned(call.code()), _returned(call.trailing_metadata()))


class Connection:
    """A channel to one daemon.

    Args:
        address: Where the daemon listens, as gRPC takes it.
        target: How people call it.
        stall_seconds: Longest silence of the daemon in a call.

    Attributes:
        is_closed: Whether this side has closed it: then there is nothing to wait for.

    Raises:
        ConfigurationError: `invalid_argument`: the process was forked from one that had connections.
    """

    def __init__(self, address: str, target: str, *, stall_seconds: float = STALL_SECONDS) -> None:
        self.target = target
        self.stall_seconds = stall_seconds
        self.is_closed = False
        for process_id in tuple(_OPEN.values()):
            refuse_forked(process_id, "connections")
        self._channel = open_channel(address)
        _OPEN[id(self)] = os.getpid()

    async def close(self) -> None:
        """Close the channel; calls that are not over fail with `unavailable`/`cancelled`. May be repeated."""
        self.is_closed = True
        _OPEN.pop(id(self), None)
        await self._channel.close(None)

    async def ask(self, method: str, request: Message, response: type[R], *, seconds: float | None = None) -> R:
        """Make a call of one request and one answer.

        Args:
            method: Service and method below `sandbox_api.v1`, such as `DaemonService/GetInfo`.
            request: The request.
            response: Type of the answer.
            seconds: Longest time to wait; None: the stall limit.

        Raises:
            OutpostError: as `Stream.read`.
        """
        with translated(self.target):
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(_path(method), None, None)
            data = await call(request.SerializeToString(), timeout=seconds or self.stall_seconds)
        return decoded(response, data)

    def open(self, method: str, response: type[R]) -> Stream[R]:
        """Begin a call that takes a stream. One answer is on the wire what a stream of one is."""
        with translated(self.target):
            call: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(
                _path(method), None, None
            )
            stream = call(None)
        return Stream(stream, response, self.target, self.stall_seconds)

    def begin(self, method: str, request: Message, response: type[R]) -> Stream[R]:
        """Begin a call that takes one request and answers with a stream, which is only read."""
        with translated(self.target):
            call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(
                _path(method), None, None
            )
            stream = call(request.SerializeToString())
        return Stream(stream, response, self.target, self.stall_seconds)


def decoded(response: type[R], data: bytes) -> R:
    """Return a message from its bytes.

    Raises:
        SessionError: `protocol`.
    """
    try:
        return response.FromString(data)
    except DecodeError:
        raise SessionError("protocol", "the daemon sent a message that cannot be decoded") from None


def _returned(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("the coroutine waits")


def _path(method: str) -> str:
    return f"/sandbox_api.v1.{method}"
