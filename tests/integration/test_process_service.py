"""ProcessService: starting, reading, writing, ending, by raw stubs."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
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
    from collections.abc import Iterator

    from support.daemon import RunningDaemon

ENVIRONMENT = {"OUTPOST_TOKEN": "secret-1", "LISTEN_FDS_X": "secret-2", "NOTIFY_SOCKET": "/secret-3", "KEPT": "kept"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon for the module."""
    umask = os.umask(0o027)
    try:
        with running_daemon(tmp_path_factory.mktemp("daemon"), environment=ENVIRONMENT) as running:
            os.umask(umask)
            yield running
    finally:
        os.umask(umask)


@pytest.fixture
def scene(daemon: RunningDaemon) -> Iterator[Scene]:
    """Its processes."""
    with scene_of(daemon.target) as scene:
        yield scene


# Starting


def test_output_and_status(scene: Scene) -> None:
    """Both streams and the exit status come, and the sizes are those of the output."""
    read = scene.read(scene.shell("printf out; printf error >&2; exit 3"))
    assert (bytes(read.stdout), bytes(read.stderr)) == (b"out", b"error")
    outcome = read.exit
    assert (outcome.status, outcome.signal, outcome.cause) == (3, 0, pb.ProcessExit.CAUSE_ITSELF)
    assert (outcome.stdout_bytes, outcome.stderr_bytes) == (3, 5)
    assert 0 < outcome.duration_seconds < SECONDS


def test_environment(scene: Scene, daemon: RunningDaemon) -> None:
    """It is the daemon's own without its secrets, with the agent home, the real directory and what was asked for."""
    variables = [pb.Variable(name=b"MINE", value=b"a=b\xff"), pb.Variable(name=b"KEPT", value=b"changed")]
    plain = dict(line.partition("=")[::2] for line in scene.read(scene.start("env")).stdout.decode().splitlines())
    assert plain["KEPT"] == "kept"
    assert not [name for name in plain if name.startswith(("OUTPOST_TOKEN", "LISTEN_", "NOTIFY_", "GRPC_VERBOSITY"))]
    assert "secret" not in str(plain)
    assert (plain["HOME"], plain["PWD"]) == (str(daemon.home), os.path.realpath(daemon.workspace))
    lines = bytes(scene.read(scene.start("env", variables=variables)).stdout).splitlines()
    assert {b"MINE=a=b\xff", b"KEPT=changed"} <= set(lines)


def test_umask_is_the_operators(scene: Scene) -> None:
    """What a process makes has the mode that it would have without us, on a terminal as well."""
    assert bytes(scene.read(scene.shell("umask")).stdout) == b"0027\n"
    terminal = pb.Terminal(rows=24, columns=80)
    assert bytes(scene.read(scene.shell("umask", terminal=terminal)).stdout) == b"0027\r\n"


def test_nothing_is_inherited(scene: Scene) -> None:
    """A process has its three descriptors, an empty signal mask, and ignores no signal, on a terminal as well."""
    script = (
        "import os, signal\n"
        "names = sorted(int(name) for name in os.listdir('/proc/self/fd'))[:-1]\n"
        "lines = open('/proc/self/status').read().split('\\n')\n"
        # glibc ignores the two signals that are its own, 32 and 33, in what it starts.
        "sets = [int(line.split()[1], 16) & ~(3 << 31) for line in lines if line.startswith(('SigBlk', 'SigIgn'))]\n"
        "print(names, sets)\n"
    )
    arguments = (sys.executable, "-S", "-c", script)
    # What the interpreter ignores itself.
    own = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    expected = f"[0, 1, 2] [0, {own}]"
    assert scene.read(scene.start(*arguments)).stdout.decode().strip() == expected
    terminal = pb.Terminal(rows=24, columns=80)
    assert scene.read(scene.start(*arguments, terminal=terminal)).stdout.decode().strip() == expected


def test_working_directory(scene: Scene, daemon: RunningDaemon) -> None:
    """It is the workspace unless one below a root is named; a program's relative path is relative to it."""
    folder = daemon.home / "folder"
    folder.mkdir()
    (folder / "tool").write_text("#!/bin/sh\npwd\n")
    (folder / "tool").chmod(0o755)
    assert bytes(scene.read(scene.shell("pwd")).stdout).strip() == os.fsencode(daemon.workspace)
    for fields in ({}, {"terminal": pb.Terminal(rows=24, columns=80)}):
        read = scene.read(scene.start("./tool", cwd=os.fsencode(folder), **fields))
        assert bytes(read.stdout).strip() == os.fsencode(folder)
    here = pb.Variable(name=b"PATH", value=b":/bin:/usr/bin")
    assert scene.read(scene.start("tool", cwd=os.fsencode(folder), variables=[here])).exit.status == 0


def test_unusable_working_directory(scene: Scene, daemon: RunningDaemon) -> None:
    """One that is not there, is none, lies outside or behind a link is told apart."""
    (daemon.home / "file").touch()
    (daemon.home / "link").symlink_to(daemon.workspace)
    for name in ("missing", "file", "file/below"):
        with fails("process", "no_such_directory"):
            scene.start("true", cwd=os.fsencode(daemon.home / name))
    with fails("workspace", "unsafe_path"):
        scene.start("true", cwd=os.fsencode(daemon.home / "link"))
    with fails("workspace", "outside_roots"):
        scene.start("true", cwd=b"/")


@pytest.mark.parametrize("terminal", [None, pb.Terminal(rows=24, columns=80)])
def test_unusable_program(scene: Scene, daemon: RunningDaemon, terminal: pb.Terminal | None) -> None:
    """What is not there and what cannot be executed are told apart; nothing is left of the attempt."""
    folder = daemon.workspace / f"programs-{terminal is None}"
    folder.mkdir()
    for name, text, mode in (("plain", "", 0o644), ("garbage", "\x7fELF", 0o755), ("script", "#!/no/such\n", 0o755)):
        (folder / name).write_text(text)
        (folder / name).chmod(mode)
    variables = [pb.Variable(name=b"PATH", value=os.fsencode(folder))]
    for name in ("missing", "./missing", "/no/such/program", "plain/below"):
        with fails("process", "no_such_program"):
            scene.start(name, variables=variables, terminal=terminal, process_id="refused")
    for name in ("plain", "garbage", "script", f"{folder}/plain", str(folder)):
        with fails("process", "not_executable"):
            scene.start(name, variables=variables, terminal=terminal, process_id="refused")
    assert scene.state("refused") is None
    # An id whose start failed is free.
    scene.start("true", process_id="refused")
    scene.release("refused")


def test_too_long_arguments(scene: Scene) -> None:
    """What the kernel does not take is said to have failed; the arguments are not told."""
    with fails("process", "start_failed"):
        scene.start("true", "x" * (1 << 20))


BAD_REQUESTS: list[dict[str, object]] = [
    {"argv": []},
    {"argv": [b""]},
    {"argv": [b"a\0b"]},
    {"variables": [pb.Variable(name=b"", value=b"x")]},
    {"variables": [pb.Variable(name=b"a=b", value=b"x")]},
    {"variables": [pb.Variable(name=b"a", value=b"\0")]},
    {"deadline_seconds": -1.0},
    {"idle_seconds": float("nan")},
    {"grace_seconds": float("inf")},
    {"hold_seconds": -0.5},
    {"keep_bytes": 1},
    {"keep_bytes": (1 << 30) + 1},
    {"input": bytes((1 << 20) + 1)},
    {"terminal": pb.Terminal(rows=0, columns=80)},
    {"terminal": pb.Terminal(rows=24, columns=65_536)},
]


@pytest.mark.parametrize("fields", BAD_REQUESTS, ids=[next(iter(fields)) for fields in BAD_REQUESTS])
def test_malformed_request(scene: Scene, fields: dict[str, object]) -> None:
    """What cannot be meant is refused before anything is started."""
    with fails("configuration", "invalid_argument"):
        scene.stub.Start(pb.StartProcessRequest(**{"id": "bad", "argv": [b"true"], **fields}), timeout=SECONDS)
    assert scene.state("bad") is None


@pytest.mark.parametrize("process_id", ["", "a b", "a/b", "ä", "x" * 65])
def test_malformed_id(scene: Scene, process_id: str) -> None:
    """An id is what its rule says."""
    with fails("configuration", "invalid_id"):
        scene.stub.Start(pb.StartProcessRequest(id=process_id, argv=[b"true"]), timeout=SECONDS)


def test_start_is_idempotent(scene: Scene, daemon: RunningDaemon) -> None:
    """The same request starts one process, however many make it at a time; another request is refused."""
    script = "echo started >> count; sleep 1000"
    request = pb.StartProcessRequest(id="once", argv=[b"sh", b"-c", script.encode()])
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda _: scene.stub.Start(request, timeout=SECONDS), range(10)))
    assert len({(answer.pid, answer.started.ToNanoseconds()) for answer in answers}) == 1
    wait_until((daemon.workspace / "count").exists, "the process")
    with fails("conflict", "exists"):
        scene.start("sh", "-c", script, "more", process_id="once")
    scene.release("once")
    assert (daemon.workspace / "count").read_text() == "started\n"


def test_start_outlives_its_call(scene: Scene, daemon: RunningDaemon) -> None:
    """A start whose client goes away is completed, and seen by the retry."""
    request = pb.StartProcessRequest(id="gone", argv=[b"sh", b"-c", b"echo started >> gone; sleep 1000"])
    call = scene.stub.Start.future(request, timeout=SECONDS)
    wait_until(lambda: scene.state("gone") is not None, "the start")
    call.cancel()
    answer = scene.stub.Start(request, timeout=SECONDS)
    assert answer.pid == scene.state("gone").pid
    wait_until((daemon.workspace / "gone").exists, "the process")
    scene.release("gone")
    assert (daemon.workspace / "gone").read_text() == "started\n"


def test_find_program(scene: Scene, daemon: RunningDaemon) -> None:
    """A program is found as a start would find it, by an absolute path; none is no error."""

    def find(name: bytes, path: bytes) -> bytes:
        request = pb.FindProgramRequest(name=name, variables=[pb.Variable(name=b"PATH", value=path)])
        return scene.stub.FindProgram(request, timeout=SECONDS).path

    tool = daemon.workspace / "a-tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o644)
    folder = os.fsencode(daemon.workspace)
    with fails("process", "not_executable"):
        find(b"a-tool", folder)
    tool.chmod(0o755)
    assert find(b"a-tool", b"/nowhere:" + folder) == folder + b"/a-tool"
    assert find(b"a-tool", b".") == folder + b"/a-tool"
    assert find(b"a-tool", b"/nowhere") == b""
    assert find(folder + b"/a-tool", b"/nowhere") == folder + b"/a-tool"
    assert find(folder + b"/missing", b"/nowhere") == b""
    with fails("configuration", "invalid_argument"):
        find(b"", folder)


# Input


def test_input_of_the_start(scene: Scene) -> None:
    """A process reads what its start brings and then the end; without any it reads nothing."""
    assert bytes(scene.read(scene.start("cat", input=b"x" * (1 << 20))).stdout) == b"x" * (1 << 20)
    assert bytes(scene.read(scene.start("readlink", "/proc/self/fd/0")).stdout) == b"/dev/null\n"


def test_input_by_a_stream(scene: Scene) -> None:
    """Input comes after that of the start; what is sent again is passed over, and the end ends it."""
    with scene.attached(scene.start("cat", open_input=True, input=b"first ")) as attached:
        attached.write(0, b"second ")
        attached.until_taken(7)
        attached.write(3, b"ond third")
        attached.write(12, b"", end=True)
        attached.write(12, b"", end=True)
        read = attached.rest()
    assert bytes(read.stdout) == b"first second third"
    assert read.taken[0] == (0, False)
    assert read.taken[-1] == (12, True)
    assert read.exit.status == 0


def test_input_goes_on_in_another_call(scene: Scene) -> None:
    """A new call says how much was taken, and writing goes on from there, or from before."""
    process_id = scene.start("cat", open_input=True)
    with scene.attached(process_id) as attached:
        attached.write(0, b"one")
        attached.until(b"one")
    with scene.attached(process_id, stdout=3) as attached:
        assert attached.next() == "input_taken"
        assert attached.read.taken == [(3, False)]
        attached.write(0, b"one two", end=True)
        assert bytes(attached.rest().stdout) == b" two"


@pytest.mark.parametrize(("is_open", "offset", "end_first"), [(True, 5, False), (False, 0, False), (True, 0, True)])
def test_input_that_does_not_fit(scene: Scene, offset: int, *, is_open: bool, end_first: bool) -> None:
    """A gap, input to a process that takes none, and input after the end break the rules; the process goes on."""
    process_id = scene.start("sleep", "1000", open_input=is_open)
    with scene.attached(process_id) as attached, fails("session", "protocol"):
        if end_first:
            attached.write(0, b"", end=True)
        attached.write(offset, b"x")
        attached.rest()
    assert not scene.state(process_id).HasField("exit")
    scene.release(process_id)


def test_last_to_attach_writes(scene: Scene) -> None:
    """Input of a client that is no longer the last to have attached is refused."""
    process_id = scene.start("cat", open_input=True)
    with scene.attached(process_id) as old:
        assert old.next() == "input_taken"
        with scene.attached(process_id) as new:
            assert new.next() == "input_taken"
            new.write(0, b"new", end=True)
            with fails("session", "protocol"):
                old.write(0, b"old")
                while old.next():
                    if old.read.exit is not None:
                        break
                pytest.fail("the old client ended before it was refused")
            assert bytes(new.rest().stdout) == b"new"


def test_input_is_not_read_any_more(scene: Scene) -> None:
    """That a process has closed its input is told, also when nobody writes; what is written then goes nowhere."""
    process_id = scene.shell("trap 'exit 4' TERM; exec <&-; while :; do sleep 0.01; done", open_input=True)
    with scene.attached(process_id) as attached:
        while not attached.read.taken or not attached.read.taken[-1][1]:
            assert attached.next() == "input_taken"
        for offset in range(4):
            attached.write(offset << 20, b"x" * (1 << 20))
        scene.signal(process_id, signal.SIGTERM)
        assert attached.rest().exit.status == 4


def test_slow_reader_of_input(scene: Scene) -> None:
    """Much more input than a pipe or the daemon holds arrives whole, at the process's pace."""
    size = 8 << 20
    script = "import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    with scene.attached(scene.start(sys.executable, "-c", script, open_input=True)) as attached:
        for offset in range(0, size, 1 << 20):
            attached.write(offset, bytes([offset >> 20]) * (1 << 20), end=offset + (1 << 20) == size)
        read = attached.rest()
    expected = hashlib.sha256(b"".join(bytes([index]) * (1 << 20) for index in range(8))).hexdigest()
    assert read.stdout.decode().strip() == expected


def test_malformed_attach(scene: Scene) -> None:
    """A stream that does not begin as it must, or goes on as it must not, is refused."""
    with fails("session", "protocol"):
        list(scene.stub.Attach(iter([pb.AttachRequest(input=pb.ProcessInput())]), timeout=SECONDS))
    with fails("session", "protocol"):
        list(scene.stub.Attach(iter([]), timeout=SECONDS))
    process_id = scene.start("sleep", "1000")
    begin = pb.AttachRequest(begin=pb.AttachBegin(id=process_id))
    for second in (begin, pb.AttachRequest()):
        with fails("session", "protocol"):
            list(scene.stub.Attach(iter([begin, second]), timeout=SECONDS))
    with fails("configuration", "invalid_argument"):
        list(scene.stub.Attach(iter([begin, pb.AttachRequest(resize=pb.Terminal())]), timeout=SECONDS))
    scene.release(process_id)


# Output


def test_attach_from_an_offset(scene: Scene) -> None:
    """What the client has is not sent again, while it runs and after it; what it cannot have is refused."""
    process_id = scene.shell("printf 0123456789; printf abc >&2")
    scene.wait(process_id)
    read = scene.read(process_id, stdout=4, stderr=1)
    assert (bytes(read.stdout), bytes(read.stderr)) == (b"456789", b"bc")
    assert bytes(scene.read(process_id, stdout=10, stderr=3).stdout) == b""
    for offsets in ((11, 0), (0, 4)):
        with fails("configuration", "invalid_argument"):
            scene.read(process_id, *offsets)


def test_two_readers(scene: Scene) -> None:
    """Each client gets everything, whenever it came."""
    process_id = scene.start("cat", open_input=True)
    with scene.attached(process_id) as first:
        first.write(0, b"early ")
        first.until(b"early ")
        with scene.attached(process_id) as second:
            second.write(6, b"late", end=True)
            assert bytes(second.rest().stdout) == bytes(first.rest().stdout) == b"early late"


def test_large_output(scene: Scene) -> None:
    """Output many times the window comes whole and in order while somebody reads, though that began late."""
    script = "import sys\nsys.stdout.write(''.join(f'{index:015d}\\n' for index in range(1 << 20)))"
    read = scene.read(scene.start(sys.executable, "-c", script, keep_bytes=1 << 20, hold_seconds=60))
    assert read.stdout == b"".join(b"%015d\n" % index for index in range(1 << 20))


def test_process_waits_for_its_reader(scene: Scene) -> None:
    """A process that fills its window waits while it is held; whoever comes then misses nothing."""
    process_id = scene.shell("head -c 1000000 /dev/zero; echo end", keep_bytes=64 << 10, hold_seconds=60)
    wait_until(lambda: scene.state(process_id).stdout_bytes == 64 << 10, "the full window")
    assert not scene.state(process_id).HasField("exit")
    assert scene.read(process_id).stdout == bytes(1_000_000) + b"end\n"


def test_oldest_output_is_dropped(scene: Scene) -> None:
    """A process that nobody reads goes on once it was held long enough; what is lost is said, and where the rest is."""
    process_id = scene.shell("head -c 1000000 /dev/zero; printf end", keep_bytes=64 << 10)
    assert scene.wait(process_id).stdout_bytes == 1_000_003
    with fails("process", "output_lost"):
        scene.read(process_id)
    start = 1_000_003 - (64 << 10)
    with fails("process", "output_lost"):
        scene.read(process_id, stdout=start - 1)
    assert scene.read(process_id, stdout=start).stdout == bytes((64 << 10) - 3) + b"end"


def test_hold_ends_by_itself(scene: Scene) -> None:
    """A held process that nobody comes for goes on after its time."""
    process_id = scene.shell("head -c 1000000 /dev/zero", keep_bytes=64 << 10, hold_seconds=0.2)
    assert scene.wait(process_id).stdout_bytes == 1_000_000


def test_slowest_reader_is_waited_for(scene: Scene) -> None:
    """While two read, the process waits for the slower one, who misses nothing."""
    size = 32 << 20
    process_id = scene.start("head", "-c", str(size), "/dev/zero", keep_bytes=1 << 20, hold_seconds=60)
    with scene.attached(process_id) as slow:
        slow.until(b"\0")
        with scene.attached(process_id, stdout=scene.state(process_id).stdout_bytes) as fast:
            fast.until(b"\0")
            # Nothing but the first part of the slow one was taken: the process cannot have ended.
            assert not scene.state(process_id).HasField("exit")
            fast.call.cancel()
        assert len(slow.rest().stdout) == size


def test_unknown_process(scene: Scene) -> None:
    """Every call that needs a process says that there is none; a release does not need one."""
    with fails("process", "unknown"):
        scene.read("none")
    with fails("process", "unknown"):
        scene.signal("none", signal.SIGTERM)
    with fails("process", "unknown"):
        scene.wait("none")
    scene.release("none")


# Ending


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


# Terminals


def test_terminal(scene: Scene) -> None:
    """It is the controlling terminal of the process, of the size that was asked for; both streams are one."""
    terminal = pb.Terminal(rows=10, columns=20)
    script = "tty; ps -o tty= -p $$; stty size; echo error >&2; echo x > /dev/tty"
    read = scene.read(scene.shell(script, terminal=terminal))
    name, seen, *rest = read.stdout.decode().split()
    assert name == f"/dev/{seen}"
    assert rest == ["10", "20", "error", "x"]
    assert (read.exit.stderr_bytes, read.stderr) == (0, b"")


def test_terminal_is_resized(scene: Scene) -> None:
    """A process is told of the new size."""
    script = "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.01; done"
    terminal = pb.Terminal(rows=10, columns=20)
    with scene.attached(scene.shell(script, terminal=terminal, open_input=True)) as attached:
        attached.until(b"up\r\n")
        attached.requests.send(pb.AttachRequest(resize=pb.Terminal(rows=33, columns=44)))
        assert attached.rest().stdout.endswith(b"33 44\r\n")


def test_terminal_takes_typing(scene: Scene) -> None:
    """Control-C is a signal and the end of input an end of file, also within a line."""
    terminal = pb.Terminal(rows=10, columns=80)
    with scene.attached(scene.start("cat", terminal=terminal, open_input=True)) as attached:
        attached.write(0, b"a line\n")
        attached.until(b"a line\r\na line\r\n")
        attached.write(7, b"no end", end=True)
        assert attached.rest().exit.status == 0
        assert attached.read.stdout.count(b"no end") == 2  # echoed and printed
    with scene.attached(scene.start("cat", terminal=terminal, open_input=True)) as attached:
        attached.write(0, b"x\n")
        attached.until(b"x\r\nx\r\n")
        attached.write(2, b"\x03")
        assert attached.rest().exit.signal == signal.SIGINT


def test_terminal_without_input(scene: Scene) -> None:
    """Without open input, what comes first is followed by an end of file."""
    terminal = pb.Terminal(rows=10, columns=80)
    assert scene.read(scene.start("cat", terminal=terminal)).exit.status == 0
    assert b"typed\r\ntyped\r\n" in scene.read(scene.start("cat", terminal=terminal, input=b"typed\n")).stdout


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
