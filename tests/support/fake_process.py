"""What a fake daemon says of processes: single answers of `ProcessService`, and scripts that say them in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from sandbox_api.v1 import process_pb2
from sandbox_api.wire import pack_status

if TYPE_CHECKING:
    from google.protobuf.message import Message

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


def failing(error: OutpostError) -> Script:
    """Return a script that takes the first request and fails."""

    async def script(call: Exchange) -> None:
        await call.receive()
        await call.fail(grpc.StatusCode[error.grpc_status], pack_status(error))

    return script


STARTED = saying(process_pb2.StartProcessResponse(pid=77))
RELEASED = saying(process_pb2.ReleaseProcessResponse())
