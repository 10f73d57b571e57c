"""FileService of a real daemon, called by raw stubs: the stream's rules, and what is left behind."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from sandbox_api.v1 import file_pb2, file_pb2_grpc
from support.daemon import running_daemon
from support.status import fails
from support.stream import Requests
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.daemon import RunningDaemon

_CHUNK_BYTES = 1 << 20
_SECONDS = 60.0


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """One daemon for all tests here; each has a folder of its own in its workspace."""
    with running_daemon(tmp_path_factory.mktemp("daemon"), "--max-files", "50") as running:
        yield running


@pytest.fixture
def files(daemon: RunningDaemon) -> Iterator[file_pb2_grpc.FileServiceStub]:
    """The service."""
    with grpc.insecure_channel(daemon.target) as channel:
        yield file_pb2_grpc.FileServiceStub(channel)


@pytest.fixture
def folder(daemon: RunningDaemon, request: pytest.FixtureRequest) -> Path:
    """An empty folder below a root."""
    path = daemon.workspace / hashlib.sha256(request.node.name.encode()).hexdigest()[:16]
    path.mkdir()
    return path


def _header(path: Path, **fields: Any) -> file_pb2.WriteRequest:
    return file_pb2.WriteRequest(header=file_pb2.WriteHeader(path=os.fsencode(path), **fields))


def _chunk(offset: int, data: bytes) -> file_pb2.WriteRequest:
    message = file_pb2.WriteRequest()
    message.chunk.offset, message.chunk.data = offset, data
    return message


def _trailer(content: bytes, size: int | None = None) -> file_pb2.WriteRequest:
    message = file_pb2.WriteRequest()
    message.trailer.size = len(content) if size is None else size
    message.trailer.sha256 = hashlib.sha256(content).digest()
    return message


def _messages(path: Path, content: bytes, **fields: Any) -> list[file_pb2.WriteRequest]:
    starts = range(0, len(content), _CHUNK_BYTES)
    chunks = [_chunk(start, content[start : start + _CHUNK_BYTES]) for start in starts]
    return [_header(path, **fields), *chunks, _trailer(content)]


def _read(files: file_pb2_grpc.FileServiceStub, path: Path, **fields: Any) -> bytes:
    """Read as a client does: all that the stream promises is checked."""
    request = file_pb2.ReadRequest(path=os.fsencode(path), **fields)
    header, *chunks, trailer = files.Read(request, timeout=_SECONDS)
    assert header.header.file.path == os.fsencode(path)
    content = b""
    for message in chunks:
        assert message.chunk.offset == len(content)
        assert 0 < len(message.chunk.data) <= _CHUNK_BYTES
        content += message.chunk.data
    assert trailer.trailer.size == len(content)
    assert trailer.trailer.sha256 == hashlib.sha256(content).digest()
    return content


@pytest.mark.parametrize("size", [0, 1, _CHUNK_BYTES, 5 * _CHUNK_BYTES // 2])
def test_write_and_read(files: file_pb2_grpc.FileServiceStub, folder: Path, size: int) -> None:
    """What was written is read back, whatever its size; reading may begin where a copy ends."""
    content = os.urandom(size)
    answer = files.Write(iter(_messages(folder / "a" / "file", content, make_parents=True)), timeout=_SECONDS)
    assert (answer.file.path, answer.file.size, answer.file.mode) == (os.fsencode(folder / "a" / "file"), size, 0o600)
    assert _read(files, folder / "a" / "file") == content
    half = content[: size // 2]
    grown = _read(files, folder / "a" / "file", offset=len(half), prefix_sha256=hashlib.sha256(half).digest())
    assert half + grown == content


def test_stat_find_remove(files: file_pb2_grpc.FileServiceStub, folder: Path) -> None:
    """The calls without data tell and do what they say."""
    for name in ("b.jsonl", "a/x.jsonl", "a.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    request = file_pb2.FindRequest(directory=os.fsencode(folder), pattern="*.jsonl")
    found = [message.file for message in files.Find(request, timeout=_SECONDS)]
    assert [file.path for file in found] == [os.fsencode(folder / name) for name in ("a/x.jsonl", "b.jsonl")]
    stated = files.Stat(file_pb2.StatRequest(path=os.fsencode(folder / "b.jsonl")), timeout=_SECONDS).file
    assert stated == found[1]
    assert (stated.kind, stated.size) == (file_pb2.FileInfo.KIND_FILE, 7)
    assert stated.modified.ToNanoseconds() == (folder / "b.jsonl").stat().st_mtime_ns
    files.Remove(file_pb2.RemoveRequest(path=os.fsencode(folder / "b.jsonl")), timeout=_SECONDS)
    with fails("workspace", "not_found"):
        files.Stat(file_pb2.StatRequest(path=os.fsencode(folder / "b.jsonl")), timeout=_SECONDS)


def test_find_by_content(files: file_pb2_grpc.FileServiceStub, folder: Path) -> None:
    """Only files whose first bytes have what is looked for are told."""
    for name in ("a", "b", "c"):
        (folder / name).write_text(f"..{name}")
    request = file_pb2.FindRequest(directory=os.fsencode(folder), pattern="*", contains=b"b")
    assert [message.file.path for message in files.Find(request, timeout=_SECONDS)] == [os.fsencode(folder / "b")]
    request.head_bytes = 2
    assert list(files.Find(request, timeout=_SECONDS)) == []


def test_read_tells_growth(files: file_pb2_grpc.FileServiceStub, folder: Path) -> None:
    """A file that grew while it was read is told so with the trailer, and nothing that was added is sent."""
    content = os.urandom(40 * _CHUNK_BYTES)
    (folder / "file").write_bytes(content)
    answers = files.Read(file_pb2.ReadRequest(path=os.fsencode(folder / "file")), timeout=_SECONDS)
    first = next(answers)  # more is to come than is on its way
    with (folder / "file").open("ab") as growing:
        growing.write(b"more")
    *chunks, last = answers
    assert (first.header.file.size, last.trailer.size) == (len(content), len(content))
    assert last.grew
    assert not any(message.grew for message in (first, *chunks))
    *_, last = files.Read(file_pb2.ReadRequest(path=os.fsencode(folder / "file")), timeout=_SECONDS)
    assert (last.trailer.size, last.grew) == (len(content) + 4, False)


def test_find_tells_more_than_a_bundle_may_have(files: file_pb2_grpc.FileServiceStub, folder: Path) -> None:
    """The daemon's limit of files holds for a caller that wishes for nothing, not for one that asks for more."""
    for number in range(51):
        (folder / str(number)).write_text("")
    for max_files in (0, 50, 10):
        request = file_pb2.FindRequest(directory=os.fsencode(folder), pattern="*", max_files=max_files)
        with fails("limit", "max_files"):
            list(files.Find(request, timeout=_SECONDS))
    for max_files in (51, (1 << 64) - 1):
        request = file_pb2.FindRequest(directory=os.fsencode(folder), pattern="*", max_files=max_files)
        assert len(list(files.Find(request, timeout=_SECONDS))) == 51


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("missing", "workspace", "not_found"),
        ("link", "workspace", "unsafe_path"),
        ("fifo", "workspace", "not_a_file"),
        ("../../../etc/passwd", "workspace", "unsafe_path"),
        ("x" * 256, "workspace", "unsafe_path"),
        ("file/below", "workspace", "not_found"),
    ],
)
def test_refused_paths(files: file_pb2_grpc.FileServiceStub, folder: Path, name: str, code: str, reason: str) -> None:
    """Reading and removing refuse what is not a plain file, with a reason each."""
    (folder / "file").write_text("")
    (folder / "link").symlink_to("file")
    os.mkfifo(folder / "fifo")
    path = os.fsencode(folder) + b"/" + name.encode()
    with fails(code, reason):
        list(files.Read(file_pb2.ReadRequest(path=path), timeout=_SECONDS))
    with fails(code, reason):
        files.Remove(file_pb2.RemoveRequest(path=path), timeout=_SECONDS)
    assert sorted(entry.name for entry in folder.iterdir()) == ["fifo", "file", "link"]


def test_outside_the_roots(files: file_pb2_grpc.FileServiceStub) -> None:
    """Nothing outside the roots is touched."""
    with fails("workspace", "outside_roots"):
        list(files.Read(file_pb2.ReadRequest(path=b"/etc/passwd"), timeout=_SECONDS))
    with fails("workspace", "outside_roots"):
        files.Write(iter(_messages(Path("/tmp/outpost-test"), b"")), timeout=_SECONDS)
    assert not Path("/tmp/outpost-test").exists()


def test_read_of_another_file_than_held(files: file_pb2_grpc.FileServiceStub, folder: Path) -> None:
    """A client that holds something else is told so before any data is sent."""
    (folder / "file").write_text("abcdef")
    with fails("session", "digest_mismatch"):
        _read(files, folder / "file", offset=3, prefix_sha256=hashlib.sha256(b"abX").digest())


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        (lambda messages: messages[:-1], "session", "incomplete"),
        (lambda messages: messages[:1], "session", "incomplete"),
        (lambda _: [], "session", "incomplete"),
        (lambda messages: messages[1:], "session", "protocol"),
        (lambda messages: [messages[0], *messages], "session", "protocol"),
        (lambda messages: [*messages, messages[-1]], "session", "protocol"),
        (lambda messages: [*messages, messages[1]], "session", "protocol"),
        (lambda messages: [messages[0], messages[2], messages[1], messages[3]], "session", "protocol"),
        (lambda messages: [messages[0], messages[1], messages[1], *messages[2:]], "session", "protocol"),
        (lambda messages: [messages[0], _chunk(0, b""), *messages[1:]], "session", "protocol"),
        (lambda messages: [messages[0], file_pb2.WriteRequest(), *messages[1:]], "session", "protocol"),
        (lambda messages: [messages[0], _chunk(0, bytes(_CHUNK_BYTES + 1)), messages[-1]], "session", "protocol"),
        (lambda messages: [messages[0], messages[1], messages[3]], "session", "incomplete"),
        (lambda messages: [*messages[:-1], _trailer(b"other", size=_CHUNK_BYTES + 3)], "session", "digest_mismatch"),
    ],
    ids=[
        *(
            "no trailer",
            "only the header",
            "nothing",
            "no header",
            "two headers",
            "two trailers",
            "chunk after the end",
        ),
        *("order", "repeated chunk", "empty chunk", "empty message", "oversized chunk", "lost chunk", "digest"),
    ],
)
def test_broken_streams_change_nothing(
    files: file_pb2_grpc.FileServiceStub, folder: Path, change: Any, code: str, reason: str
) -> None:
    """A stream that breaks any rule has its reason; the old file is in place and no scratch file is left."""
    (folder / "file").write_text("old")
    messages = _messages(folder / "file", os.urandom(_CHUNK_BYTES) + b"abc")
    with fails(code, reason):
        files.Write(iter(change(messages)), timeout=_SECONDS)
    assert [entry.name for entry in folder.iterdir()] == ["file"]
    assert (folder / "file").read_text() == "old"


def test_message_over_the_limit_changes_nothing(files: file_pb2_grpc.FileServiceStub, folder: Path) -> None:
    """A message that gRPC itself refuses never makes a shorter file."""
    (folder / "file").write_text("old")
    content = bytes(5 * _CHUNK_BYTES)
    with pytest.raises(grpc.RpcError):
        files.Write(iter([_header(folder / "file"), _chunk(0, content), _trailer(content)]), timeout=_SECONDS)
    wait_until(lambda: len(list(folder.iterdir())) == 1, "the clean-up")
    assert (folder / "file").read_text() == "old"


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"must_not_exist": True}, "conflict", "exists"),
        ({"mode": 0o4755}, "configuration", "invalid_argument"),
    ],
)
def test_refused_writes(
    files: file_pb2_grpc.FileServiceStub, folder: Path, fields: dict[str, Any], code: str, reason: str
) -> None:
    """What cannot be meant or must not happen has its reason."""
    (folder / "file").write_text("old")
    with fails(code, reason):
        files.Write(iter(_messages(folder / "file", b"new", **fields)), timeout=_SECONDS)
    assert (folder / "file").read_text() == "old"


def test_missing_parent(files: file_pb2_grpc.FileServiceStub, folder: Path) -> None:
    """Directories are made only when asked for."""
    with fails("workspace", "not_found"):
        files.Write(iter(_messages(folder / "a" / "file", b"")), timeout=_SECONDS)
    assert list(folder.iterdir()) == []


def _open_files(daemon: RunningDaemon) -> int:
    descriptors = Path(f"/proc/{daemon.process.pid}/fd")
    return sum(_link(name).startswith("/") for name in descriptors.iterdir())


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except FileNotFoundError:  # closed meanwhile
        return ""


def _threads(daemon: RunningDaemon) -> int:
    return len(list(Path(f"/proc/{daemon.process.pid}/task").iterdir()))


def test_cancel_leaves_nothing(daemon: RunningDaemon, files: file_pb2_grpc.FileServiceStub, folder: Path) -> None:
    """Clients that go away in the middle leave no scratch file, no open file and no growing number of threads."""
    (folder / "large").write_bytes(bytes(20 * _CHUNK_BYTES))
    _read(files, folder / "large")
    files_before, threads_before = _open_files(daemon), _threads(daemon)
    threads = []
    for number in range(30):
        requests = Requests(_header(folder / "file"), _chunk(0, b"abc"))
        writing = files.Write.future(requests)
        reading = files.Read(file_pb2.ReadRequest(path=os.fsencode(folder / "large")))
        next(iter(reading))
        if number % 2:
            wait_until(lambda: len(list(folder.iterdir())) > 1, "the scratch file")
        writing.cancel()
        reading.cancel()
        requests.end()
        threads.append(_threads(daemon))
    wait_until(lambda: len(list(folder.iterdir())) == 1, "the clean-up")
    wait_until(lambda: _open_files(daemon) == files_before, "the descriptors")
    # The pool's 16 threads and a few of gRPC's own, however many calls there were.
    assert max(threads) <= threads_before + 20


def _page_faults(daemon: RunningDaemon) -> int:
    # Field 10 of proc(5), counted from the end of the name, which may have spaces.
    return int(Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()[7])


def test_chunks_use_their_memory_again(
    daemon: RunningDaemon, files: file_pb2_grpc.FileServiceStub, folder: Path
) -> None:
    """Sending does not get fresh memory from the system for each chunk, which would cost more than all else."""
    (folder / "large").write_bytes(bytes(20 * _CHUNK_BYTES))
    _read(files, folder / "large")
    before = _page_faults(daemon)
    _read(files, folder / "large")
    pages_per_chunk = _CHUNK_BYTES // os.sysconf("SC_PAGESIZE")
    assert _page_faults(daemon) - before < 20 * pages_per_chunk / 2


def test_many_streams_at_once(files: file_pb2_grpc.FileServiceStub, folder: Path) -> None:
    """Eight writers and readers at once all get through."""
    contents = [os.urandom(3 * _CHUNK_BYTES) for _ in range(8)]

    def move(number: int) -> bytes:
        path = folder / str(number)
        files.Write(iter(_messages(path, contents[number], durability=2)), timeout=_SECONDS)
        return _read(files, path)

    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(move, range(8))) == contents


def test_more_streams_than_threads(files: file_pb2_grpc.FileServiceStub, folder: Path) -> None:
    """Streams that wait for their clients hold no thread: more of them than threads do not stop another call."""
    waiting = [Requests(_header(folder / f"w{number}")) for number in range(40)]
    calls = [files.Write.future(requests) for requests in waiting]
    wait_until(lambda: len(list(folder.iterdir())) == 40, "the scratch files")
    files.Write(iter(_messages(folder / "file", b"x")), timeout=_SECONDS)
    for requests in waiting:
        requests.send(_trailer(b""))
        requests.end()
    assert [call.result(_SECONDS).file.size for call in calls] == [0] * 40
