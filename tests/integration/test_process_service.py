"""ProcessService: how processes end, what is told of them, and how their daemon ends."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from sandbox_api.v1 import process_pb2 as pb
from support.daemon import running_daemon
from support.process_scene import SECONDS, Scene, scene_of
from support.status import fails
from support.wait import wait_until

if TYPE_CHECKING:
    from support.daemon import RunningDaemon


def test_deadline(scene: Scene) -> None:
    """A process is ended after its time, and that is the cause, whatever its status is."""
    process_id = scene.shell(
        "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done", deadline_seconds=0.3
    )
    request = pb.StartProcessRequest(
        id="deadline",
        argv=[b"sh", b"-c", b"trap 'echo bye; exit 5' TERM; while :; do sleep 0.01; done"],
        deadline_seconds=0.3,
        grace_seconds=60,
    )
    scene.stub.Start(request, timeout=SECONDS)
    assert scene.wait(process_id).signal == signal.SIGKILL  # no grace
    read = scene.read("deadline")
    assert (bytes(read.stdout), read.exit.status, read.exit.cause) == (b"bye\n", 5, pb.ProcessExit.CAUSE_DEADLINE)


def test_grace_ends(scene: Scene) -> None:
    """What does not heed TERM is killed after its grace."""
    process_id = scene.shell("trap '' TERM; while :; do sleep 0.01; done", deadline_seconds=0.2, grace_seconds=0.2)
    outcome = scene.wait(process_id)
    assert (outcome.signal, outcome.cause) == (signal.SIGKILL, pb.ProcessExit.CAUSE_DEADLINE)


def test_idle(scene: Scene) -> None:
    """Silence ends a process, output of either stream is none."""
    script = "for i in 1 2 3 4 5 6 7 8; do sleep 0.1; echo x >&2; done; sleep 1000"
    outcome = scene.wait(scene.shell(script, idle_seconds=0.6, grace_seconds=1))
    assert outcome.cause == pb.ProcessExit.CAUSE_IDLE
    assert outcome.stderr_bytes == 16


def test_waiting_for_a_reader_is_not_idle(scene: Scene) -> None:
    """A process that cannot print for want of a reader is not silent."""
    process_id = scene.shell(
        "head -c 100000 /dev/zero; echo end", keep_bytes=64 << 10, hold_seconds=1, idle_seconds=0.2
    )
    assert scene.wait(process_id).cause == pb.ProcessExit.CAUSE_ITSELF


def test_output_limit(scene: Scene) -> None:
    """A process that prints more than it may is ended; what it may is kept."""
    process_id = scene.shell("printf abc >&2; yes", max_output_bytes=100_000, hold_seconds=60)
    read = scene.read(process_id)
    assert read.exit.cause == pb.ProcessExit.CAUSE_OUTPUT
    assert len(read.stdout) + len(read.stderr) == 100_000
    assert (read.exit.stdout_bytes, read.exit.stderr_bytes) == (len(read.stdout), len(read.stderr))


def test_exactly_the_output_limit(scene: Scene) -> None:
    """As much as it may print is not too much."""
    assert scene.wait(scene.shell("printf abc", max_output_bytes=3)).cause == pb.ProcessExit.CAUSE_ITSELF


def test_signal(scene: Scene) -> None:
    """A signal reaches the group; what it ends has that for a cause, and then a signal does nothing."""
    process_id = scene.start("sleep", "1000")
    assert not scene.signal(process_id, signal.SIGTERM).over
    outcome = scene.wait(process_id)
    assert (outcome.status, outcome.signal, outcome.cause) == (0, signal.SIGTERM, pb.ProcessExit.CAUSE_SIGNAL)
    assert scene.signal(process_id, signal.SIGKILL).over
    assert scene.wait(process_id) == outcome


def test_signal_that_is_handled(scene: Scene) -> None:
    """A signal that a process makes something of does not end it, nor is it the cause of its end."""
    with scene.attached(scene.shell("trap 'echo got' USR1; echo up; read x; read y", open_input=True)) as attached:
        attached.until(b"up\n")
        scene.signal(attached_id(scene), signal.SIGUSR1)
        attached.until(b"got\n")
        attached.write(0, b"", end=True)
        assert attached.rest().exit.cause == pb.ProcessExit.CAUSE_ITSELF


def attached_id(scene: Scene) -> str:
    """Return the id of the youngest process."""
    return scene.stub.List(pb.ListProcessesRequest(), timeout=SECONDS).processes[-1].id


def test_signal_then_kill(scene: Scene) -> None:
    """KILL follows where that was asked for."""
    with scene.attached(
        scene.shell("trap '' INT; echo up; while :; do sleep 0.01; done", grace_seconds=60)
    ) as attached:
        attached.until(b"up\n")
        scene.signal(attached_id(scene), signal.SIGINT, then_kill_seconds=0.1)
        outcome = attached.rest().exit
    assert (outcome.signal, outcome.cause) == (signal.SIGKILL, pb.ProcessExit.CAUSE_SIGNAL)


@pytest.mark.parametrize("number", [0, 65])
def test_malformed_signal(scene: Scene, number: int) -> None:
    """There are signals from 1 to 64."""
    process_id = scene.start("sleep", "1000")
    with fails("configuration", "invalid_argument"):
        scene.signal(process_id, number)
    scene.release(process_id)


def test_killed_by_somebody_else(scene: Scene) -> None:
    """An end by a signal that is not ours is told as such, with the process as its cause."""
    outcome = scene.wait(scene.shell("kill -SEGV $$"))
    assert (outcome.status, outcome.signal, outcome.cause) == (0, signal.SIGSEGV, pb.ProcessExit.CAUSE_ITSELF)


def test_wait(scene: Scene) -> None:
    """A wait answers at once, after its time, or when the process is over."""
    process_id = scene.start("cat", open_input=True)
    for seconds in (0, 0.05):
        request = pb.WaitProcessRequest(id=process_id, max_seconds=seconds)
        assert scene.stub.Wait(request, timeout=SECONDS).running
    waiting = scene.stub.Wait.future(pb.WaitProcessRequest(id=process_id, max_seconds=60), timeout=SECONDS)
    with scene.attached(process_id) as attached:
        attached.write(0, b"", end=True)
        assert waiting.result().exit == attached.rest().exit
    with fails("configuration", "invalid_argument"):
        scene.stub.Wait(pb.WaitProcessRequest(id=process_id, max_seconds=-1), timeout=SECONDS)


def test_list_and_release(scene: Scene, daemon: RunningDaemon) -> None:
    """The list has what runs and what is over, without arguments; what is released is in it no more."""
    over, running = scene.start("/bin/echo", "secret"), scene.start("sleep", "1000")
    outcome = scene.wait(over)
    state = scene.state(over)
    assert (state.program, state.exit, state.stdout_bytes) == (b"echo", outcome, 7)
    assert b"secret" not in state.SerializeToString()
    assert not scene.state(running).HasField("exit")
    pid = scene.state(running).pid
    waiting = scene.stub.Wait.future(pb.WaitProcessRequest(id=running, max_seconds=60), timeout=SECONDS)
    wait_until(lambda: "ProcessService/List" in daemon.log(), "the daemon")
    scene.release(over)
    scene.release(running)
    assert scene.state(over) is None
    assert scene.state(running) is None
    assert not Path(f"/proc/{pid}").exists()
    with fails("process", "unknown"):
        scene.read(running)
    try:
        assert waiting.result().exit.cause == pb.ProcessExit.CAUSE_SIGNAL
    except grpc.RpcError:
        pytest.fail("the waiting call did not hear of the end")


def test_log_tells_no_secrets(scene: Scene, daemon: RunningDaemon) -> None:
    """Neither arguments, variables nor output are in the log."""
    variable = pb.Variable(name=b"PASSWORD_X", value=b"hidden-1")
    scene.read(scene.shell("printf hidden-3 # hidden-2", variables=[variable]))
    assert "hidden" not in daemon.log()
    assert "PASSWORD_X" not in daemon.log()


# The daemon


def test_most_processes(tmp_path: Path) -> None:
    """More than the daemon's limit are refused, until one is over."""
    with running_daemon(tmp_path, "--max-processes", "2") as daemon, scene_of(daemon.target) as scene:
        first, second = scene.start("sleep", "1000"), scene.start("sleep", "1000")
        with fails("limit", "max_processes"):
            scene.start("true", process_id="third")
        scene.signal(first, signal.SIGKILL)
        scene.wait(first)
        scene.wait(scene.start("true", process_id="third"))
        scene.release(second)


def test_end_of_the_daemon(tmp_path: Path) -> None:
    """A daemon that ends ends its processes, and tells who reads."""
    with running_daemon(tmp_path) as daemon, scene_of(daemon.target) as scene:
        process_id = scene.shell(
            "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done", grace_seconds=60
        )
        with scene.attached(process_id) as attached:
            attached.until(b"up\n")
            pid = scene.state(process_id).pid
            daemon.process.terminate()
            read = attached.rest()
        assert (bytes(read.stdout), read.exit.status) == (b"up\nbye\n", 3)
        assert read.exit.cause == pb.ProcessExit.CAUSE_SHUTDOWN
        assert daemon.process.wait(SECONDS) == 0
        assert not Path(f"/proc/{pid}").exists()
        assert not list((daemon.home / ".outpost-agent").glob("processes-*"))


def test_deaf_process_at_the_end_of_the_daemon(tmp_path: Path) -> None:
    """What does not heed TERM is killed in time."""
    with running_daemon(tmp_path, "--drain-seconds", "0.5") as daemon, scene_of(daemon.target) as scene:
        process_id = scene.shell("trap '' TERM; echo up; while :; do sleep 0.01; done", grace_seconds=60)
        with scene.attached(process_id) as attached:
            attached.until(b"up\n")
        pid = scene.state(process_id).pid
        daemon.process.terminate()
        assert daemon.process.wait(SECONDS) == 0
        assert not Path(f"/proc/{pid}").exists()
