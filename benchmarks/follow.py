"""Many conversations that are followed at once: who writes them, who follows, and how late a line is.

Run as `python -m benchmarks.follow TARGET HOST_HOME ID...` this is the client: it follows every conversation by the
public library, in one process and on one connection, says `following` once each of them was captured, and ends with its
standard input.
"""

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.daemon import Daemon, serving
from benchmarks.harness import MAX_COMMAND_SECONDS, BenchError, wait_for
from benchmarks.scratch import new_place
from benchmarks.transcript import line
from host_client import ConversationContext, Sandbox, builtin_format, connect
from host_client.agents.claude import project_key

_TEXT_BYTES = 400
_FIRST_LINES_COUNT = 100
_LOOK_SECONDS = 0.005
"""Time between two looks at the host's files: how exact a latency is."""


@dataclass
class Followed:
    """One conversation: its transcript, its copy, and the lines that are on the way."""

    source: Path
    copy: Path
    cwd: str
    copied_cwd: str
    written_count: int = 0
    awaited: deque[tuple[int, float]] = field(default_factory=deque)
    copied_bytes: int = 0

    def begin(self) -> None:
        """Write the lines that are there before it is followed."""
        self.source.parent.mkdir(parents=True, exist_ok=True)
        self.source.write_bytes(b"".join(self._next() for _ in range(_FIRST_LINES_COUNT)))
        self.awaited.clear()

    def write(self) -> None:
        """Append a line, as the CLI does, and wait for its copy."""
        with self.source.open("ab", buffering=0) as file:
            file.write(self._next())
        self.awaited[-1] = (self.awaited[-1][0], time.monotonic())

    def arrived(self) -> Iterator[float]:
        """Yield how long each line took that is in the copy by now."""
        size_bytes = self.copy.stat().st_size
        now = time.monotonic()
        while self.awaited and self.awaited[0][0] <= size_bytes:
            yield now - self.awaited.popleft()[1]

    def check(self) -> None:
        """Raise BenchError unless the copy is the transcript, relocated."""
        old, new = (b'"cwd":"%b"' % cwd.encode() for cwd in (self.cwd, self.copied_cwd))
        if self.source.read_bytes().replace(old, new) != self.copy.read_bytes():
            raise BenchError(f"{self.copy} is not {self.source}, relocated")

    def _next(self) -> bytes:
        text = line(self.written_count, "x" * _TEXT_BYTES, self.cwd)
        self.written_count += 1
        self.copied_bytes += len(text) + len(self.copied_cwd) - len(self.cwd)
        self.awaited.append((self.copied_bytes, 0.0))
        return text


@dataclass(frozen=True)
class Load:
    """What a stretch of time was like: how late each line was, and how much processor time each side took.

    Attributes:
        latencies_seconds: Of each line, in the order in which they came.
        daemon_cores: Share of one processor that the daemon took.
        client_cores: The same of the client.
    """

    latencies_seconds: list[float]
    daemon_cores: float
    client_cores: float


@contextmanager
def following(directory: Path, conversations_count: int) -> Iterator["Following"]:
    """Serve that many conversations and follow all of them."""
    place = new_place(directory)
    home, workspace, host_home = (place / name for name in ("home", "workspace", "host"))
    for path in (home, workspace, host_home):
        path.mkdir()
    ids = [str(uuid.UUID(int=number + 1)) for number in range(conversations_count)]
    folders = [
        (root / ".claude/projects" / project_key(str(cwd))) for root, cwd in ((home, workspace), (host_home,) * 2)
    ]
    followed = [
        Followed(*(folder / f"{one}.jsonl" for folder in folders), cwd=str(workspace), copied_cwd=str(host_home))
        for one in ids
    ]
    for one in followed:
        one.begin()
    with serving(home=home, workspace=workspace) as daemon:
        command = [sys.executable, "-m", "benchmarks.follow", daemon.target, str(host_home), *ids]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            try:
                if client.stdout is None or client.stdin is None:
                    raise BenchError("the client has no pipes")
                wait_for(client.stdout.fileno, "the first captures")
                if client.stdout.readline() != b"following\n":
                    raise BenchError("the client could not follow the conversations")
                yield Following(followed, daemon, client.pid)
                client.stdin.close()
                if client.wait(MAX_COMMAND_SECONDS) != 0:
                    raise BenchError("the client could not follow to the end")
            finally:
                if client.poll() is None:
                    client.kill()
    for one in followed:
        one.check()


@dataclass(frozen=True)
class Following:
    """Conversations that are being followed."""

    followed: list[Followed]
    daemon: Daemon
    client_process_id: int

    def run(self, lines_per_second: int, seconds: float) -> Load:
        """Write lines in turns for some time, wait for the last, and return what that was like."""
        latencies: list[float] = []
        before = self._cpu_seconds()
        began = looked = time.monotonic()
        written_count, total_count = 0, round(lines_per_second * seconds)
        while written_count < total_count:
            now = time.monotonic()
            while written_count < min(total_count, (now - began) * lines_per_second):
                self.followed[written_count % len(self.followed)].write()
                written_count += 1
            if now - looked >= _LOOK_SECONDS:
                latencies += self._arrived()
                looked = now
            time.sleep(0.001)
        taken_seconds = time.monotonic() - began
        daemon_cores, client_cores = (
            (after - at_first) / taken_seconds for after, at_first in zip(self._cpu_seconds(), before, strict=True)
        )
        deadline = time.monotonic() + MAX_COMMAND_SECONDS
        while len(latencies) < total_count:
            if time.monotonic() > deadline:
                raise BenchError(f"{total_count - len(latencies)} lines never came")
            latencies += self._arrived()
            time.sleep(_LOOK_SECONDS)
        return Load(latencies, daemon_cores, client_cores)

    def _arrived(self) -> list[float]:
        return [latency for one in self.followed for latency in one.arrived()]

    def _cpu_seconds(self) -> tuple[float, float]:
        return _cpu_seconds(self.daemon.process_id), _cpu_seconds(self.client_process_id)


def _cpu_seconds(process_id: int) -> float:
    """Return the processor time of a process so far, all threads, in the kernel and out of it."""
    words = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


async def _follow_all(target: str, host_home: Path, ids: list[str]) -> None:
    async with connect(target) as sandbox:
        begun = [asyncio.Event() for _ in ids]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_follow(sandbox, host_home, one, event))
                for one, event in zip(ids, begun, strict=True)
            ]
            for event in begun:
                await event.wait()
            print("following", flush=True)
            await asyncio.to_thread(sys.stdin.read)
            for task in tasks:
                task.cancel()


async def _follow(sandbox: Sandbox, host_home: Path, conversation_id: str, begun: asyncio.Event) -> None:
    context = ConversationContext(sandbox=sandbox, conversation_home=host_home)
    async with aclosing(builtin_format("claude").follow(conversation_id, context)) as updates:
        async for _ in updates:
            begun.set()


if __name__ == "__main__":
    _, daemon_target, host_home_text, *conversation_ids = sys.argv
    asyncio.run(_follow_all(daemon_target, Path(host_home_text), conversation_ids))
