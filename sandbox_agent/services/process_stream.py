"""One call of `Attach`: output on its way to the client, and input on its way to the process."""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from sandbox_agent.core.process_plan import MAX_INPUT_BYTES, Size
from sandbox_agent.services.worker import Worker
from sandbox_api.errors import SessionError
from sandbox_api.names import check_process_id
from sandbox_api.v1 import process_pb2
from sandbox_api.wire import chunk_message

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from sandbox_agent.core.process import Exit, Process
    from sandbox_agent.core.process_reader import Piece, Reader
    from sandbox_agent.core.processes import Processes

    Context = grpc.aio.ServicerContext[Any, Any]

BEAT_SECONDS = 10.0
"""Longest silence of a call."""

_LARGE_BYTES = 128 << 10
_GATHER_SECONDS = 0.003
"""From one small message to the next: each costs the same, however little it says."""

_TAGS = (b"\x0a", b"\x12")  # fields 1 and 2 of `AttachResponse`
_BEAT = process_pb2.AttachResponse(beat=process_pb2.ProcessBeat()).SerializeToString()
_CAUSES = {
    "itself": process_pb2.ProcessExit.CAUSE_ITSELF,
    "signal": process_pb2.ProcessExit.CAUSE_SIGNAL,
    "deadline": process_pb2.ProcessExit.CAUSE_DEADLINE,
    "idle": process_pb2.ProcessExit.CAUSE_IDLE,
    "output": process_pb2.ProcessExit.CAUSE_OUTPUT,
    "shutdown": process_pb2.ProcessExit.CAUSE_SHUTDOWN,
}


class Wakeup:
    """Wakes a call from another thread, once for however many causes; calling it is what they do."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._is_pending = False

    def __call__(self) -> None:
        """Wake the call."""
        if not self._is_pending:
            self._is_pending = True
            try:
                self._loop.call_soon_threadsafe(self._event.set)
            except RuntimeError:
                return  # the loop has ended, and the call with it

    async def wait(self) -> None:
        """Wait until it is called, or was since the last wait."""
        await self._event.wait()
        # In this order: a cause that comes in between sets the event again.
        self._event.clear()
        self._is_pending = False


class AttachCall:
    """The call.

    Args:
        context: Its stream.
        processes: Where its process is looked for.
    """

    def __init__(self, context: Context, processes: Processes) -> None:
        self._context = context
        self._processes = processes
        self._wakeup = Wakeup()
        self._right = object()
        """What the process has while this call writes; not the call, which it would keep alive."""
        self._has_written = False
        self._told: tuple[int, bool] | None = None
        self._failure: Exception | None = None

    async def run(self, executor: Executor) -> None:
        """Serve it to its end.

        Args:
            executor: Where output is read.

        Raises:
            ProcessError: `unknown`, `output_lost`.
            ConfigurationError: `invalid_id`, `invalid_argument`.
            SessionError: `protocol`.
        """
        begin = await self._begin()
        process = self._processes.get(check_process_id(begin.id))
        reader = process.audience.read_from((begin.stdout_offset, begin.stderr_offset), self._wakeup)
        # Closed after the worker, in which it may still be reading.
        with closing(reader):
            async with Worker(executor) as worker:
                await self._serve(worker, process, reader)

    async def _serve(self, worker: Worker, process: Process, reader: Reader) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                receiving = tasks.create_task(self._receive(process))
                try:
                    await self._send(worker, process, reader)
                finally:
                    receiving.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None  # there is but the one of sending

    async def _begin(self) -> process_pb2.AttachBegin:
        message = await self._context.read()
        if message is grpc.aio.EOF or message.WhichOneof("part") != "begin":
            raise SessionError("protocol", "the stream does not begin with its beginning")
        begin: process_pb2.AttachBegin = message.begin
        return begin

    async def _receive(self, process: Process) -> None:
        try:
            await self._receive_parts(process)
        except Exception as error:  # noqa: BLE001  raised by `_tell`
            # Left to the sending side: to cancel that in the middle of a write would be the end of the stream, and no
            # status could be sent any more.
            self._failure = error
            self._wakeup()

    async def _receive_parts(self, process: Process) -> None:
        while (message := await self._context.read()) is not grpc.aio.EOF:
            part = message.WhichOneof("part")
            if part == "resize":
                size = Size(message.resize.rows, message.resize.columns).check()
                self._processes.pump.call(partial(process.resize, size))
            elif part == "input":
                await self._pass_on(process, message.input)
            else:
                raise SessionError("protocol", f"a {part or 'message without content'} stands where input was next")

    async def _pass_on(self, process: Process, message: process_pb2.ProcessInput) -> None:
        if len(message.data) > MAX_INPUT_BYTES:
            raise SessionError("protocol", f"input of {len(message.data)} bytes is too much for one message")
        if not self._has_written:
            self._has_written = True
            process.writer = self._right
        room = Wakeup()
        process.audience.wake_by(room)
        try:
            while not process.input.has_room:
                await room.wait()
        finally:
            process.audience.wake_no_more(room)
        if process.writer is not self._right:
            raise SessionError("protocol", "another client has written since, and goes on writing")
        process.input.offer(message.offset, message.data, is_end=message.end)

    async def _send(self, worker: Worker, process: Process, reader: Reader) -> None:
        while True:
            outcome = process.exit
            await self._tell(process)
            pieces = await worker.run(reader.take) if reader.has_more else []
            if pieces:
                await self._send_pieces(worker, process, reader, pieces)
            elif outcome is not None:
                await self._context.write(process_pb2.AttachResponse(exit=pack_exit(outcome)))
                return
            else:
                await self._wait()

    async def _tell(self, process: Process) -> None:
        """Tell what came of the input."""
        if self._failure is not None:
            raise self._failure
        taken = process.input.taken, process.input.is_closed
        if taken != self._told:
            self._told = taken
            await self._context.write(_pack_taken(*taken))

    async def _send_pieces(self, worker: Worker, process: Process, reader: Reader, pieces: list[Piece]) -> None:
        """Send pieces. After a large one the next is read while it is on its way; after small ones more gathers."""
        while pieces:
            is_large = sum(len(data) for _, _, data in pieces) >= _LARGE_BYTES
            step = worker.start(reader.take) if is_large else None
            for number, offset, data in pieces:
                await self._context.write(chunk_message(offset, [data], tag=_TAGS[number]))
            reader.confirm(pieces)
            if step is None:
                await asyncio.sleep(_GATHER_SECONDS)
                return
            await self._tell(process)  # output that never pauses must not hold input up
            pieces = await asyncio.wrap_future(step)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(BEAT_SECONDS):
                await self._wakeup.wait()
        except TimeoutError:
            await self._context.write(_BEAT)


def pack_exit(outcome: Exit) -> process_pb2.ProcessExit:
    """Return the wire form of the end of a process."""
    return process_pb2.ProcessExit(
        status=outcome.status,
        signal=outcome.signal,
        cause=_CAUSES[outcome.cause],
        duration_seconds=outcome.duration_seconds,
        stdout_bytes=outcome.stdout_bytes,
        stderr_bytes=outcome.stderr_bytes,
    )


def _pack_taken(offset: int, is_closed: bool) -> process_pb2.AttachResponse:  # noqa: FBT001  as `Input` tells it
    return process_pb2.AttachResponse(input_taken=process_pb2.InputTaken(offset=offset, closed=is_closed))
