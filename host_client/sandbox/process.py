"""One process in a sandbox, watched and spoken to.

The one rule: there is no task in the background. Whoever waits for something, be it output, room for input or the
end, takes the next answer of the daemon for all who wait; what is not asked for stays at the daemon. A connection that
breaks is taken up again where it was, so that no byte is lost or comes twice.
"""

from __future__ import annotations

import asyncio
import signal as signals
from collections import deque
from typing import TYPE_CHECKING

from host_client.errors import DeadlineError, OutpostError, SessionError
from host_client.sandbox.patience import ConnectionPatience
from host_client.sandbox.process_exit import checked_exit
from host_client.sandbox.process_request import packed_terminal
from host_client.sandbox.request import expressible
from host_client.sandbox.task import task_group
from sandbox_api.limits import CHUNK_BYTES, MIB
from sandbox_api.v1 import process_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from host_client.sandbox.connection import Connection, Stream
    from host_client.sandbox.process_exit import Exit, Output
    from host_client.sandbox.process_incoming import Incoming

MAX_BUFFERED_BYTES = MIB
"""Output that waits here, in excess by one message at most, when something else than output is waited for."""

MAX_SENT_BYTES = MIB
"""Input that is on its way: sent, and not yet taken by the process."""

_PIECE_BYTES = CHUNK_BYTES // 4
_WAIT_SECONDS = 20.0
"""How long a daemon is asked to wait for the end of a process before it answers that it runs."""


class Process:
    """A process that was started, or attached to.

    Its methods may be used by several tasks at the same time; `output` by one. They may raise, beside what they say:
    `ProcessError` (`unknown`: the daemon was restarted, or the process released), `UnavailableError` (`unreachable`:
    the daemon was away for longer than the patience) and `SessionError` (`protocol`: the daemon breaks the rules).

    Attributes:
        id: Its id, by which any client of the daemon can attach to it.
        pid: Its number in the sandbox, for people; 0 when it was attached to.
    """

    def __init__(
        self, connection: Connection, incoming: Incoming, process_id: str, pid: int, *, patience_seconds: float
    ) -> None:
        self.id = process_id
        self.pid = pid
        self._connection = connection
        self._incoming = incoming
        self._patience = ConnectionPatience(connection, patience_seconds)
        self._patience_seconds = patience_seconds
        self._stream: Stream[process_pb2.AttachResponse] | None = None
        self._is_taking = False
        self._changed = asyncio.Event()
        self._buffer: deque[Output] = deque()
        self._buffered_bytes = 0
        self._readers_count = 0
        self._writing, self._sending = asyncio.Lock(), asyncio.Lock()
        self._unsure = b""
        self._unsure_start = 0
        self._has_ended_input = False
        self._terminal: process_pb2.Terminal | None = None
        self._exit: Exit | None = None

    def __repr__(self) -> str:
        return f"<Process {self.id} of {self._connection.target}>"

    @property
    def exit(self) -> Exit | None:
        """How it ended; None as long as nobody here has learned that it did."""
        return self._exit

    async def output(self) -> AsyncGenerator[Output, None]:
        """Yield all of both streams from where this object is, in order within each stream.

        Ends when the process is over and all was yielded. What nobody takes stays in the sandbox, and the process waits
        when it has printed much more. Leaving the loop early loses nothing: the next call goes on.

        Raises:
            ProcessError: `output_lost`: nobody read for so long that the oldest output was dropped.
        """
        self._readers_count += 1
        try:
            while True:
                while self._buffer:
                    item = self._buffer.popleft()
                    self._buffered_bytes -= len(item.data)
                    self._tell_change()
                    yield item
                if self._incoming.exit is not None:
                    return
                await self._advance(may_fill=True)
        finally:
            self._readers_count -= 1

    async def write(self, data: bytes | bytearray | memoryview) -> bool:
        """Give the process input; returns when it took all, or False when it reads no more.

        A process that waits for its output to be read does not take input: read at the same time. After a cancel it is
        open how much of the data the process gets.

        Raises:
            SessionError: `protocol`: the process has no open input.
        """
        async with self._writing:
            if self._has_ended_input:
                return False
            while self._stream is None and self._incoming.exit is None:
                await self._advance()
            start = self._incoming.taken_bytes
            content = memoryview(data).cast("B")
            if self._unsure:
                content = memoryview(b"".join((self._unsure[start - self._unsure_start :], content)))
            end = start + len(content)
            try:
                async with task_group() as group:
                    group.create_task(self._send(content, start))
                    while self._takes_input and self._incoming.taken_bytes < end:
                        await self._advance()
            except BaseException:
                # What was sent once may be given to the process at any time: it is sent again before what comes next.
                taken, sent = self._incoming.taken_bytes, self._incoming.most_sent_bytes
                self._unsure, self._unsure_start = bytes(content[taken - start : max(taken, sent) - start]), taken
                raise
            self._unsure = b""
            return self._incoming.taken_bytes >= end

    async def close_input(self) -> None:
        """Tell the process that no more input comes. May be repeated."""
        async with self._writing:
            if self._has_ended_input:
                return
            self._has_ended_input = True
            if (stream := self._stream) is not None:
                await self._deliver(stream, self._end_of_input)
            while self._stream is None and self._takes_input:
                await self._advance()

    async def resize(self, rows: int, columns: int) -> None:
        """Give the terminal of the process another size.

        Raises:
            ConfigurationError: `invalid_argument`.
        """
        self._terminal = packed_terminal(rows, columns)
        if (stream := self._stream) is not None:
            await self._deliver(stream, process_pb2.AttachRequest(resize=self._terminal))
        while self._stream is None and self._incoming.exit is None:
            await self._advance()

    async def signal(self, number: int) -> None:
        """Send a signal to all of the process's group; nothing happens when it is over. Is not sent again by itself.

        Raises:
            ConfigurationError: `invalid_argument`.
            UnavailableError: any reason: it is open whether it was sent.
        """
        with expressible():
            request = process_pb2.SignalProcessRequest(id=self.id, signal=number)
        await self._connection.ask("ProcessService/Signal", request, process_pb2.SignalProcessResponse)

    async def end(self, grace_seconds: float = 5.0) -> Exit:
        """End the process with TERM, and with KILL when it is not over after the grace; returns when it is.

        Raises:
            DeadlineError: `deadline`: the daemon did not end it.
        """
        request = process_pb2.SignalProcessRequest(id=self.id, signal=signals.SIGKILL)
        if grace_seconds > 0:
            request.signal, request.then_kill_seconds = signals.SIGTERM, grace_seconds
        try:
            async with asyncio.timeout(grace_seconds + self._patience_seconds + self._connection.stall_seconds):
                patience = ConnectionPatience(self._connection, self._patience_seconds)
                if self._exit is None:
                    await patience.ask("ProcessService/Signal", request, process_pb2.SignalProcessResponse)
                return await self.wait()
        except TimeoutError:
            raise DeadlineError("deadline", f"the daemon at {self._connection.target} did not end a process") from None

    async def wait(self) -> Exit:
        """Return how the process ended, once it is over.

        Its output need not be read for that unless it is large: a process waits before it drops any, for as long as
        it was told to hold it.
        """
        while self._exit is None:
            if self._may_advance:
                await self._advance()
                continue
            if not self._readers_count:
                self.detach()  # or else the process would wait for us to read
            await self._ask_exit()
        return self._exit

    def detach(self) -> None:
        """Let go of the process, which goes on. What comes next here attaches again."""
        if (stream := self._stream) is not None:
            self._stream = None
            stream.cancel()
            self._tell_change()

    @property
    def _takes_input(self) -> bool:
        return not self._incoming.is_input_closed and self._incoming.exit is None

    @property
    def _may_advance(self) -> bool:
        """Whether there is something to learn, and room for it, by what `Attach` tells."""
        is_open = self._stream is not None or (self._has_ended_input and self._takes_input)
        return is_open and self._buffered_bytes < MAX_BUFFERED_BYTES

    @property
    def _end_of_input(self) -> process_pb2.AttachRequest:
        return process_pb2.AttachRequest(
            input=process_pb2.ProcessInput(offset=self._incoming.taken_bytes, data=b"", end=True)
        )

    def _tell_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _advance(self, *, may_fill: bool = False) -> None:
        """Take the next answer, or wait until something has changed when another task does or the buffer is full."""
        if self._is_taking or (self._buffered_bytes >= MAX_BUFFERED_BYTES and not may_fill):
            await self._changed.wait()
            return
        self._is_taking = True
        try:
            await self._take()
        except OutpostError as error:
            self.detach()
            await self._patience.bear(error)
        except BaseException:
            self.detach()  # gRPC gives up a call whose reading is cancelled
            raise
        else:
            self._patience.succeed()
        finally:
            self._is_taking = False
            self._tell_change()

    async def _take(self) -> None:
        if (stream := self._stream) is None:
            self._stream = await self._attached()
            return
        if (output := self._incoming.accept(await stream.next())) is not None:
            self._buffer.append(output)
            self._buffered_bytes += len(output.data)
        if self._incoming.exit is not None:
            self._note_exit(self._incoming.exit)
            await stream.end()

    async def _attached(self) -> Stream[process_pb2.AttachResponse]:
        stream = self._connection.open("ProcessService/Attach", process_pb2.AttachResponse)
        try:
            await stream.write(self._incoming.request)
            self._incoming.begin(await stream.next())
            if self._terminal is not None:
                await stream.write(process_pb2.AttachRequest(resize=self._terminal))
            if self._has_ended_input and self._takes_input:
                await stream.write(self._end_of_input)
        except BaseException:
            stream.cancel()
            raise
        return stream

    async def _send(self, content: memoryview, start: int) -> None:
        """Send input until the process took it, in each call what the one before it may have lost."""
        incoming = self._incoming
        while self._takes_input and incoming.taken_bytes < start + len(content):
            stream, at = self._stream, incoming.sent_bytes
            piece = content[at - start :][: min(_PIECE_BYTES, MAX_SENT_BYTES - (at - incoming.taken_bytes))]
            if stream is None or not piece:
                await self._changed.wait()
                continue
            incoming.note_sent(len(piece))
            part = process_pb2.ProcessInput(offset=at, data=bytes(piece))
            await self._deliver(stream, process_pb2.AttachRequest(input=part))

    async def _deliver(self, stream: Stream[process_pb2.AttachResponse], request: process_pb2.AttachRequest) -> None:
        """Send a part; of a call that is over this does nothing, since the next one begins with what was not taken."""
        async with self._sending:
            if stream is not self._stream:
                return
            try:
                await stream.write(request)
            except OutpostError as error:
                if not self._patience.passes(error):
                    raise
                if stream is self._stream:
                    self.detach()

    async def _ask_exit(self) -> None:
        request = process_pb2.WaitProcessRequest(id=self.id, max_seconds=_WAIT_SECONDS)
        patience = ConnectionPatience(self._connection, self._patience_seconds)
        answer = await patience.ask(
            "ProcessService/Wait", request, process_pb2.WaitProcessResponse, more_seconds=_WAIT_SECONDS
        )
        if answer.HasField("exit"):
            self._note_exit(checked_exit(answer.exit))
        elif not answer.running:
            raise SessionError("protocol", "the daemon does not tell whether a process runs")

    def _note_exit(self, ended: Exit) -> None:
        if self._exit is not None and (self._exit.status, self._exit.signal) != (ended.status, ended.signal):
            raise SessionError("protocol", "the daemon told two ends of a process")
        self._exit = ended
