"""A bare gRPC stream of a file: messages of 1 MiB over a Unix socket, from one process to another.

It is what one writes first with the generated code of `FileService.Read`: the server reads the file and sends it, the
client takes the data out of each message and drops it. Nothing is hashed, checked, changed or written.

As a program of its own: `python -m benchmarks.peers.stream serve SOCKET` serves that method until its standard input
ends; `read SOCKET FILE` calls it once and prints the seconds of that.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from benchmarks.daemon import own_peak_mib
from benchmarks.harness import MAX_COMMAND_SECONDS, BenchError, Sample, wait_for
from sandbox_api.v1 import file_pb2, file_pb2_grpc, payload_pb2

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class BareStream:
    """Read a file once, in a process of its own, from a server that already runs."""

    socket_path: Path
    file_path: Path
    name: str = "bare gRPC stream"

    def prepare(self) -> None:
        """Prepare nothing."""

    def run(self) -> Sample:
        """Read once."""
        command = _command("read", self.socket_path, self.file_path)
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=MAX_COMMAND_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise BenchError("the bare stream could not be read") from error
        result = json.loads(done.stdout)
        return Sample(result["seconds"], {"reader": result["peak_mib"]})

    def check(self, *, thorough: bool) -> None:
        """Check nothing more: a reader that got too little has failed the run."""

    def clear(self) -> None:
        """Leave nothing."""


@contextmanager
def bare_stream(file_path: Path) -> Iterator[BareStream]:
    """Serve files from a process of its own and yield the subject that reads this one."""
    with tempfile.TemporaryDirectory(prefix="outpost-bench-") as directory:
        socket_path = Path(directory) / "bare.sock"
        command = _command("serve", socket_path)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            if server.stdout is None:
                raise BenchError("the bare stream's server has no standard output")
            wait_for(server.stdout.fileno, "the bare stream's server")
            if server.stdout.readline() != b"serving\n":
                raise BenchError("the bare stream's server did not start")
            yield BareStream(socket_path, file_path)


def _command(role: str, *paths: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.peers.stream", role, *map(str, paths)]


class _Files(file_pb2_grpc.FileServiceServicer):
    async def Read(  # noqa: N802 - the name of the call
        self,
        request: file_pb2.ReadRequest,
        context: grpc.aio.ServicerContext[file_pb2.ReadRequest, file_pb2.ReadResponse],  # noqa: ARG002
    ) -> AsyncIterator[file_pb2.ReadResponse]:
        offset = 0
        with open(request.path, "rb", buffering=0) as file:  # noqa: ASYNC230, PTH123 - the simplest way, as it is
            while data := file.read(_PIECE_BYTES):
                yield file_pb2.ReadResponse(chunk=payload_pb2.Chunk(offset=offset, data=data))
                offset += len(data)


async def _serve(socket_path: str) -> None:
    server = grpc.aio.server()
    file_pb2_grpc.add_FileServiceServicer_to_server(_Files(), server)
    server.add_insecure_port(f"unix:{socket_path}")
    await server.start()
    print("serving", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


async def _read(socket_path: str, file_path: str) -> float:
    async with grpc.aio.insecure_channel(f"unix:{socket_path}") as channel:
        await channel.channel_ready()
        began = time.perf_counter()
        received_bytes = 0
        async for message in file_pb2_grpc.FileServiceStub(channel).Read(file_pb2.ReadRequest(path=file_path.encode())):
            received_bytes += len(message.chunk.data)
        seconds = time.perf_counter() - began
    if received_bytes != Path(file_path).stat().st_size:  # noqa: ASYNC240 - when all is over
        raise BenchError("the bare stream is not whole")
    return seconds


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(_serve(sys.argv[2]))
    else:
        print(json.dumps({"seconds": asyncio.run(_read(*sys.argv[2:])), "peak_mib": own_peak_mib()}))
