"""Processes by the library in a real sandbox: run, bounded, ended with all they started, found again."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConflictError, DeadlineError, LimitError, OutpostError, ProcessError, UnavailableError
from host_client.sandbox.sandbox import connect
from support.daemon import END_SECONDS, running_daemon
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from host_client.sandbox.process import Process
    from host_client.sandbox.sandbox import Sandbox
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio

TREE = "sleep 1000 & sleep 1001 & echo $$ $!; wait"
"""A shell with two children; tells its number and that of the second."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon for this module."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
async def sandbox(daemon: RunningDaemon) -> AsyncIterator[Sandbox]:
    """A connection to it, whose provider sets variables."""
    async with connect(daemon.target, variables={"A": "provider", "B": "provider"}) as connected:
        yield connected


async def first_line(process: Process) -> str:
    """Return what a process prints first."""
    async with aclosing(process.output()) as output:
        return (await anext(output)).data.decode()


def is_there(pid: int) -> bool:
    """Tell whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_command_runs_where_and_as_it_was_meant(sandbox: Sandbox, daemon: RunningDaemon) -> None:
    """Directory, variables, words of any bytes, and both outputs."""
    done = await sandbox.run(
        ["sh", "-c", 'pwd; printf "%s " "$A" "$B" "$1" >&2', "sh", b"\xff"], variables={"B": "run"}
    )
    assert (done.stdout, done.stderr) == (f"{daemon.workspace}\n".encode(), b"provider run \xff ")
    below = await sandbox.run(["pwd"], cwd=str(daemon.home))
    assert below.check().stdout == f"{daemon.home}\n".encode()


@pytest.mark.parametrize(
    ("options", "family", "reason"),
    [
        ({"deadline_seconds": 0.2}, DeadlineError, "deadline"),
        ({"idle_seconds": 0.2}, DeadlineError, "idle"),
        ({"max_output_bytes": 10}, LimitError, "max_output_bytes"),
    ],
)
async def test_a_process_is_bounded(
    sandbox: Sandbox, options: dict[str, float], family: type[OutpostError], reason: str
) -> None:
    """What was printed until then is there; the end is a failure only for who asks."""
    done = await sandbox.run(["sh", "-c", "echo 0123456789abc; exec sleep 1000"], **options)  # type: ignore[arg-type]
    assert done.stdout == b"0123456789abc\n"[: int(options.get("max_output_bytes", 100))]
    with pytest.raises(family) as caught:
        done.check()
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("argv", "cwd", "named"),
    [
        (["no-such-program"], None, "process/no_such_program"),
        (["./file"], None, "process/not_executable"),
        (["true"], "/nowhere", "workspace/outside_roots"),
        (["true"], "{workspace}/nowhere", "process/no_such_directory"),
    ],
)
async def test_what_cannot_start_is_told(
    sandbox: Sandbox, daemon: RunningDaemon, argv: list[str], cwd: str | None, named: str
) -> None:
    """By its row, and nothing is left of it."""
    (daemon.workspace / "file").write_text("no program")
    with pytest.raises(OutpostError) as caught:
        await sandbox.run(argv, cwd=cwd and cwd.format(workspace=daemon.workspace))
    assert f"{caught.value.code}/{caught.value.reason}" == named
    assert not await sandbox.processes.list()


async def test_leaving_the_block_ends_all_that_was_started(sandbox: Sandbox) -> None:
    """The process and its children, whose output nobody waits for."""
    async with sandbox.run(["sh", "-c", TREE]) as process:
        pids = [int(word) for word in (await first_line(process)).split()]
        assert all(map(is_there, pids))
    assert not any(map(is_there, pids))
    assert not await sandbox.processes.list()


async def test_a_cancel_ends_all_that_was_started(sandbox: Sandbox) -> None:
    """When the cancel comes out, it is done."""
    pids: list[int] = []
    is_running = asyncio.Event()

    async def work() -> None:
        async with sandbox.run(["sh", "-c", TREE]) as process:
            pids.extend(int(word) for word in (await first_line(process)).split())
            is_running.set()
            await process.wait()

    working = asyncio.ensure_future(work())
    await is_running.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert not any(map(is_there, pids))


async def test_a_process_that_ignores_term_is_killed(sandbox: Sandbox) -> None:
    """After the grace, and told as what it was."""
    async with sandbox.run(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done"]) as process:
        await first_line(process)
        ended = await process.end(grace_seconds=0.1)
    assert (ended.signal, ended.cause, ended.shell_status) == (9, "signal", 137)


async def test_a_signal_is_the_processs_to_handle(sandbox: Sandbox) -> None:
    """Its own end, with its own status."""
    async with sandbox.run(["sh", "-c", "trap 'exit 3' USR1; echo ready; while :; do sleep 0.01; done"]) as process:
        await first_line(process)
        await process.signal(10)
        ended = await process.wait()
    assert (ended.status, ended.signal) == (3, 0)


async def test_output_that_nobody_reads_is_dropped_only_after_the_hold(sandbox: Sandbox) -> None:
    """A process that may not wait goes on; who comes too late is told where the rest begins."""
    process = await sandbox.processes.start(["head", "-c", "1000000", "/dev/zero"], keep_bytes=64 << 10, hold_seconds=0)
    assert (await process.wait()).stdout_bytes == 1_000_000
    with pytest.raises(ProcessError) as caught:
        await first_line(process)
    assert caught.value.reason == "output_lost"
    rest = sandbox.processes.attach(process.id, stdout_offset=int(caught.value.facts["stdout_start"]))
    size = sum([len(item.data) async for item in rest.output()])
    assert size + int(caught.value.facts["stdout_start"]) == 1_000_000
    await sandbox.processes.release(process.id)


async def test_a_slow_reader_holds_the_process_up(sandbox: Sandbox) -> None:
    """Nothing is dropped while somebody reads, however small the window."""
    size = 0
    async with sandbox.run(["head", "-c", "4000000", "/dev/zero"], keep_bytes=64 << 10) as process:
        async for item in process.output():
            assert item.offset == size
            size += len(item.data)
    assert size == 4_000_000


async def test_output_that_never_pauses_does_not_hold_input_up(sandbox: Sandbox) -> None:
    """How much the process took comes between the pieces, also to one who reads more slowly than it prints."""
    script = "exec 3<&0; cat /dev/zero & cat <&3 >/dev/null; kill $!"
    async with sandbox.run(["sh", "-c", script], open_input=True) as process, aclosing(process.output()) as output:
        writing = asyncio.ensure_future(process.write(bytes(4 << 20)))
        for _ in range(500):
            await anext(output)
            await sandbox.info()
            if writing.done():
                break
        assert writing.done()
        assert await writing
        await process.close_input()
        async for _ in output:
            pass
    assert process.exit is not None


async def test_whoever_only_watches_disturbs_nobody(sandbox: Sandbox) -> None:
    """A client may read what another one writes to, and sees all of it to the end."""
    async with sandbox.run(["cat"], open_input=True) as process:
        watched = sandbox.processes.attach(process.id).output()
        for word in (b"one", b"two"):
            assert await process.write(word)
            assert (await anext(watched)).data == word
        await process.close_input()
        assert [item.data async for item in watched] == []
        assert (await process.wait()).ok


async def test_an_id_belongs_to_one_request(sandbox: Sandbox) -> None:
    """The same again is the same process; another is a conflict, and leaves it alone."""
    async with sandbox.run(["cat"], open_input=True, process_id="mine") as process:
        again = await sandbox.processes.start(["cat"], open_input=True, process_id="mine")
        assert again.pid == process.pid
        with pytest.raises(ConflictError) as caught:
            await sandbox.run(["true"], process_id="mine")
        assert caught.value.reason == "exists"
        assert await process.write(b"still here")
        assert await first_line(process) == "still here"


async def test_a_terminal_has_one_output(sandbox: Sandbox) -> None:
    """Of the size that was asked for, and of another later."""
    async with sandbox.run(
        ["sh", "-c", "stty size; read x; stty size >&2"], open_input=True, terminal=(31, 99)
    ) as process:
        assert await first_line(process) == "31 99\r\n"
        await process.resize(40, 100)
        await process.write(b"\n")
        rest = [item async for item in process.output()]
    assert {item.stream for item in rest} == {"stdout"}
    assert b"".join(item.data for item in rest).endswith(b"40 100\r\n")


async def test_a_daemon_that_ends_tells_its_readers(tmp_path: Path) -> None:
    """Its processes end with it: the end has come, or the daemon is away; never a hang, never a success."""
    with running_daemon(tmp_path) as running:
        async with connect(running.target) as sandbox:
            process = await sandbox.processes.start(["sh", "-c", "echo $$; exec sleep 1000"], patience_seconds=0.2)
            pid = int(await first_line(process))
            running.process.terminate()
            try:
                told: str = (await process.wait()).cause
            except UnavailableError as error:
                told = error.reason
            assert told in {"shutdown", "unreachable"}
            wait_until(lambda: not is_there(pid), "the end of the process")
        assert running.process.wait(END_SECONDS) == 0


async def test_programs_are_looked_up_as_they_are_started(sandbox: Sandbox, daemon: RunningDaemon) -> None:
    """By PATH of the process, which a run may set; None when there is none."""
    program = daemon.workspace / "program"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    variables = {"PATH": f"{daemon.workspace}:/usr/bin:/bin"}
    found = await sandbox.processes.find_program("program", variables=variables)
    assert str(found) == str(program)
    assert await sandbox.processes.find_program("program") is None
    assert (await sandbox.run(["program"], variables=variables)).stdout == b"found\n"
