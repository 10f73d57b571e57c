"""Processes of a daemon, by raw stubs."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

from sandbox_api.v1 import process_pb2 as pb
from sandbox_api.v1 import process_pb2_grpc
from support.stream import Requests

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 60.0
"""Longest call of a test."""

_numbers = itertools.count()


@dataclass
class Read:
    """What one call of `Attach` brought."""

    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    taken: list[tuple[int, bool]] = field(default_factory=list)
    exit: pb.ProcessExit | None = None

    def add(self, response: pb.AttachResponse, base: tuple[int, int] = (0, 0)) -> None:
        """Take a part; output has to come in order and without a gap."""
        match response.WhichOneof("part"):
            case "stdout":
                assert response.stdout.offset == base[0] + len(self.stdout)
                assert response.stdout.data
                self.stdout += response.stdout.data
            case "stderr":
                assert response.stderr.offset == base[1] + len(self.stderr)
                assert response.stderr.data
                self.stderr += response.stderr.data
            case "input_taken":
                self.taken.append((response.input_taken.offset, response.input_taken.closed))
            case "exit":
                self.exit = response.exit


class Attached:
    """One call of `Attach`."""

    def __init__(self, stub: process_pb2_grpc.ProcessServiceStub, begin: pb.AttachBegin) -> None:
        self.requests = Requests(pb.AttachRequest(begin=begin))
        self.call = stub.Attach(self.requests, timeout=SECONDS)
        self.read = Read()
        self._base = begin.stdout_offset, begin.stderr_offset

    def next(self) -> str:
        """Take the next part; return its name, empty at the end."""
        response = next(self.call, None)
        if response is None:
            return ""
        self.read.add(response, self._base)
        return response.WhichOneof("part")

    def until(self, text: bytes) -> None:
        """Read until standard output has a text."""
        while text not in self.read.stdout:
            assert self.next(), f"the stream ended: {self.read}"

    def until_taken(self, offset: int) -> None:
        """Read until input was taken up to an offset."""
        while not self.read.taken or self.read.taken[-1][0] < offset:
            assert self.next(), f"the stream ended: {self.read}"

    def rest(self) -> Read:
        """Read to the end, which has to be an exit."""
        while self.next():
            pass
        assert self.read.exit is not None, "the stream ended without an exit"
        return self.read

    def write(self, offset: int, data: bytes, *, end: bool = False) -> None:
        """Send input."""
        self.requests.send(pb.AttachRequest(input=pb.ProcessInput(offset=offset, data=data, end=end)))


class Scene:
    """The processes of a daemon."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.stub = process_pb2_grpc.ProcessServiceStub(channel)

    def start(self, *argv: str, process_id: str = "", **fields: object) -> str:
        """Start a process; return its id."""
        process_id = process_id or f"p{next(_numbers)}"
        request = pb.StartProcessRequest(id=process_id, argv=[word.encode() for word in argv], **fields)
        self.stub.Start(request, timeout=SECONDS)
        return process_id

    def shell(self, script: str, **fields: object) -> str:
        """Start a shell that runs a script; return its id."""
        return self.start("sh", "-c", script, **fields)

    @contextmanager
    def attached(self, process_id: str, stdout: int = 0, stderr: int = 0) -> Iterator[Attached]:
        """Attach from offsets; detach afterwards."""
        begin = pb.AttachBegin(id=process_id, stdout_offset=stdout, stderr_offset=stderr)
        attached = Attached(self.stub, begin)
        try:
            yield attached
        finally:
            attached.requests.end()
            attached.call.cancel()

    def read(self, process_id: str, stdout: int = 0, stderr: int = 0) -> Read:
        """Read to the end."""
        with self.attached(process_id, stdout, stderr) as attached:
            return attached.rest()

    def wait(self, process_id: str) -> pb.ProcessExit:
        """Wait for the end."""
        answer = self.stub.Wait(pb.WaitProcessRequest(id=process_id, max_seconds=60), timeout=SECONDS)
        assert answer.HasField("exit"), "it runs for ever"
        return answer.exit

    def signal(self, process_id: str, number: int, then_kill_seconds: float = 0) -> pb.SignalProcessResponse:
        """Send a signal."""
        request = pb.SignalProcessRequest(id=process_id, signal=number, then_kill_seconds=then_kill_seconds)
        return self.stub.Signal(request, timeout=SECONDS)

    def state(self, process_id: str) -> pb.ProcessState | None:
        """Return what the list says of a process."""
        found = self.stub.List(pb.ListProcessesRequest(), timeout=SECONDS).processes
        return next((state for state in found if state.id == process_id), None)

    def release(self, process_id: str) -> None:
        """Release a process."""
        self.stub.Release(pb.ReleaseProcessRequest(id=process_id), timeout=SECONDS)


@contextmanager
def scene_of(target: str) -> Iterator[Scene]:
    """Connect to a daemon."""
    options = (("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 4 << 20))
    with grpc.insecure_channel(target, options=options) as channel:
        yield Scene(channel)
