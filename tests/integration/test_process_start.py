"""ProcessService: what is started, in which surroundings, and what is not."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest

from sandbox_api.v1 import daemon_pb2, daemon_pb2_grpc
from sandbox_api.v1 import process_pb2 as pb
from support.daemon import running_daemon
from support.process_scene import SECONDS, Scene
from support.status import fails
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.daemon import RunningDaemon

HIDDEN = ("OUTPOST_TOKEN", "OUTPOST_ARCHIVE_KEY", "LISTEN_", "NOTIFY_", "GRPC_VERBOSITY")
ENVIRONMENT = {
    "OUTPOST_TOKEN": "secret-1",
    "LISTEN_FDS_X": "secret-2",
    "NOTIFY_SOCKET": "/secret-3",
    "OUTPOST_ARCHIVE_KEY": "secret-4",
    "KEPT": "kept",
}


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
    assert not [name for name in plain if name.startswith(HIDDEN)]
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


@pytest.mark.parametrize(
    "process_id", ["", "a b", "a/b", "ä", "x" * 65, "x" * 100_000], ids=["none", "space", "slash", "ä", "long", "huge"]
)
def test_malformed_id(scene: Scene, process_id: str) -> None:
    """An id is what its rule says, and no other is looked for or told again, in whatever call."""
    calls: list[Callable[[], object]] = [
        lambda: scene.stub.Start(pb.StartProcessRequest(id=process_id, argv=[b"true"]), timeout=SECONDS),
        lambda: scene.read(process_id),
        lambda: scene.signal(process_id, signal.SIGTERM),
        lambda: scene.wait(process_id),
        lambda: scene.release(process_id),
    ]
    for call in calls:
        with fails("configuration", "invalid_id"):
            call()


def test_start_is_idempotent(scene: Scene, daemon: RunningDaemon) -> None:
    """The same request starts one process, however many make it at a time; another request is refused."""
    script = "echo started >> count; sleep 1000"
    request = pb.StartProcessRequest(id="once", argv=[b"sh", b"-c", script.encode()])
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda _: scene.stub.Start(request, timeout=SECONDS), range(10)))
    assert len({(answer.pid, answer.started.ToNanoseconds()) for answer in answers}) == 1
    wait_until(lambda: is_written(daemon.workspace / "count"), "the process")
    with fails("conflict", "exists"):
        scene.start("sh", "-c", script, "more", process_id="once")
    scene.release("once")
    assert (daemon.workspace / "count").read_text() == "started\n"


def is_written(path: Path) -> bool:
    """Tell whether a file that a process makes has something in it, which comes after it is there."""
    return path.exists() and path.stat().st_size > 0


def test_start_at_another_daemon(scene: Scene, daemon: RunningDaemon) -> None:
    """A start that is meant for another daemon than this one starts nothing."""
    with grpc.insecure_channel(daemon.target) as channel:
        stub = daemon_pb2_grpc.DaemonServiceStub(channel)
        instance_id = stub.GetInfo(daemon_pb2.GetInfoRequest(), timeout=SECONDS).instance_id
    with fails("process", "unknown"):
        scene.start("touch", str(daemon.workspace / "twice"), process_id="elsewhere", instance_id="another")
    assert scene.state("elsewhere") is None
    scene.wait(scene.start("true", process_id="elsewhere", instance_id=instance_id))
    assert not (daemon.workspace / "twice").exists()


def test_start_outlives_its_call(scene: Scene, daemon: RunningDaemon) -> None:
    """A start whose client goes away is completed, and seen by the retry."""
    request = pb.StartProcessRequest(id="gone", argv=[b"sh", b"-c", b"echo started >> gone; sleep 1000"])
    call = scene.stub.Start.future(request, timeout=SECONDS)
    wait_until(lambda: scene.state("gone") is not None, "the start")
    call.cancel()
    answer = scene.stub.Start(request, timeout=SECONDS)
    assert answer.pid == scene.state("gone").pid
    wait_until(lambda: is_written(daemon.workspace / "gone"), "the process")
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
