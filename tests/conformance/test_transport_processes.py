"""Several processes that write to one place at once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.transport_place import Place

pytestmark = pytest.mark.anyio

WRITER = """
import asyncio, sys
from host_client.errors import ConflictError
from host_client.transports.url import open_transport

async def main(url, me):
    transport = open_transport(url)
    for turn in sys.stdin:
        found = await transport.read("key")
        print("ready", flush=True)
        sys.stdin.readline()
        data = f"{me}-{turn.strip()}".encode() + b"x" * 100_000
        try:
            await transport.write("key", data, if_revision=found and found.revision)
            print("won", flush=True)
        except ConflictError as error:
            print(error.reason, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def writers(shared: Callable[[], Place]) -> Iterator[tuple[Place, list[subprocess.Popen[str]]]]:
    """Run three processes that write to one place when told."""
    place = shared()
    environment = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "PATH"))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, place.url, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(3)
    ]
    yield place, processes
    for process in processes:
        with process:
            process.stdin.close()  # type: ignore[union-attr]
    assert [process.returncode for process in processes] == [0, 0, 0]


async def test_one_of_many_processes_wins(writers: tuple[Place, list[subprocess.Popen[str]]]) -> None:
    """Of processes that write one key at once exactly one wins, created and replaced; the others are told of it."""
    place, processes = writers
    transport = place.open()
    for turn in range(2):
        answers = await asyncio.to_thread(_turn, processes, turn)
        assert sorted(answers) == ["stale_revision", "stale_revision", "won"]
        found = await transport.read("key")
        assert found is not None
        assert found.data.startswith(f"{answers.index('won')}-{turn}x".encode())


def _turn(processes: list[subprocess.Popen[str]], turn: int) -> list[str]:
    for process in processes:
        print(turn, file=process.stdin, flush=True)
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        print(file=process.stdin, flush=True)
    return [process.stdout.readline().strip() for process in processes if process.stdout is not None]
