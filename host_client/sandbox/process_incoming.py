"""What a daemon tells of one process over any number of `Attach` calls: where we are, and the checks in between.

Pure of gRPC's calls. Nothing of a message is passed on before all of it has been checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import SessionError
from host_client.sandbox.process_exit import Output, checked_exit
from sandbox_api.limits import CHUNK_BYTES
from sandbox_api.v1 import process_pb2

if TYPE_CHECKING:
    from host_client.sandbox.process_exit import Exit


class Incoming:
    """Checks the answers of all calls, in order.

    Args:
        process_id: The process.
        stdout_offset: What is held of its output.
        stderr_offset: The same of standard error.

    Attributes:
        stdout_offset: Where the next output belongs.
        stderr_offset: The same of standard error.
        sent_bytes: Where all input ends that was sent in the present call, or taken.
        most_sent_bytes: The same of all calls.
        taken_bytes: Where the input ends that the process took.
        is_input_closed: The process reads no more.
        exit: How the process ended; with it all output has come.
    """

    def __init__(self, process_id: str, stdout_offset: int = 0, stderr_offset: int = 0) -> None:
        self._id = process_id
        self.stdout_offset = stdout_offset
        self.stderr_offset = stderr_offset
        self.sent_bytes = 0
        self.most_sent_bytes = 0
        self.taken_bytes = 0
        self.is_input_closed = False
        self.exit: Exit | None = None

    @property
    def request(self) -> process_pb2.AttachRequest:
        """The first part of the next call."""
        begin = process_pb2.AttachBegin(id=self._id, stdout_offset=self.stdout_offset, stderr_offset=self.stderr_offset)
        return process_pb2.AttachRequest(begin=begin)

    def note_sent(self, bytes_count: int) -> None:
        """Take note that so much more input is sent."""
        self.sent_bytes += bytes_count
        self.most_sent_bytes = max(self.most_sent_bytes, self.sent_bytes)

    def begin(self, message: process_pb2.AttachResponse) -> None:
        """Take the first answer of a call: how much input was taken. What was sent behind that is lost.

        Raises:
            SessionError: `protocol`.
        """
        if message.WhichOneof("part") != "input_taken":
            raise SessionError("protocol", "the daemon does not begin with how much input the process took")
        self.sent_bytes = self.taken_bytes
        self._take(message.input_taken)

    def accept(self, message: process_pb2.AttachResponse) -> Output | None:
        """Take a further answer; return the output that it brings.

        Raises:
            SessionError: `protocol`.
        """
        match message.WhichOneof("part"):
            case "stdout":
                output = Output("stdout", message.stdout.offset, message.stdout.data)
                self.stdout_offset = _end(output, self.stdout_offset)
                return output
            case "stderr":
                output = Output("stderr", message.stderr.offset, message.stderr.data)
                self.stderr_offset = _end(output, self.stderr_offset)
                return output
            case "input_taken":
                self._take(message.input_taken)
            case "exit":
                ended = checked_exit(message.exit)
                if (ended.stdout_bytes, ended.stderr_bytes) != (self.stdout_offset, self.stderr_offset):
                    raise SessionError("protocol", "the daemon told the end of a process before all of its output")
                self.exit = ended
            case "beat":
                pass
            case _:
                raise SessionError("protocol", "the daemon sent an unknown part of a process")
        return None

    def _take(self, taken: process_pb2.InputTaken) -> None:
        # It can be more than was sent in this call: by another client, or in a call before this one.
        if taken.offset < self.taken_bytes:
            raise SessionError("protocol", f"the daemon took input up to {taken.offset}, after {self.taken_bytes}")
        self.taken_bytes = taken.offset
        self.sent_bytes = max(self.sent_bytes, taken.offset)
        self.is_input_closed = self.is_input_closed or taken.closed


def _end(output: Output, offset: int) -> int:
    """Return where output ends that belongs at an offset."""
    if output.offset != offset:
        raise SessionError("protocol", f"the daemon's {output.stream} goes on at {output.offset} instead of {offset}")
    if not 0 < len(output.data) <= CHUNK_BYTES:
        raise SessionError("protocol", f"the daemon sent {len(output.data)} bytes of output at once")
    return offset + len(output.data)
