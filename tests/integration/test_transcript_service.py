"""Restore and recovery of TranscriptService of a real daemon, called by raw stubs: the stream's rules, what is left."""

from __future__ import annotations

import hashlib
import os
import signal
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from sandbox_api.v1 import payload_pb2, transcript_pb2, transcript_pb2_grpc
from support.daemon import running_daemon
from support.file_set import FORMAT, ID, LINES, MAIN, NEW, OLD, OTHERS, SHARED, conversation, home_of, make_home
from support.killed_file_set import PLACED, REPLACED
from support.restoring import files_of, picture, staged
from support.sandbox import write
from support.status import fails
from support.stream import Requests
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from support.daemon import RunningDaemon

_CHUNK_BYTES = 1 << 20
_SECONDS = 60.0

Request = transcript_pb2.TranscriptRestoreRequest
Stub = transcript_pb2_grpc.TranscriptServiceStub


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """One daemon for all tests here; each has an agent home of its own in its workspace."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def service(daemon: RunningDaemon) -> Iterator[Stub]:
    """The service."""
    with grpc.insecure_channel(daemon.target) as channel:
        yield Stub(channel)


@pytest.fixture
def agent_home(daemon: RunningDaemon, request: pytest.FixtureRequest) -> Path:
    """A folder below a root, with a home in it that has the old files."""
    path = daemon.workspace / hashlib.sha256(request.node.name.encode()).hexdigest()[:16]
    path.mkdir()
    make_home(path)
    return path


def _header(agent_home: Path, **fields: Any) -> Request:
    fields = {"home": os.fsencode(home_of(agent_home)), "format": FORMAT, "id": ID, **fields}
    return Request(header=transcript_pb2.TranscriptRestoreHeader(**fields))


def _file(path: str | bytes, content: bytes, **fields: Any) -> list[Request]:
    name = path if isinstance(path, bytes) else path.encode()
    starts = range(0, len(content), _CHUNK_BYTES)
    return [
        Request(file=transcript_pb2.TranscriptFile(path=name, **fields)),
        *(Request(chunk=payload_pb2.Chunk(offset=at, data=content[at : at + _CHUNK_BYTES])) for at in starts),
        Request(trailer=payload_pb2.Trailer(size=len(content), sha256=hashlib.sha256(content).digest())),
    ]


def _commit(files_count: int, bytes_count: int) -> Request:
    return Request(commit=transcript_pb2.TranscriptCommit(files_count=files_count, bytes_count=bytes_count))


def _messages(agent_home: Path, files: Mapping[str, bytes], **fields: Any) -> list[Request]:
    """Return a whole stream: the files, and the lines of the file that is shared."""
    sent = [message for path, content in files.items() for message in _file(path, content)]
    sent += _file(SHARED, LINES, append_lines=True)
    return [
        _header(agent_home, **fields),
        *sent,
        _commit(len(files) + 1, sum(map(len, files.values())) + len(LINES)),
    ]


def _restore(service: Stub, messages: list[Request]) -> Any:
    return service.Restore(iter(messages), timeout=_SECONDS)


def _where(agent_home: Path, **fields: Any) -> dict[str, Any]:
    return {"home": os.fsencode(home_of(agent_home)), "format": FORMAT, "id": ID, **fields}


def test_restore_list_undo_prune(service: Stub, agent_home: Path) -> None:
    """All of it, as a client does it."""
    result = _restore(service, _messages(agent_home, NEW))
    assert conversation(agent_home) == NEW
    assert list(result.replaced) == [path.encode() for path in NEW if path in REPLACED]
    assert list(result.added) == [b"projects/-ws/S1/tool-results/deep/r.txt"]
    assert (home_of(agent_home) / SHARED).read_bytes() == OTHERS[SHARED] + LINES
    assert not result.unchanged
    again = _restore(service, _messages(agent_home, NEW))
    assert (again.unchanged, again.recovery) == (True, "")

    request = transcript_pb2.TranscriptRecoveryRequest(**_where(agent_home))
    [entry] = service.ListRecovery(request, timeout=_SECONDS)
    assert (entry.name, entry.id, entry.files_count) == (result.recovery, ID, len(PLACED))
    assert list(entry.files) == [path.encode() for path in PLACED]
    assert abs(entry.set_aside.seconds - home_of(agent_home).joinpath(MAIN).stat().st_mtime) < 60

    undone = service.UndoRestore(transcript_pb2.TranscriptUndoRequest(**_where(agent_home)), timeout=_SECONDS)
    assert (undone.recovery, list(undone.removed)) == (result.recovery, list(result.added))
    assert list(undone.restored) == list(result.replaced)
    assert conversation(agent_home) == OLD
    assert files_of(home_of(agent_home) / ".outpost-recovery" / undone.recovery) == PLACED

    request = transcript_pb2.TranscriptPruneRequest(**_where(agent_home, id=""))
    with fails("configuration", "invalid_argument"):
        service.PruneRecovery(request, timeout=_SECONDS)
    request.keep_count = 0
    assert list(service.PruneRecovery(request, timeout=_SECONDS).removed) == [result.recovery]
    with fails("session", "not_found"):
        service.UndoRestore(transcript_pb2.TranscriptUndoRequest(**_where(agent_home)), timeout=_SECONDS)


def test_large_files_and_many(service: Stub, agent_home: Path, daemon: RunningDaemon) -> None:
    """Files of many chunks and thousands of small ones in one stream; at most 100 paths of each kind are told."""
    files = {f"many/{number // 100}/{number}": b"%d" % number for number in range(3000)}
    files["large"] = os.urandom((20 << 20) + 7)
    result = _restore(service, _messages(agent_home, files, expected_bytes=21 << 20))
    assert len(result.added) == 100
    found = conversation(agent_home)
    assert {path: found[path] for path in files} == files
    assert not list((daemon.home / ".outpost-agent").iterdir())


@pytest.mark.parametrize("full", [payload_pb2.DURABILITY_NONE, payload_pb2.DURABILITY_FULL])
def test_durability(service: Stub, agent_home: Path, full: int) -> None:
    """Both kinds place the same."""
    _restore(service, _messages(agent_home, NEW, durability=full))
    assert conversation(agent_home) == NEW


A, B = _file("a", b"1234"), _file("b", b"56")
WRONG = _file("a", b"1234")
WRONG[-1] = Request(trailer=payload_pb2.Trailer(size=4, sha256=hashlib.sha256(b"other").digest()))
SHORT = _file("a", b"1234")
SHORT[-1] = Request(trailer=payload_pb2.Trailer(size=5, sha256=hashlib.sha256(b"1234").digest()))


@pytest.mark.parametrize(
    ("messages", "code", "reason"),
    [
        ([*A, *B], "session", "incomplete"),
        ([*A, B[0], _commit(2, 4)], "session", "protocol"),
        ([*A, B[0], B[1], *A], "session", "protocol"),
        ([*A[:2], _commit(1, 4)], "session", "protocol"),
        ([A[1], A[2], _commit(1, 4)], "session", "protocol"),
        ([*A, A[1], _commit(1, 4)], "session", "protocol"),
        ([*A, _commit(1, 4), *B], "session", "protocol"),
        ([*A, _commit(1, 4), _commit(1, 4)], "session", "protocol"),
        ([A[0], A[1], A[1], A[2], _commit(1, 8)], "session", "protocol"),
        ([*A, Request(), _commit(1, 4)], "session", "protocol"),
        ([*A, _commit(2, 4)], "session", "incomplete"),
        ([*A, _commit(1, 5)], "session", "incomplete"),
        ([*A, _commit(0, 0)], "session", "incomplete"),
        ([_commit(0, 0)], "session", "empty"),
        ([*WRONG, _commit(1, 4)], "session", "digest_mismatch"),
        ([*SHORT, _commit(1, 5)], "session", "incomplete"),
        ([*A, *A, _commit(2, 8)], "session", "protocol"),
        ([*A, *_file("a/b", b"x"), _commit(2, 5)], "session", "protocol"),
        ([*_file("a/b", b"x"), *A, _commit(2, 5)], "session", "protocol"),
        ([*A, *_file("../x", b"x"), _commit(2, 5)], "session", "unsafe_name"),
        ([*A, *_file("/etc/x", b"x"), _commit(2, 5)], "session", "unsafe_name"),
        ([*A, *_file("x\\y", b"x"), _commit(2, 5)], "session", "unsafe_name"),
        ([*A, *_file(b"\xff", b"x"), _commit(2, 5)], "session", "unsafe_name"),
        ([*A, *_file(".outpost-recovery/x", b"x"), _commit(2, 5)], "session", "unsafe_name"),
        ([*A, *_file("x", b"x", mode=0o7777), _commit(2, 5)], "configuration", "invalid_argument"),
        ([*A, *_file("x", b"no end", append_lines=True), _commit(2, 10)], "session", "protocol"),
        ([*A, *_file("todos", b"x"), _commit(2, 5)], "workspace", "not_a_file"),
        ([*A, *_file("todos/S1.json/x", b"x"), _commit(2, 5)], "workspace", "not_a_file"),
    ],
)
def test_streams_that_are_refused(
    service: Stub, agent_home: Path, messages: list[Request], code: str, reason: str
) -> None:
    """A stream that breaks a rule changes nothing and leaves nothing."""
    before = picture(agent_home)
    with fails(code, reason):
        _restore(service, [_header(agent_home), *messages])
    assert picture(agent_home) == before
    assert not list((agent_home.parents[1] / "home/.outpost-agent").iterdir())


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"id": ""}, "configuration", "invalid_id"),
        ({"id": "../x"}, "configuration", "invalid_id"),
        ({"format": ""}, "configuration", "invalid_argument"),
        ({"format": "../x"}, "configuration", "invalid_argument"),
        ({"home": b"relative"}, "workspace", "unsafe_path"),
        ({"home": b"/etc"}, "workspace", "outside_roots"),
        ({"locks": [transcript_pb2.LockSign(directory=b"..", pattern="x")]}, "configuration", "invalid_argument"),
        ({"locks": [transcript_pb2.LockSign(directory=b"x", pattern="(")]}, "configuration", "invalid_argument"),
        ({"expected_bytes": 1 << 62}, "limit", "disk_full"),
    ],
)
def test_headers_that_are_refused(
    service: Stub, agent_home: Path, fields: dict[str, Any], code: str, reason: str
) -> None:
    """What a header names wrongly is refused before anything is staged."""
    before = picture(agent_home)
    with fails(code, reason):
        _restore(service, [_header(agent_home, **fields), *A, _commit(1, 4)])
    assert picture(agent_home) == before


def test_stream_without_its_header(service: Stub) -> None:
    """A stream begins with its header, and has one."""
    for messages, reason in (([], "incomplete"), (A, "protocol")):
        with fails("session", reason):
            _restore(service, messages)


def test_conversation_that_is_open(service: Stub, agent_home: Path) -> None:
    """A running process refuses restore and undo, and is named; force overrides."""
    lock = transcript_pb2.LockSign(directory=b"sessions", pattern=r"^(?P<pid>\d+)\.json$")
    _restore(service, _messages(agent_home, NEW))
    write(home_of(agent_home), {f"sessions/{os.getpid()}.json": b"{}"})
    with fails("conflict", "in_use"):
        _restore(service, _messages(agent_home, OLD, locks=[lock]))
    with fails("conflict", "in_use"):
        service.UndoRestore(transcript_pb2.TranscriptUndoRequest(**_where(agent_home), locks=[lock]), timeout=_SECONDS)
    request = transcript_pb2.TranscriptUndoRequest(**_where(agent_home), locks=[lock], force=True)
    service.UndoRestore(request, timeout=_SECONDS)
    _restore(service, _messages(agent_home, NEW, locks=[lock], force=True))


def test_link_on_the_way(service: Stub, agent_home: Path) -> None:
    """No call follows a link below a root."""
    home_of(agent_home).rename(agent_home / "real")
    home_of(agent_home).symlink_to(agent_home / "real")
    before = picture(agent_home)
    with fails("workspace", "unsafe_path"):
        _restore(service, _messages(agent_home, NEW))
    with fails("workspace", "unsafe_path"):
        list(service.ListRecovery(transcript_pb2.TranscriptRecoveryRequest(**_where(agent_home)), timeout=_SECONDS))
    with fails("workspace", "unsafe_path"):
        service.UndoRestore(transcript_pb2.TranscriptUndoRequest(**_where(agent_home)), timeout=_SECONDS)
    request = transcript_pb2.TranscriptPruneRequest(**_where(agent_home), keep_count=0)
    with fails("workspace", "unsafe_path"):
        service.PruneRecovery(request, timeout=_SECONDS)
    assert picture(agent_home) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner(service: Stub, agent_home: Path) -> None:
    """Files belong to the owner of the header."""
    _restore(service, _messages(agent_home, NEW, owner=payload_pb2.Owner(uid=1001, gid=1002)))
    status = (home_of(agent_home) / MAIN).stat()
    assert (status.st_uid, status.st_gid) == (1001, 1002)


def _cuts(messages: list[Request]) -> list[int]:
    return [1, 2, 4, len(messages) - 2, len(messages) - 1]


@pytest.mark.parametrize("end", ["cancel", "close", "drop"])
def test_streams_that_are_cut(daemon: RunningDaemon, agent_home: Path, end: str) -> None:
    """Cancelled, closed early or with its connection gone at any point before the commit: nothing is left."""
    before = picture(agent_home)
    messages = _messages(agent_home, {**NEW, "large": os.urandom(3 << 20)})
    state = daemon.home / ".outpost-agent"
    for cut in _cuts(messages):
        requests: Requests[Request] = Requests(*messages[:cut])
        with grpc.insecure_channel(daemon.target) as channel:
            call = Stub(channel).Restore.future(requests, timeout=_SECONDS)
            wait_until(lambda: any(state.iterdir()), "a restore to begin")
            if end == "cancel":
                call.cancel()
            elif end == "close":
                requests.end()
                with fails("session", "incomplete"):
                    call.result()
        requests.end()
        wait_until(lambda: not any(state.iterdir()), "the restore to end")
        assert picture(agent_home) == before
    with grpc.insecure_channel(daemon.target) as channel:
        _restore(Stub(channel), messages)


def test_commit_whose_client_does_not_end_its_stream(service: Stub, agent_home: Path, daemon: RunningDaemon) -> None:
    """Nothing is placed before the client has closed its side: what follows the commit could be anything."""
    before = picture(agent_home)
    requests: Requests[Request] = Requests(*_messages(agent_home, NEW))
    call = service.Restore.future(requests, timeout=_SECONDS)
    wait_until(lambda: any((daemon.home / ".outpost-agent").iterdir()), "the restore to begin")
    requests.send(Request())
    with fails("session", "protocol"):
        call.result()
    requests.end()
    assert picture(agent_home) == before


def test_target_that_changes_meanwhile(service: Stub, agent_home: Path) -> None:
    """What the CLI has written since the file's part came is not replaced."""
    messages = _messages(agent_home, NEW)
    requests: Requests[Request] = Requests(*messages[:-1])
    call = service.Restore.future(requests, timeout=_SECONDS)
    wait_until(
        lambda: any(path.endswith(f"/{MAIN}") and "session-" in path for path in picture(agent_home)),
        "the last file to be staged",
    )
    with (home_of(agent_home) / MAIN).open("ab") as file:
        file.write(b'{"by": "the CLI"}\n')
    requests.send(messages[-1])
    requests.end()
    with fails("conflict", "target_changed"):
        call.result()
    assert conversation(agent_home) == {**OLD, MAIN: OLD[MAIN] + b'{"by": "the CLI"}\n'}


def test_start_after_a_kill(tmp_path: Path) -> None:
    """A daemon that is killed while files arrive leaves nothing that the next start does not remove."""
    with running_daemon(tmp_path) as daemon:
        make_home(daemon.home)
        before = conversation(daemon.home)
        messages = _messages(daemon.home, NEW)
        requests: Requests[Request] = Requests(*messages[:-1])
        with grpc.insecure_channel(daemon.target) as channel:
            call = Stub(channel).Restore.future(requests, timeout=_SECONDS)
            wait_until(lambda: len(staged(daemon.home)) > 3, "files to be staged")
            daemon.process.send_signal(signal.SIGKILL)
            with pytest.raises(grpc.RpcError):
                call.result()
        requests.end()
        daemon.process.wait(_SECONDS)
    assert staged(tmp_path / "home")
    with running_daemon(tmp_path, "--state", str(tmp_path / "home/.outpost-agent")) as daemon:
        assert staged(daemon.home) == []
        assert conversation(daemon.home) == before
        assert "the files are the old ones" in daemon.log()
