"""Processes that misbehave, daemons that are killed, disks that are full: what is left, and what is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox_api.v1 import process_pb2 as pb
from support.daemon import running_daemon
from support.filesystem import mounted
from support.process_scene import SECONDS, Scene, scene_of
from support.status import fails
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.daemon import RunningDaemon

SLEEP = "1000"
TRACED = """
import ctypes, os, signal
system = ctypes.CDLL(None)
system.prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # any process may trace this one
traced = os.getpid()
told, tells = os.pipe()
if not os.fork():
    os.setsid()
    os.write(tells, b"1" if system.ptrace(0x4206, traced, 0, 0) == 0 else b"0")
    os.write(1, b"%d\\n" % os.getpid())
    signal.pause()
os._exit(7 if os.read(told, 1) == b"1" else 8)
"""
"""Ends while a child, which then waits for nothing, traces it: nobody gets its exit status until that child ends."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon for the module."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def scene(daemon: RunningDaemon) -> Iterator[Scene]:
    """Its processes."""
    with scene_of(daemon.target) as scene:
        yield scene


def runs(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pids_in(text: bytes | bytearray) -> list[int]:
    """Return the numbers that a script has printed."""
    return [int(word) for word in text.split()]


@contextmanager
def ended(pids: list[int]) -> Iterator[None]:
    """End processes that a test leaves on purpose."""
    try:
        yield
    finally:
        for pid in pids:
            if runs(pid):
                os.kill(pid, signal.SIGKILL)


# Groups


@pytest.mark.parametrize("fields", [{"deadline_seconds": 0.3}, {"idle_seconds": 0.3, "grace_seconds": 5.0}])
def test_whole_group_is_ended(scene: Scene, fields: dict[str, float]) -> None:
    """Of a shell and what it started in the background nothing survives the end."""
    read = scene.read(scene.shell("sleep 1000 & echo $! $$; sleep 1000", **fields))
    pids = pids_in(read.stdout)
    assert len(pids) == 2
    assert not any(map(runs, pids))


def test_release_ends_everything(scene: Scene) -> None:
    """Once a release has answered nothing is left, of other groups and sessions either."""
    script = (
        "setsid sleep 1000 & echo $!;"
        " (setsid sh -c 'echo $$; trap \"\" TERM; sleep 1000 & wait; sleep 1000' &); sleep 1000"
    )
    process_id = scene.shell(script, grace_seconds=0.2)
    with scene.attached(process_id) as attached:
        while attached.read.stdout.count(b"\n") < 2:
            attached.next()
    pids = [*pids_in(attached.read.stdout), scene.state(process_id).pid]
    assert len(pids) == 3
    assert all(map(runs, pids))
    scene.release(process_id)
    assert not any(map(runs, pids))


def test_background_process_does_not_keep_it_running(scene: Scene) -> None:
    """A leader that ends takes its group along; the output up to there has come."""
    read = scene.read(scene.shell("sleep 1000 & echo $!; exit 7", grace_seconds=5))
    assert (read.exit.status, read.exit.cause) == (7, pb.ProcessExit.CAUSE_ITSELF)
    assert not any(map(runs, pids_in(read.stdout)))


def test_late_output_of_the_group(scene: Scene) -> None:
    """What ends soon after its leader may finish what it prints."""
    read = scene.read(scene.shell("(sleep 0.1; echo late) & echo early"))
    assert bytes(read.stdout) == b"early\nlate\n"


def test_daemonized_child_does_not_keep_it_running(scene: Scene) -> None:
    """A child that has left the session and holds the output neither delays the end nor is ended by it."""
    script = "import os\nif os.fork(): os._exit(0)\nos.setsid()\npid = os.fork()\n"
    script += "if pid: print(pid, flush=True); os._exit(0)\nos.execvp('sleep', ['sleep', '1000'])"
    shell = f"""{sys.executable} -S -c "{script}"; sleep 0.3; exit 3"""
    read = scene.read(scene.shell(shell))
    pids = pids_in(read.stdout)
    with ended(pids):
        assert read.exit.status == 3
        assert all(map(runs, pids))
        assert len(pids) == 1


def test_daemonized_child_is_ended_with_it(scene: Scene) -> None:
    """What was started by a process that we end goes with it, wherever it went."""
    script = "import os\nif os.fork(): os._exit(0)\nos.setsid()\npid = os.fork()\n"
    script += "if pid: print(pid, flush=True); os._exit(0)\nos.execvp('sleep', ['sleep', '1000'])"
    read = scene.read(scene.shell(f"""{sys.executable} -S -c "{script}"; sleep 1000""", idle_seconds=1.0))
    pids = pids_in(read.stdout)
    assert len(pids) == 1
    assert not any(map(runs, pids))


def test_restless_process_is_ended(scene: Scene, daemon: RunningDaemon) -> None:
    """Of a process that starts others all the time, in sessions of their own and deaf to TERM, nothing is left."""
    loop = "while :; do (setsid sh -c 'trap \"\" TERM; echo $$ >> restless; sleep 1000; :' &); sleep 0.01; done"
    process_id = scene.shell(f"trap '' TERM; {loop}", deadline_seconds=0.5, grace_seconds=0.2)
    assert scene.wait(process_id).cause == pb.ProcessExit.CAUSE_DEADLINE
    pids = pids_in((daemon.workspace / "restless").read_bytes())
    assert pids
    assert not any(map(runs, pids))


def test_others_are_left_alone(scene: Scene) -> None:
    """Ending a process ends nothing of another one."""
    first, second = scene.start("sleep", SLEEP), scene.start("sleep", SLEEP)
    scene.release(first)
    assert not scene.state(second).HasField("exit")
    assert runs(scene.state(second).pid)
    scene.release(second)


def test_orphans_are_reaped(scene: Scene, daemon: RunningDaemon) -> None:
    """Processes whose parents ended come to the daemon, which waits for them: none stays as a zombie."""
    orphan = "echo $$ > alone; until [ -e adopted ]; do sleep 0.01; done"
    script = f"setsid sh -c '{orphan}' > /dev/null 2>&1 & until [ -s alone ]; do sleep 0.01; done; cat alone"
    read = scene.read(scene.shell(script))
    (pid,) = pids_in(read.stdout)
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) == daemon.process.pid
    (daemon.workspace / "adopted").touch()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the orphan's end")


# Output


def test_closed_output_is_no_end(scene: Scene) -> None:
    """A process that closes its output and goes on has not ended."""
    process_id = scene.shell("echo out; exec >&- 2>&-; read x; exit 4", open_input=True)
    with scene.attached(process_id) as attached:
        attached.until(b"out\n")
        assert scene.stub.Wait(pb.WaitProcessRequest(id=process_id, max_seconds=0.2), timeout=SECONDS).running
        attached.write(0, b"\n")
        assert attached.rest().exit.status == 4


def test_long_line(scene: Scene) -> None:
    """A line of 20 MiB is but bytes."""
    read = scene.read(scene.shell("head -c 20971520 /dev/zero; echo"))
    assert read.stdout == bytes(20 << 20) + b"\n"


def test_flood_that_nobody_reads(scene: Scene, daemon: RunningDaemon) -> None:
    """A process that prints without end fills its window and no more, neither memory nor disk; then it is ended."""
    process_id = scene.start("yes", keep_bytes=1 << 20, deadline_seconds=0.5)
    outcome = scene.wait(process_id)
    assert outcome.cause == pb.ProcessExit.CAUSE_DEADLINE
    assert outcome.stdout_bytes > 1 << 20
    spools = [
        link for link in Path(f"/proc/{daemon.process.pid}/fd").iterdir() if "outpost-agent" in str(link.readlink())
    ]
    assert all(link.stat().st_size <= 64 << 20 for link in spools)
    read = scene.read(process_id, stdout=outcome.stdout_bytes - 100)
    assert bytes(read.stdout) in b"y\n" * 100


def test_attach_cancelled_in_the_middle(scene: Scene) -> None:
    """A reader that goes away in the middle changes nothing; the next goes on at any byte."""
    size = 40 << 20
    process_id = scene.start("head", "-c", str(size), "/dev/zero", keep_bytes=16 << 20, hold_seconds=60)
    got = 0
    while True:
        with scene.attached(process_id, stdout=got) as attached:
            while attached.next() and attached.read.exit is None and len(attached.read.stdout) < 7 << 20:
                pass
            got += len(attached.read.stdout)
            if attached.read.exit is not None:
                break
    assert got == size


def test_nothing_is_left_of_many(scene: Scene, daemon: RunningDaemon) -> None:
    """After hundreds of processes and cancelled readers the daemon has the descriptors and threads it had before."""
    folder = Path(f"/proc/{daemon.process.pid}")

    def descriptors() -> int:
        return sum(not str(link.readlink()).startswith("socket:") for link in (folder / "fd").iterdir())

    def threads() -> int:
        return len(list((folder / "task").iterdir()))

    def run(count: int) -> None:
        ids = [
            scene.start("cat", open_input=True) if index % 10 == 0 else scene.start("true") for index in range(count)
        ]
        for process_id in ids[::10]:
            with scene.attached(process_id) as attached:
                assert attached.next() == "input_taken"
        for process_id in ids:
            scene.release(process_id)

    run(20)
    descriptors_before, threads_before = descriptors(), threads()
    run(300)
    wait_until(lambda: descriptors() <= descriptors_before, "the descriptors")
    # Those of gRPC and of the workers come when they are needed.
    assert threads() < threads_before + 30


# The daemon


def test_killed_daemon(tmp_path: Path) -> None:
    """What a killed daemon left running is ended by the next, and nothing else."""
    script = "trap '' HUP PIPE; setsid sleep 1000 & echo $! $$ > pids; sleep 1000"
    bystander = subprocess.Popen(["sleep", SLEEP], start_new_session=True)
    try:
        with running_daemon(tmp_path) as daemon, scene_of(daemon.target) as scene:
            process_id = scene.shell(script, hold_seconds=60)
            path = daemon.workspace / "pids"
            wait_until(lambda: path.exists() and len(path.read_text().split()) == 2, "the processes")
            pids = [scene.state(process_id).pid, *pids_in(path.read_bytes())]
            daemon.process.kill()
            daemon.process.wait()
            assert all(map(runs, pids))
        with running_daemon(tmp_path) as daemon, scene_of(daemon.target) as scene:
            assert not any(map(runs, pids))
            assert "of a daemon that was killed" in daemon.log()
            with fails("process", "unknown"):
                scene.read(process_id)
            assert not list((daemon.home / ".outpost-agent").iterdir())
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_living_daemon_is_not_swept(tmp_path: Path) -> None:
    """Another daemon with the same state folder leaves alone what runs."""
    with running_daemon(tmp_path) as daemon, scene_of(daemon.target) as scene:
        process_id = scene.start("sleep", SLEEP)
        state = str(daemon.home / ".outpost-agent")
        (tmp_path / "other").mkdir()
        with running_daemon(tmp_path / "other", "--state", state):
            assert runs(scene.state(process_id).pid)
        assert runs(scene.state(process_id).pid)


@pytest.mark.parametrize("is_read", [True, False])
def test_full_disk(tmp_path: Path, *, is_read: bool) -> None:
    """Where output finds no room on the disk the window is as small as that, and no byte is passed over in silence."""
    size = 24 << 20
    with (
        mounted(tmp_path / "state", "tmpfs", "size=2m") as state,
        running_daemon(tmp_path, "--state", str(state / "folder")) as daemon,
        scene_of(daemon.target) as scene,
    ):
        process_id = scene.shell(f"head -c {size} /dev/zero; echo end", hold_seconds=60 if is_read else 0.0)
        if is_read:
            wait_until(lambda: "less output is kept" in daemon.log(), "the full disk")
            read = scene.read(process_id)
            assert read.stdout == bytes(size) + b"end\n"
        else:
            assert scene.wait(process_id).stdout_bytes == size + 4
            with fails("process", "output_lost"):
                scene.read(process_id)
            assert bytes(scene.read(process_id, stdout=size).stdout) == b"end\n"
        assert "limit/disk_full" in daemon.log()


def test_unusable_state_folder(tmp_path: Path) -> None:
    """Without a state folder processes run all the same, with what memory keeps of their output."""
    (tmp_path / "file").touch()
    with running_daemon(tmp_path, "--state", str(tmp_path / "file/below")) as daemon, scene_of(daemon.target) as scene:
        process_id = scene.shell("head -c 1000000 /dev/zero; echo end", hold_seconds=60)
        assert scene.read(process_id).stdout == bytes(1_000_000) + b"end\n"
        assert "what this daemon starts outlives its kill" in daemon.log()


def test_many_starts_beside_busy_streams(scene: Scene) -> None:
    """Hundreds of starts succeed while streams are busy."""
    busy = [scene.start("yes", keep_bytes=1 << 20, hold_seconds=60) for _ in range(8)]
    calls = [scene.stub.Attach(iter([pb.AttachRequest(begin=pb.AttachBegin(id=one))])) for one in busy]
    for call in calls:
        while next(call).WhichOneof("part") != "stdout":
            pass
    ids = [scene.start("true") for _ in range(200)]
    assert [scene.wait(process_id).status for process_id in ids] == [0] * 200
    for call in calls:
        call.cancel()
    for process_id in (*busy, *ids):
        scene.release(process_id)


def test_memory_of_many(tmp_path: Path) -> None:
    """A daemon that runs a hundred processes, some output kept of each, stays small."""
    with running_daemon(tmp_path) as daemon, scene_of(daemon.target) as scene:
        ids = [scene.shell("head -c 100000 /dev/zero; read x", open_input=True, hold_seconds=60) for _ in range(100)]
        for process_id in ids:
            wait_until(lambda one=process_id: scene.state(one).stdout_bytes == 100_000, "the output")  # type: ignore[misc]
        lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
        resident_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
        assert resident_kib < 128 << 10


def test_process_that_ends_while_it_is_traced(scene: Scene) -> None:
    """It is over when whoever traces it lets it go, as for any parent; the other processes go on meanwhile."""
    process_id = scene.start(sys.executable, "-S", "-c", TRACED)
    with scene.attached(process_id) as attached:
        attached.until(b"\n")
        tracer = int(attached.read.stdout)
        for _ in range(3):
            assert scene.wait(scene.start("true")).status == 0
        assert scene.state(process_id).HasField("exit") is False
        os.kill(tracer, signal.SIGKILL)
        outcome = attached.rest().exit
    assert (outcome.status, outcome.cause) == (7, pb.ProcessExit.CAUSE_ITSELF)
