"""What a fake daemon says of processes: single answers of `ProcessService`, and scripts that say them in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from sandbox_api.v1 import process_pb2
from sandbox_api.wire import pack_status

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from host_client.sandbox.process import Process
    from sandbox_api.errors import OutpostError
    from support.fake_daemon import Exchange, Script


def taken(offset: int = 0, *, closed: bool = False) -> process_pb2.AttachResponse:
    """Return how much input the process took."""
    return process_pb2.AttachResponse(input_taken=process_pb2.InputTaken(offset=offset, closed=closed))


def stdout(offset: int, data: bytes) -> process_pb2.AttachResponse:
    """Return output."""
    return process_pb2.AttachResponse(stdout=process_pb2.ProcessOutput(offset=offset, data=data))


def stderr(offset: int, data: bytes) -> process_pb2.AttachResponse:
    """Return output of standard error."""
    return process_pb2.AttachResponse(stderr=process_pb2.ProcessOutput(offset=offset, data=data))


def ended(stdout_bytes: int = 0, **fields: Any) -> process_pb2.ProcessExit:
    """Return an end: with status 0, by itself, unless these fields say otherwise."""
    fields = {"cause": process_pb2.ProcessExit.CAUSE_ITSELF, "duration_seconds": 0.5, **fields}
    return process_pb2.ProcessExit(stdout_bytes=stdout_bytes, **fields)


def told_end(stdout_bytes: int = 0, **fields: Any) -> process_pb2.AttachResponse:
    """Return the same as the last part of a call."""
    return process_pb2.AttachResponse(exit=ended(stdout_bytes, **fields))


def saying(*messages: Message) -> Script:
    """Return a script that takes the first request, says this and ends the call with OK."""

    async def script(call: Exchange) -> None:
        await call.receive()
        await call.send(*messages)

    return script


def failing(error: OutpostError, *, has_received: bool = False) -> Script:
    """Return a script that takes the first request, unless that was done, and fails."""

    async def script(call: Exchange) -> None:
        if not has_received:
            await call.receive()
        await call.fail(grpc.StatusCode[error.grpc_status], pack_status(error))

    return script


STARTED = saying(process_pb2.StartProcessResponse(pid=77))
RELEASED = saying(process_pb2.ReleaseProcessResponse())


def served(attach: Script, **others: Script) -> dict[str, Script]:
    """Return the scripts of a daemon whose processes start and are released, and are attached to in this way."""
    scripts = {"Start": STARTED, "Release": RELEASED, "Attach": attach, **others}
    return {f"ProcessService_{name}": script for name, script in scripts.items()}


def in_turn(*scripts: Script) -> Script:
    """Return a script that behaves at each call as the next of these, and as the last one from then on."""
    left = list(scripts)

    async def script(call: Exchange) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(call)

    return script


class Typed:
    """A process that reads, over any number of calls, and prints nothing.

    Args:
        break_after_bytes: A call breaks when it has brought so much; 0: none breaks.
        take_up_to_bytes: The process reads no further; may be raised.

    Attributes:
        content: What the process has been given, each byte once.
        calls_count: How often it was attached to.
        is_full: Set when there was input that it did not read.
    """

    def __init__(self, *, break_after_bytes: int = 0, take_up_to_bytes: int = 1 << 30) -> None:
        self.content = bytearray()
        self.calls_count = 0
        self.is_full = asyncio.Event()
        self.take_up_to_bytes = take_up_to_bytes
        self._first_bytes = 0
        self._break_after_bytes = break_after_bytes
        self._is_ended = False

    async def start(self, call: Exchange) -> None:
        """Take what is given with the start."""
        request = process_pb2.StartProcessRequest.FromString(await call.receive() or b"")
        self.content += request.input
        self._first_bytes = len(request.input)
        await call.send(process_pb2.StartProcessResponse(pid=1))

    async def attach(self, call: Exchange) -> None:
        """Take input as the contract says; end once it has ended."""
        self.calls_count += 1
        await call.receive()
        brought_bytes = 0
        await call.send(taken(self._taken_bytes))
        while not self._is_ended and (message := await call.receive()) is not None:
            part = process_pb2.AttachRequest.FromString(message).input
            assert part.offset <= self._taken_bytes, "a hole"
            brought_bytes += len(part.data)
            if self._break_after_bytes and brought_bytes > self._break_after_bytes:
                self._take(part, len(part.data) // 3)
                await call.fail(grpc.StatusCode.UNAVAILABLE)
            self._take(part, len(part.data))
            self._is_ended = part.end
            await call.send(taken(self._taken_bytes, closed=part.end))
        await call.send(told_end())

    @property
    def _taken_bytes(self) -> int:
        return len(self.content) - self._first_bytes

    def _take(self, part: process_pb2.ProcessInput, bytes_count: int) -> None:
        new = part.data[self._taken_bytes - part.offset : bytes_count]
        room = self.take_up_to_bytes - len(self.content)
        self.content += new[:room]
        if len(new) > room:
            self.is_full.set()


async def collected(process: Process) -> bytes:
    """Return all standard output."""
    return b"".join([item.data async for item in process.output()])
