"""The client against real daemon processes: connecting, bundles, files, and what is left when one of both goes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.errors import (
    ConfigurationError,
    LimitError,
    OutpostError,
    SessionError,
    UnavailableError,
    WorkspaceError,
)
from host_client.sandbox.place import Place
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from sandbox_api.limits import MIB, Limits
from sandbox_api.manifest import bundle_digest
from support.bundle_end import PROFILE, MemorySink, MemorySource, entries_of
from support.daemon import running_daemon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from host_client.sandbox.progress import Progress
    from host_client.sandbox.sandbox import Sandbox
    from sandbox_api.manifest import Entry

pytestmark = pytest.mark.anyio

PLACE = Place(PROFILE, "S1")
CONTENTS = {b"a": b"first", b"b/c": b"second" * 500_000, b"b/empty": b""}


def write_session(home: Path, contents: dict[bytes, bytes], name: str = "S1") -> Path:
    """Write a session of the plain format and return its directory."""
    session = home / ".plain" / "sessions" / name
    for path, content in contents.items():
        file = session / os.fsdecode(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return session


def read_session(home: Path, name: str = "S1") -> dict[bytes, bytes]:
    """Return the files of a session."""
    session = home / ".plain" / "sessions" / name
    return {os.fsencode(path.relative_to(session)): path.read_bytes() for path in session.rglob("*") if path.is_file()}


# Connecting


async def test_socket_and_port_reach_the_same_daemon(tmp_path: Path) -> None:
    """Both forms of a target serve; info tells home and workspace."""
    with running_daemon(tmp_path, "--listen", "127.0.0.1:0") as daemon:
        async with connect(daemon.target) as sandbox:
            info = await sandbox.info()
            assert (sandbox.home, sandbox.root) == (PurePosixPath(daemon.home), PurePosixPath(daemon.workspace))
            assert (info.uid, info.gid) == (os.getuid(), os.getgid())
            assert "bundle.capture.held" in info.capabilities


async def test_socket_path_may_have_any_characters(tmp_path: Path) -> None:
    """Spaces, percent signs and the like in the path of a socket are no part of an address's syntax."""
    with running_daemon(tmp_path) as daemon:
        socket_path = Path(daemon.target.removeprefix("unix:"))
        (tmp_path / "a b?%41#ü").symlink_to(socket_path.parent)
        async with connect(f"unix:{tmp_path}/a b?%41#ü/{socket_path.name}") as sandbox:
            assert sandbox.home == PurePosixPath(daemon.home)


@pytest.mark.parametrize("target", ["unix:/nowhere/agent.sock", "127.0.0.1:1"])
async def test_nobody_there_is_told_at_once(target: str) -> None:
    """A target where nobody listens is `unavailable`/`unreachable` and named."""
    with pytest.raises(UnavailableError, match=target) as caught:
        async with asyncio.timeout(9), connect(target):
            pass
    assert caught.value.reason == "unreachable"


async def test_listener_that_never_answers_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that accepts connections and says nothing cannot hold a caller up."""
    monkeypatch.setattr("host_client.sandbox.sandbox.CONNECT_SECONDS", 0.3)
    socket_path = tmp_path / "mute"
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_unix_server(lambda _, writer: writers.append(writer), socket_path)
    async with server:
        with pytest.raises(UnavailableError, match="mute") as caught:
            async with connect(f"unix:{socket_path}"):
                pass
        for writer in writers:
            writer.close()
            await writer.wait_closed()
    assert caught.value.reason == "unreachable"


async def test_proxy_of_the_environment_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon on a port of this host is reached directly whatever proxy variables say."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with running_daemon(tmp_path, "--listen", "127.0.0.1:0") as daemon:
        async with connect(daemon.target) as sandbox:
            await sandbox.info()


async def test_error_of_the_callers_own_passes_unchanged(tmp_path: Path) -> None:
    """What a caller raises inside the connection comes out as it is, and the daemon is ended."""
    with pytest.raises(ZeroDivisionError):
        async with connect(LocalTarget(tmp_path, tmp_path)):
            raise ZeroDivisionError


# Local daemons


async def test_local_daemon_ends_with_its_connection(tmp_path: Path) -> None:
    """A private daemon serves the home, and its process, socket and folder are gone afterwards."""
    async with connect(f"local:{tmp_path}") as sandbox:
        assert sandbox.target == f"local:{tmp_path}"
        assert sandbox.home == sandbox.root == PurePosixPath(tmp_path)
        (pid,) = children(os.getpid())
        (socket,) = [Path(word[5:]) for word in command_of(pid) if word.startswith("unix:")]
        assert socket.is_socket()
        assert socket.parent.stat().st_mode & 0o077 == 0
    assert not is_alive(pid)
    assert not socket.parent.exists()


async def test_local_daemon_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """A parent that is killed leaves no daemon behind."""
    code = (
        "import asyncio, sys\n"
        "from host_client.sandbox.sandbox import connect\n"
        "async def main():\n"
        "    async with connect(sys.argv[1]):\n"
        "        print('connected', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with started([sys.executable, "-c", code, f"local:{tmp_path}"]) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"connected\n"
        (pid,) = children(parent.pid)
        ended = os.pidfd_open(pid)
        parent.kill()
    try:
        await asyncio.wait_for(readable(ended), 20)
    finally:
        os.close(ended)


async def test_local_daemon_is_ended_when_connecting_is_cancelled(tmp_path: Path) -> None:
    """A cancel while the daemon starts leaves nothing; the guards of all tests look for the process."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), connect(f"local:{tmp_path}"):
            await asyncio.Event().wait()


async def test_local_daemon_that_dies_is_unreachable(tmp_path: Path) -> None:
    """A daemon that is killed under a connection makes the next call fail by reason."""
    async with connect(f"local:{tmp_path}") as sandbox:
        (pid,) = children(os.getpid())
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(UnavailableError) as caught:
            await call_for_ever(sandbox)
    assert caught.value.reason == "unreachable"


async def test_local_daemon_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the process ends before it serves, the end of its standard error is in the failure."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UnavailableError, match="did not start: it said nothing") as caught:
        async with connect(f"local:{tmp_path}"):
            pass
    assert (caught.value.reason, caught.value.facts["exit_status"]) == ("unreachable", "1")
    talking = tmp_path / "talking"
    talking.write_text("#!/bin/sh\necho 'no module' >&2\nexit 3\n")
    talking.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(talking))
    with pytest.raises(UnavailableError, match="no module"):
        async with connect(f"local:{tmp_path}"):
            pass


async def test_workspace_with_a_module_of_our_name_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local daemon is ours even when the current directory, maybe an agent's workspace, has a module of its name."""
    (tmp_path / "sandbox_agent.py").write_text("raise SystemExit('ran')")
    monkeypatch.chdir(tmp_path)
    async with connect("local:."):
        pass


async def test_local_home_must_exist(tmp_path: Path) -> None:
    """A home that is not there is refused in either form of the target."""
    missing = tmp_path / "missing"
    for target in (f"local:{missing}", LocalTarget(missing, tmp_path)):
        with pytest.raises(ConfigurationError) as caught:
            async with connect(target):
                pass
        assert caught.value.reason == "invalid_target"


# Bundles


async def test_session_moves_from_one_daemon_to_another(tmp_path: Path) -> None:
    """What is captured from one sandbox is restored in another byte for byte, and is found there."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    session = write_session(one, CONTENTS)
    sink = MemorySink()
    async with connect(f"local:{one}") as source, connect(f"local:{other}") as target:
        captured = await source.bundles.capture(PLACE, sink)
        assert captured.source == PurePosixPath(session)
        assert captured.digest == bundle_digest(entries_of(CONTENTS))
        assert sink.contents == CONTENTS
        restored = await target.bundles.restore(PLACE, MemorySource(sink.contents))
        assert (restored.files_count, restored.unchanged, restored.recovery) == (3, False, "")
        again = await target.bundles.restore(PLACE, MemorySource(sink.contents))
        assert again.unchanged
        assert again.sent_bytes < 1000
        (found,) = [item async for item in target.bundles.list(PROFILE)]
        assert (found.conversation_id, found.path, found.complete) == ("S1", restored.target, True)
    assert read_session(other) == CONTENTS


async def test_second_capture_sends_what_is_new(tmp_path: Path) -> None:
    """Of an unchanged file nothing is sent, of a grown one the new end."""
    session = write_session(tmp_path, CONTENTS)
    async with connect(f"local:{tmp_path}") as sandbox:
        await sandbox.bundles.capture(PLACE, MemorySink())
        with (session / "b" / "c").open("ab") as file:
            file.write(b"third")
        now = {**CONTENTS, b"b/c": CONTENTS[b"b/c"] + b"third"}
        sink = MemorySink(CONTENTS)
        captured = await sandbox.bundles.capture(PLACE, sink, held=entries_of(CONTENTS))
    assert sink.contents == now
    assert captured.digest == bundle_digest(entries_of(now))
    assert captured.received_bytes < 500


async def test_recovery_is_listed_undone_and_pruned(tmp_path: Path) -> None:
    """What a restore set aside is listed, put back, and removed when told to."""
    write_session(tmp_path, CONTENTS)
    async with connect(f"local:{tmp_path}") as sandbox:
        restored = await sandbox.bundles.restore(PLACE, MemorySource({b"a": b"new"}))
        (item,) = [item async for item in sandbox.bundles.list_recovery(PROFILE, conversation_id="S1")]
        assert (item.name, item.conversation_id) == (restored.recovery, "S1")
        undone = await sandbox.bundles.undo_restore(PLACE)
        assert read_session(tmp_path) == CONTENTS
        assert undone.target == restored.target
        assert await sandbox.bundles.prune_recovery(PROFILE, keep_count=0) == (undone.recovery,)
        with pytest.raises(SessionError) as caught:
            await sandbox.bundles.undo_restore(PLACE)
        assert caught.value.reason == "not_found"
        with pytest.raises(ConfigurationError):
            await sandbox.bundles.prune_recovery(PROFILE)


async def test_validate_runs_the_hook_and_places_nothing(tmp_path: Path) -> None:
    """A bundle that the format's hook refuses is refused without a trace in the sandbox."""
    refusing = Place(PROFILE, "S1").profile
    profile = type(refusing)(**{**fields_of(refusing), "validate": "lambda files, id: 'no ' + files.text('a')"})
    async with connect(f"local:{tmp_path}") as sandbox:
        await sandbox.bundles.validate(PROFILE, "S1", MemorySource(CONTENTS))
        with pytest.raises(SessionError, match="no first") as caught:
            await sandbox.bundles.validate(profile, "S1", MemorySource(CONTENTS))
    assert caught.value.reason == "invalid"
    assert not (tmp_path / ".plain").exists()


async def test_failures_of_the_daemon_keep_all_they_name(tmp_path: Path) -> None:
    """A refusal of the daemon arrives with code, reason and every entry at fault."""
    session = write_session(tmp_path, CONTENTS)
    (session / "one").symlink_to("/etc/passwd")
    (session / "two").symlink_to("/etc/shadow")
    sink = MemorySink()
    async with connect(f"local:{tmp_path}") as sandbox:
        with pytest.raises(SessionError) as caught:
            await sandbox.bundles.capture(PLACE, sink)
        assert caught.value.reason == "symlink"
        assert {offender.path for offender in caught.value.offenders} == {"one", "two"}
        assert sink.aborted
        captured = await sandbox.bundles.capture(PLACE, MemorySink(), skip_links=True)
    assert {(item.path, item.why) for item in captured.left_out} == {("one", "symlink"), ("two", "symlink")}
    assert captured.left_out_count == 2


async def test_limits_of_the_connection_hold(tmp_path: Path) -> None:
    """Limits given to connect hold for its calls, and a call's own win over them."""
    write_session(tmp_path, CONTENTS)
    async with connect(f"local:{tmp_path}", limits=Limits(max_files=2)) as sandbox:
        with pytest.raises(LimitError) as caught:
            await sandbox.bundles.capture(PLACE, MemorySink())
        assert caught.value.reason == "max_files"
        await sandbox.bundles.capture(PLACE, MemorySink(), limits=Limits(max_files=3))


async def test_progress_ends_complete(tmp_path: Path) -> None:
    """The last report of a capture and of a restore says that all is done."""
    write_session(tmp_path, CONTENTS)
    told: list[Progress] = []
    sink = MemorySink()
    async with connect(f"local:{tmp_path}") as sandbox:
        await sandbox.bundles.capture(PLACE, sink, progress=told.append)
        assert told[-1].is_complete
        assert told[-1].bytes_total == sum(map(len, CONTENTS.values()))
        await sandbox.bundles.restore(Place(PROFILE, "S2"), MemorySource(sink.contents), progress=told.append)
        assert told[-1].is_complete


class _SlowSink(MemorySink):
    """Waits in the middle of a capture for a test to let it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.goes_on = threading.Event(), threading.Event()

    def data(self, index: int, piece: memoryview) -> None:
        """Take a part, once allowed to."""
        self.reached.set()
        assert self.goes_on.wait(20)
        super().data(index, piece)


async def test_daemon_killed_in_a_capture(tmp_path: Path) -> None:
    """A daemon that is killed while it sends: `unavailable`, the sink told to abort, the session untouched."""
    contents = {b"a": bytes(30 * MIB)}
    with running_daemon(tmp_path) as daemon:
        write_session(daemon.home, contents)
        sink = _SlowSink()
        async with connect(daemon.target) as sandbox, asyncio.TaskGroup() as group:
            capture = group.create_task(outcome(sandbox, sink))
            await asyncio.to_thread(sink.reached.wait, 20)
            daemon.process.kill()
            daemon.process.wait()
            sink.goes_on.set()
    error = capture.result()
    assert isinstance(error, UnavailableError)
    assert error.reason == "unreachable"
    assert sink.aborted
    assert read_session(daemon.home) == contents


class _KillingSource(MemorySource):
    """Kills the daemon after some content was given."""

    def __init__(self, contents: dict[bytes, bytes], process: subprocess.Popen[bytes]) -> None:
        super().__init__(contents)
        self._process = process

    def pieces(self, index: int, room: Callable[[], int]) -> Iterator[bytes]:
        """Yield the first pieces, kill, yield the rest."""
        for number, piece in enumerate(super().pieces(index, room)):
            if number == 8:
                self._process.kill()
                self._process.wait()
            yield piece


async def test_daemon_killed_in_a_restore(tmp_path: Path) -> None:
    """A daemon that is killed while it receives: `unavailable`, no result, and the old session is whole."""
    with running_daemon(tmp_path) as daemon:
        write_session(daemon.home, CONTENTS)
        source = _KillingSource({b"a": bytes(30 * MIB)}, daemon.process)
        async with connect(daemon.target) as sandbox:
            with pytest.raises(UnavailableError) as caught:
                await sandbox.bundles.restore(PLACE, source)
    assert caught.value.reason == "unreachable"
    assert read_session(daemon.home) == CONTENTS


async def test_cancelled_capture_aborts_its_sink(tmp_path: Path) -> None:
    """A cancel waits for the sink's running method, then aborts; the daemon goes on serving."""
    write_session(tmp_path, {b"a": bytes(30 * MIB)})
    sink = _SlowSink()
    async with connect(f"local:{tmp_path}") as sandbox:
        capture = asyncio.get_running_loop().create_task(sandbox.bundles.capture(PLACE, sink))
        await asyncio.to_thread(sink.reached.wait, 20)
        capture.cancel()
        sink.goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await capture
        assert sink.aborted
        await sandbox.bundles.capture(PLACE, MemorySink())


async def test_captures_run_at_the_same_time(tmp_path: Path) -> None:
    """One connection carries several calls at once."""
    for number in range(8):
        write_session(tmp_path, {b"a": bytes([number]) * MIB}, f"S{number}")
    sinks = [MemorySink() for _ in range(8)]
    async with connect(f"local:{tmp_path}") as sandbox, asyncio.TaskGroup() as group:
        for number, sink in enumerate(sinks):
            group.create_task(sandbox.bundles.capture(Place(PROFILE, f"S{number}"), sink))
    assert [sink.contents[b"a"][0] for sink in sinks] == list(range(8))


async def test_large_held_list_fits_a_message(tmp_path: Path) -> None:
    """Naming more files than a message takes names the largest and goes on."""
    write_session(tmp_path, CONTENTS)
    held = [*entries_of(CONTENTS), *many_entries(20_000)]
    async with connect(f"local:{tmp_path}") as sandbox:
        sink = MemorySink(CONTENTS)
        captured = await sandbox.bundles.capture(PLACE, sink, held=held)
    assert sink.contents == CONTENTS
    assert captured.received_bytes < 1000


def many_entries(count: int) -> Sequence[Entry]:
    """Return small files with long names."""
    entry = entries_of({b"x": b"x"})[0]
    return [type(entry)(b"d/" + b"%0200d" % number, 1, entry.sha256) for number in range(count)]


# Files


async def test_file_goes_up_and_down(tmp_path: Path) -> None:
    """A file keeps its bytes and its owner's permission bits both ways; missing directories are made."""
    host = tmp_path / "tool"
    host.write_bytes(os.urandom(3 * MIB + 5))
    host.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    async with connect(f"local:{home}") as sandbox:
        await sandbox.upload(host, sandbox.home / "bin" / "deep" / "tool")
        placed = home / "bin" / "deep" / "tool"
        assert placed.read_bytes() == host.read_bytes()
        assert placed.stat().st_mode & 0o777 == 0o700
        (tmp_path / "back").write_bytes(b"old")
        await sandbox.download(sandbox.home / "bin" / "deep" / "tool", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == host.read_bytes()
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o700


async def test_directory_goes_up_and_down(tmp_path: Path) -> None:
    """All files at any depth are copied, odd names included, and progress ends complete."""
    names = ["a", "b/c", "b/[slug]", "b/d/e f", "-rf", "new\nline", ".git/config", "empty"]
    host, home = tmp_path / "tree", tmp_path / "home"
    home.mkdir()
    for name in names:
        (host / name).parent.mkdir(parents=True, exist_ok=True)
        (host / name).write_text(name if name != "empty" else "")
    told: list[Progress] = []
    async with connect(f"local:{home}") as sandbox:
        await sandbox.upload(host, sandbox.home / "tree", progress=told.append)
        assert told[-1].is_complete
        assert told[-1].files_total == len(names)
        await sandbox.download(sandbox.home / "tree", tmp_path / "back", progress=told.append)
        assert told[-1].is_complete
    for root in (home / "tree", tmp_path / "back"):
        found = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}
        assert found == {name: name if name != "empty" else "" for name in names}


async def test_upload_refuses_links_and_special_files(tmp_path: Path) -> None:
    """Links and special files are refused before anything is sent, and all are named."""
    host, home = tmp_path / "tree", tmp_path / "home"
    host.mkdir()
    home.mkdir()
    (host / "a").write_text("a")
    (host / "l1").symlink_to("a")
    (host / "l2").symlink_to(tmp_path)
    async with connect(f"local:{home}") as sandbox:
        with pytest.raises(WorkspaceError) as caught:
            await sandbox.upload(host, sandbox.home / "tree")
        assert caught.value.reason == "unsafe_path"
        assert [offender.path for offender in caught.value.offenders] == [str(host / "l1"), str(host / "l2")]
        (host / "l1").unlink()
        (host / "l2").unlink()
        os.mkfifo(host / "pipe")
        with pytest.raises(WorkspaceError) as caught:
            await sandbox.upload(host, sandbox.home / "tree")
        assert caught.value.reason == "not_a_file"
        with pytest.raises(WorkspaceError) as caught:
            await sandbox.upload(tmp_path / "missing", sandbox.home / "tree")
        assert caught.value.reason == "not_found"
    assert not (home / "tree").exists()


async def test_download_leaves_nothing_half_written(tmp_path: Path) -> None:
    """A download that fails leaves the old file and no scratch file; links and limits are refused."""
    home, back = tmp_path / "home", tmp_path / "back"
    home.mkdir()
    (home / "big").write_bytes(bytes(2 * MIB))
    (home / "link").symlink_to("big")
    back.mkdir()
    (back / "big").write_text("old")
    async with connect(f"local:{home}") as sandbox:
        for name, limits, reason in (
            ("big", Limits(max_bytes=MIB), "max_bytes"),
            ("link", Limits(), "unsafe_path"),
            ("missing", Limits(), "not_found"),
        ):
            with pytest.raises(OutpostError) as caught:
                await sandbox.download(sandbox.home / name, back / "big", limits=limits)
            assert caught.value.reason == reason
        with pytest.raises(WorkspaceError) as caught:
            await sandbox.download(sandbox.home / "big", tmp_path / "nowhere" / "big")
        assert caught.value.reason == "not_found"
    assert [path.name for path in back.iterdir()] == ["big"]
    assert (back / "big").read_text() == "old"


async def test_download_follows_no_link_on_the_host(tmp_path: Path) -> None:
    """A directory of the download that is a link on the host is refused; nothing is written behind it."""
    home, back, elsewhere = tmp_path / "home", tmp_path / "back", tmp_path / "elsewhere"
    for directory in (home / "tree" / "sub", back, elsewhere):
        directory.mkdir(parents=True)
    (home / "tree" / "sub" / "file").write_text("x")
    (back / "sub").symlink_to(elsewhere)
    async with connect(f"local:{home}") as sandbox:
        with pytest.raises(WorkspaceError):
            await sandbox.download(sandbox.home / "tree", back)
    assert list(elsewhere.iterdir()) == []


async def test_files_are_told_written_read_and_removed(tmp_path: Path) -> None:
    """Each call of the file service does what it says."""
    content = tmp_path / "content"
    content.write_bytes(b"0123456789")
    home = tmp_path / "home"
    home.mkdir()
    async with connect(f"local:{home}") as sandbox:
        path = sandbox.home / "file"
        with content.open("rb") as file:
            written = await sandbox.files.write(path, file, mode=0o640, must_not_exist=True)
        assert (written.size, written.mode, written.kind) == (10, 0o640, "file")
        with content.open("rb") as file, pytest.raises(OutpostError) as caught:
            await sandbox.files.write(path, file, must_not_exist=True)
        assert (caught.value.code, caught.value.reason) == ("conflict", "exists")
        assert [info.path async for info in sandbox.files.find(sandbox.home, "f*")] == [path]
        parts: list[bytes] = []
        info = await sandbox.files.read(path, parts.append, offset=4)
        assert (b"".join(parts), info.size) == (b"456789", 10)
        with pytest.raises(SessionError) as mismatch:
            await sandbox.files.read(path, parts.append, offset=4, prefix_sha256=bytes(32))
        assert mismatch.value.reason == "digest_mismatch"
        await sandbox.files.remove(path)
        with pytest.raises(WorkspaceError) as missing:
            await sandbox.files.stat(path)
        assert missing.value.reason == "not_found"


def started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process whose output is read."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def is_alive(pid: int) -> bool:
    """Tell whether a process is there, a zombie included."""
    return Path(f"/proc/{pid}").exists()


async def call_for_ever(sandbox: Sandbox) -> None:
    """Call until a call fails."""
    while True:
        await sandbox.info()


async def outcome(sandbox: Sandbox, sink: MemorySink) -> OutpostError | None:
    """Return the failure of a capture."""
    try:
        await sandbox.bundles.capture(PLACE, sink)
    except OutpostError as error:
        return error
    return None


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def command_of(pid: int) -> list[str]:
    """Return the command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def fields_of(profile: object) -> dict[str, object]:
    """Return the fields of a profile."""
    return {name: getattr(profile, name) for name in type(profile).__dataclass_fields__}  # type: ignore[attr-defined]


async def readable(descriptor: int) -> None:
    """Wait until a descriptor can be read."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)
