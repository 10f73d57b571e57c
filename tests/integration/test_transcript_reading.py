"""TranscriptService of a real daemon, called by raw stubs: who has a conversation open, and what it gains."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from sandbox_api.v1 import transcript_pb2, transcript_pb2_grpc
from support.daemon import running_daemon
from support.following import append
from support.status import fails
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.daemon import RunningDaemon

SECONDS = 60.0
DRAIN_SECONDS = 25
ALL = transcript_pb2.FollowedPattern(directory=b"p", pattern="*", whole_lines=True)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """One daemon for all tests here; each has a home of its own in its workspace."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def transcripts(daemon: RunningDaemon) -> Iterator[transcript_pb2_grpc.TranscriptServiceStub]:
    """The service."""
    with grpc.insecure_channel(daemon.target) as channel:
        yield transcript_pb2_grpc.TranscriptServiceStub(channel)


@pytest.fixture
def home(daemon: RunningDaemon, request: pytest.FixtureRequest) -> Path:
    """An empty CLI home below a root."""
    path = daemon.workspace / str(abs(hash(request.node.name)))
    path.mkdir()
    return path


def test_find_holders(transcripts: transcript_pb2_grpc.TranscriptServiceStub, home: Path) -> None:
    """Processes are told by a number that a name has and by a lock; without either nobody holds anything."""
    signs = [
        transcript_pb2.LockSign(directory=b"sessions", pattern=r"^(?P<pid>\d+)\.json$", contains=b"id-1"),
        transcript_pb2.LockSign(directory=b"locks", pattern=r"^id-1\.lock$"),
    ]
    request = transcript_pb2.FindHoldersRequest(home=os.fsencode(home), locks=signs)
    assert list(transcripts.FindHolders(request, timeout=SECONDS).holders) == []
    for path, content in ((home / "sessions" / f"{os.getpid()}.json", "id-1"), (home / "locks" / "id-1.lock", "")):
        path.parent.mkdir()
        path.write_text(content)
    with (home / "locks" / "id-1.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        holders = transcripts.FindHolders(request, timeout=SECONDS).holders
    expected = [home / "sessions" / f"{os.getpid()}.json", home / "locks" / "id-1.lock"]
    assert [(holder.path, holder.pid) for holder in holders] == [(os.fsencode(path), os.getpid()) for path in expected]
    assert len(transcripts.FindHolders(request, timeout=SECONDS).holders) == 1


def test_find_holders_refuses(transcripts: transcript_pb2_grpc.TranscriptServiceStub, home: Path) -> None:
    """Signs that can be none, a home outside the roots, and a link on the way."""
    sign = transcript_pb2.LockSign(directory=b"../x", pattern=".")
    request = transcript_pb2.FindHoldersRequest(home=os.fsencode(home), locks=[sign])
    with fails("configuration", "invalid_argument"):
        transcripts.FindHolders(request, timeout=SECONDS)
    request = transcript_pb2.FindHoldersRequest(home=b"/etc")
    with fails("workspace", "outside_roots"):
        transcripts.FindHolders(request, timeout=SECONDS)
    (home / "link").symlink_to(home)
    request = transcript_pb2.FindHoldersRequest(home=os.fsencode(home / "link"))
    with fails("workspace", "unsafe_path"):
        transcripts.FindHolders(request, timeout=SECONDS)


def _follow(
    transcripts: transcript_pb2_grpc.TranscriptServiceStub, home: Path, *patterns: transcript_pb2.FollowedPattern
) -> Any:
    request = transcript_pb2.FollowRequest(home=os.fsencode(home), patterns=patterns or [ALL], interval_milliseconds=20)
    return transcripts.Follow(request, timeout=SECONDS)


def _parts(call: Any, count: int) -> list[str]:
    """Return the names of the next messages."""
    return [next(call).WhichOneof("part") for _ in range(count)]


def _open_count(daemon: RunningDaemon) -> int:
    """Count what the daemon has open but for connections."""
    links = [os.readlink(path) for path in Path(f"/proc/{daemon.process.pid}/fd").iterdir() if path.is_symlink()]  # noqa: PTH115
    return sum(1 for link in links if not link.startswith("socket:"))


def test_follow(transcripts: transcript_pb2_grpc.TranscriptServiceStub, home: Path) -> None:
    """A file comes as it is, then what it gains; a file that comes later begins when it has come."""
    (home / "p").mkdir()
    (home / "p/a").write_bytes(b"one\nto")
    call = _follow(transcripts, home)
    begin, data = next(call), next(call)
    assert (begin.begin.number, begin.begin.path, begin.begin.offset) == (1, b"p/a", 0)
    assert (data.data.number, data.data.offset, data.data.data) == (1, 0, b"one\n")
    assert len(data.data.mark_sha256) == 32
    append(home / "p/a", b" come\n")
    data = next(call)
    assert (data.data.number, data.data.offset, data.data.data) == (1, 4, b"to come\n")
    (home / "p/below").mkdir()
    (home / "p/below/b").touch()
    begin, mark = next(call), next(call)
    assert (begin.begin.number, begin.begin.path) == (2, b"p/below/b")
    assert (mark.mark.number, mark.mark.size) == (2, 0)
    call.cancel()


def test_as_many_files_are_followed_as_are_found(tmp_path: Path) -> None:
    """A home may have more files than one bundle: the limit of bundles is none of what can be followed."""
    with running_daemon(tmp_path, "--max-files", "2") as daemon, grpc.insecure_channel(daemon.target) as channel:
        (daemon.workspace / "p").mkdir()
        for name in "abc":
            (daemon.workspace / "p" / name).touch()
        call = _follow(transcript_pb2_grpc.TranscriptServiceStub(channel), daemon.workspace)
        assert _parts(call, 6) == ["begin", "mark"] * 3
        call.cancel()


def test_follow_refuses(transcripts: transcript_pb2_grpc.TranscriptServiceStub, home: Path) -> None:
    """What cannot be followed, a home that is not there, and one outside the roots."""
    with fails("configuration", "invalid_argument"):
        next(transcripts.Follow(transcript_pb2.FollowRequest(home=os.fsencode(home)), timeout=SECONDS))
    with fails("workspace", "not_found"):
        next(_follow(transcripts, home / "none"))
    with fails("workspace", "outside_roots"):
        next(_follow(transcripts, Path("/etc")))


def test_a_cancelled_follow_leaves_nothing(
    daemon: RunningDaemon, transcripts: transcript_pb2_grpc.TranscriptServiceStub, home: Path
) -> None:
    """Neither watches nor descriptors, whether it waited or was in the middle of a large file."""
    (home / "p").mkdir()
    (home / "p/a").touch()
    with (home / "p/b").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
    transcripts.FindHolders(transcript_pb2.FindHoldersRequest(home=os.fsencode(home)), timeout=SECONDS)
    before = _open_count(daemon)
    idle = _follow(transcripts, home, transcript_pb2.FollowedPattern(directory=b"p", pattern="a"))
    busy = _follow(transcripts, home)
    assert _parts(idle, 2) == ["begin", "mark"]
    assert _parts(busy, 4) == ["begin", "mark", "begin", "data"]
    assert _open_count(daemon) > before
    idle.cancel()
    busy.cancel()
    wait_until(lambda: _open_count(daemon) <= before, "the daemon to let go of everything")


def test_many_follows_at_once(
    daemon: RunningDaemon, transcripts: transcript_pb2_grpc.TranscriptServiceStub, home: Path
) -> None:
    """More than the daemon has threads: each gets what its files gain, and they share what the kernel gives few of."""
    calls = []
    for number in range(60):
        (home / f"{number}").mkdir()
        (home / f"{number}/a").touch()
        pattern = transcript_pb2.FollowedPattern(directory=str(number).encode(), pattern="*", whole_lines=True)
        calls.append(_follow(transcripts, home, pattern))
    for call in calls:
        assert _parts(call, 2) == ["begin", "mark"]
    links = [os.readlink(path) for path in Path(f"/proc/{daemon.process.pid}/fd").iterdir() if path.is_symlink()]  # noqa: PTH115
    assert links.count("anon_inode:inotify") == 1
    for number, call in enumerate(calls):
        append(home / f"{number}/a", b"%d\n" % number)
        assert next(call).data.data == b"%d\n" % number
    for call in calls:
        call.cancel()


def test_the_end_of_a_daemon_ends_what_is_followed(tmp_path: Path) -> None:
    """The client is told that the daemon ends, which does not wait for calls that never finish."""
    with running_daemon(tmp_path, "--drain-seconds", str(DRAIN_SECONDS)) as daemon:
        (daemon.home / "p").mkdir()
        (daemon.home / "p/a").touch()
        with grpc.insecure_channel(daemon.target) as channel:
            call = _follow(transcript_pb2_grpc.TranscriptServiceStub(channel), daemon.home)
            assert _parts(call, 2) == ["begin", "mark"]
            daemon.process.terminate()
            with fails("unavailable", "unreachable"):
                next(call)
        assert daemon.process.wait(DRAIN_SECONDS - 1) == 0
