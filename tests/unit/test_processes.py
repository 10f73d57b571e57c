"""All processes of a daemon: how many are kept once they are over, and what their end waits for."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import processes as module
from sandbox_agent.core.child import CHILDREN
from sandbox_agent.core.process_plan import Plan
from sandbox_api.errors import LimitError, ProcessError, UnavailableError
from support.process_sandbox import processes_in
from support.wait import MAX_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox_agent.core.process import Process
    from sandbox_agent.core.processes import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Those of a sandbox."""
    with processes_in(tmp_path) as processes:
        yield processes


def run(processes: Processes, process_id: str, *argv: bytes, **fields: object) -> Process:
    """Start a process."""
    plan = Plan(argv=argv or (b"true",), **fields).check()  # type: ignore[arg-type]
    return processes.start(process_id, plan, b"").result(MAX_SECONDS)


def over(processes: Processes, process_id: str, *argv: bytes) -> Process:
    """Run a process to its end."""
    process = run(processes, process_id, *argv)
    wait_until(lambda: process.exit is not None, "its end")
    return process


def ids(processes: Processes) -> list[str]:
    """Return what is known."""
    return [process.id for process in processes.known()]


def test_what_is_large_or_secret_is_not_kept(processes: Processes) -> None:
    """Of what was asked for only that stays in memory which is needed later."""
    plan = run(processes, "p", b"sleep", b"1000", input=b"x" * 1000, variables={b"TOKEN": b"x"}, grace_seconds=1.5).plan
    assert (plan.argv, plan.input, plan.variables, plan.grace_seconds) == ((b"sleep",), b"", {}, 1.5)


@pytest.mark.parametrize(
    ("number", "given"),
    [(1, b""), (2, b""), (3, b""), (3, b"x"), (4, b"x")],
    ids=["output", "standard error", "end", "input", "end, when input was given"],
)
def test_process_that_cannot_be_watched(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, number: int, given: bytes
) -> None:
    """Its start fails, and nothing is left of it; the others go on."""
    watch = processes.pump.watch
    watched: list[int] = []

    def refuse(fd: int, events: int, handler: Callable[[], object]) -> None:
        watched.append(fd)
        if len(watched) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        watch(fd, events, handler)

    over(processes, "first")
    monkeypatch.setattr(processes.pump, "watch", refuse)
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(LimitError) as caught:
        run(processes, "p", b"sleep", b"1000", input=given)
    assert caught.value.reason == "descriptors"
    assert ids(processes) == ["first"]
    assert set(Path("/proc/self/fd").iterdir()) == before
    wait_until(lambda: CHILDREN.reap() == 1, "its end")
    over(processes, "p")


def test_readers_that_come_and_go(processes: Processes) -> None:
    """They leave nothing behind, however long output is held for the next one."""
    process = run(processes, "p", b"sleep", b"1000", hold_seconds=1e6)
    for _ in range(100):
        process.audience.read_from((0, 0), lambda: None).close()
    done = threading.Event()
    processes.pump.call(done.set)
    assert done.wait(MAX_SECONDS)
    assert len(process._timers) <= 2


def test_oldest_go_first(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that are over only so many are kept; what runs is none of them."""
    monkeypatch.setattr(module, "_FEW_COUNT", 0)
    monkeypatch.setattr(module, "MAX_OVER_COUNT", 2)
    run(processes, "runs", b"sleep", b"1000")
    for process_id in ("a", "b", "c"):
        over(processes, process_id)
    wait_until(lambda: ids(processes) == ["runs", "b", "c"], "the oldest to go")
    with pytest.raises(ProcessError):
        processes.get("a")


def test_those_that_are_over_cost_nothing(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every end looks at all that are kept, and of a start it counts how many run."""
    monkeypatch.setattr(processes, "_max_count", 2)
    looks: list[int] = []
    monkeypatch.setattr(processes, "_drop_oldest", lambda: looks.append(1))
    for number in range(10):
        process = run(processes, f"p{number}")
        wait_until(lambda process=process: process.exit is not None, "its end")  # type: ignore[misc]
        with pytest.raises(ProcessError):
            run(processes, f"q{number}", b"/none")
    wait_until(lambda: processes._running_count == 0, "the last one")
    run(processes, "a", b"sleep", b"1000")
    run(processes, "b", b"sleep", b"1000")
    with pytest.raises(LimitError):
        run(processes, "c")
    assert not looks


def test_large_output_goes_first(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with files, or much in memory, are kept in smaller numbers."""
    monkeypatch.setattr(module, "_FEW_COUNT", 0)
    monkeypatch.setattr(module, "MAX_SPOOLED_COUNT", 1)
    for process_id in ("a", "b"):
        over(processes, process_id, b"head", b"-c", b"100000", b"/dev/zero")
    wait_until(lambda: ids(processes) == ["b"], "the first file to go")
    monkeypatch.setattr(module, "MAX_MEMORY_BYTES", 1500)
    for process_id in ("c", "d"):
        over(processes, process_id, b"head", b"-c", b"1000", b"/dev/zero")
    wait_until(lambda: ids(processes) == ["d"], "memory to be free")


def test_kept_for_a_time(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is over goes after its time; while somebody reads that does not begin."""
    read, gone = over(processes, "read"), over(processes, "gone")
    assert gone.exit is not None
    with closing(read.audience.read_from((0, 0), lambda: None)):
        monkeypatch.setattr(module, "KEEP_SECONDS", -1.0)
        processes.pump.call(processes._expire)
        wait_until(lambda: ids(processes) == ["read"], "the other to go")
    processes.pump.call(processes._expire)
    wait_until(lambda: ids(processes) == [], "it to go")


def test_end_does_not_wait_for_readers(tmp_path: Path) -> None:
    """What is held for a reader does not hold up the daemon's end, nor a release, and nothing starts any more."""
    with processes_in(tmp_path) as processes:
        for process_id in ("released", "left"):
            run(processes, process_id, b"yes", hold_seconds=1000.0, keep_bytes=64 << 10)
        released, left = processes.get("released"), processes.get("left")
        wait_until(lambda: left.windows[0].end == released.windows[0].end == 64 << 10, "full windows")
        processes.release("released")
        wait_until(lambda: released.exit is not None, "the release")
    assert left.exit is not None
    assert left.exit.cause == "shutdown"
    with pytest.raises(UnavailableError):
        processes.start("late", Plan(argv=(b"true",)), b"")
