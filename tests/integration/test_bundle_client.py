"""Bundles through real daemons: moved, incremental, recovered, and what is left when one side goes."""

from __future__ import annotations

import asyncio
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
)
from host_client.sandbox.place import Place
from host_client.sandbox.sandbox import connect
from sandbox_api.limits import MIB, Limits
from sandbox_api.manifest import bundle_digest
from support.bundle_end import PROFILE, MemorySink, MemorySource, entries_of, read_session, write_session
from support.daemon import running_daemon

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence

    from host_client.sandbox.progress import Progress
    from host_client.sandbox.sandbox import Sandbox
    from sandbox_api.manifest import Entry

pytestmark = pytest.mark.anyio

PLACE = Place(PROFILE, "S1")
CONTENTS = {b"a": b"first", b"b/c": b"second" * 500_000, b"b/empty": b""}


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


async def outcome(sandbox: Sandbox, sink: MemorySink) -> OutpostError | None:
    """Return the failure of a capture."""
    try:
        await sandbox.bundles.capture(PLACE, sink)
    except OutpostError as error:
        return error
    return None


def fields_of(profile: object) -> dict[str, object]:
    """Return the fields of a profile."""
    return {name: getattr(profile, name) for name in type(profile).__dataclass_fields__}  # type: ignore[attr-defined]
