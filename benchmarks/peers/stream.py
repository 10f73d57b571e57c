"""A bare gRPC stream: messages of 1 MiB over a Unix socket, from one process to another, and nothing done about them.

As a program of its own: `python -m benchmarks.peers.stream serve SOCKET COUNT` serves one method that sends so many
messages, all of them the same bytes in memory, until its standard input ends; `read SOCKET COUNT` calls it once and
prints the seconds of that.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from benchmarks.daemon import own_peak_mib
from benchmarks.harness import MAX_COMMAND_SECONDS, BenchError, Sample, wait_for

_METHOD = "/bench.Stream/Read"
_MESSAGE = bytes(1 << 20)


@dataclass(frozen=True)
class BareStream:
    """Read a stream of so many MiB once, in a process of its own, from a server that already runs."""

    socket_path: Path
    size_mib: int
    name: str = "bare gRPC stream"

    def prepare(self) -> None:
        """Prepare nothing."""

    def run(self) -> Sample:
        """Read once."""
        command = _command("read", self.socket_path, self.size_mib)
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
def bare_stream(size_mib: int) -> Iterator[BareStream]:
    """Serve the stream from a process of its own and yield the subject that reads it."""
    with tempfile.TemporaryDirectory(prefix="outpost-bench-") as directory:
        socket_path = Path(directory) / "bare.sock"
        command = _command("serve", socket_path, size_mib)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            if server.stdout is None:
                raise BenchError("the bare stream's server has no standard output")
            wait_for(server.stdout.fileno, "the bare stream's server")
            if server.stdout.readline() != b"serving\n":
                raise BenchError("the bare stream's server did not start")
            yield BareStream(socket_path, size_mib)


def _command(role: str, socket_path: Path, count: int) -> list[str]:
    return [sys.executable, "-m", "benchmarks.peers.stream", role, str(socket_path), str(count)]


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, count: int) -> None:
        self._count = count

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        async def send(_: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
            for _ in range(self._count):
                await context.write(_MESSAGE)

        return grpc.unary_stream_rpc_method_handler(send) if handler_call_details.method == _METHOD else None


async def _serve(socket_path: str, count: int) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([_Handler(count)])
    server.add_insecure_port(f"unix:{socket_path}")
    await server.start()
    print("serving", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


async def _read(socket_path: str, count: int) -> float:
    async with grpc.aio.insecure_channel(f"unix:{socket_path}") as channel:
        await channel.channel_ready()
        began = time.perf_counter()
        received = [len(message) async for message in channel.unary_stream(_METHOD)(b"")]
        seconds = time.perf_counter() - began
    if received != [len(_MESSAGE)] * count:
        raise BenchError("the bare stream is not whole")
    return seconds


if __name__ == "__main__":
    _, asked_role, path_text, count_text = sys.argv
    if asked_role == "serve":
        asyncio.run(_serve(path_text, int(count_text)))
    else:
        print(json.dumps({"seconds": asyncio.run(_read(path_text, int(count_text))), "peak_mib": own_peak_mib()}))
