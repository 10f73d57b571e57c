"""Restores that break and are repeated with their id: only the rest is sent, and never is anything spliced."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from host_client import ConversationContext
from host_client.errors import ConfigurationError, OutpostError, UnavailableError
from host_client.sandbox.sandbox import connect
from sandbox_api.v1 import bundle_pb2
from sandbox_api.wire import pack_manifest
from support import killed_resume
from support.bundle_end import MemorySource, entries_of, read_session, write_session
from support.conversation import ID, make_session, store
from support.cutting_proxy import cutting_proxy
from support.daemon import END_SECONDS, running_daemon
from support.fake_daemon import Exchange, fake_daemon, info
from support.lie import CONTENTS, PLACE, refusal
from support.midway import act_in_restore
from support.restoring import staged
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from host_client.sandbox.place import Restored
    from host_client.sandbox.progress import Progress
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio

BYTES = random.Random(11)  # noqa: S311 - any bytes
OLD = {b"a": b"old", b"kept": b"k"}
NEW = {
    b"a": b"new",
    **{b"d/%03d" % number: BYTES.randbytes(2000) for number in range(100)},
    b"large": BYTES.randbytes(6 << 20),
    b"z": BYTES.randbytes(300_000),
}
WHOLE_BYTES = sum(map(len, NEW.values()))
MANIFEST_BYTES = len(pack_manifest(entries_of(NEW)))
RESTORE_ID = "r-1"
MIDWAY_BYTES = 4 << 20
STAGED_BYTES = 1 << 20
CALL = "method=/sandbox_api.v1.BundleService/Restore"


class Cut(Exception):  # noqa: N818 - what the caller of a restore does, no error
    """Ends a restore from the side of its source."""


class ActingSource(MemorySource):
    """Acts, in the thread that reads, when so many bytes have been asked for."""

    def __init__(self, contents: dict[bytes, bytes], after_bytes: int, action: Callable[[], object]) -> None:
        super().__init__(contents)
        self._left_bytes = after_bytes
        self._action = action

    def pieces(self, index: int, room: Callable[[], int]) -> Iterator[bytes]:
        """Yield the content of a file."""
        for piece in super().pieces(index, room):
            if 0 <= self._left_bytes < len(piece):
                self._action()
            self._left_bytes -= len(piece)
            yield piece


def cut() -> None:
    """End the restore that asks for this content."""
    raise Cut


async def restore(target: str, source: MemorySource | None = None, restore_id: str = RESTORE_ID) -> Restored:
    """Restore by a connection of its own."""
    async with connect(target) as sandbox:
        return await sandbox.bundles.restore(
            PLACE, source or MemorySource(NEW), full_durability=False, restore_id=restore_id
        )


def stagings(home: Path) -> list[Path]:
    """Return the staging directories of a home, while they come and go."""
    return list((home / ".plain/sessions").glob(".outpost-session-*"))


def after_staged(daemon: RunningDaemon, action: Callable[[], object]) -> ActingSource:
    """Return a source that acts when more than a piece of the large file is on the daemon's disk."""

    def is_staged() -> bool:
        return any(
            (path / "large").exists() and (path / "large").stat().st_size >= STAGED_BYTES
            for path in stagings(daemon.home)
        )

    def act() -> None:
        wait_until(is_staged, "the daemon to write")
        action()

    return ActingSource(NEW, MIDWAY_BYTES, act)


async def break_midway(daemon: RunningDaemon, restore_id: str = RESTORE_ID) -> Path | None:
    """Break a restore after some of its content; return what stays staged, if anything does."""
    before_count = daemon.log().count(CALL)
    with pytest.raises(Cut):
        await restore(daemon.target, after_staged(daemon, cut), restore_id)
    await asyncio.to_thread(wait_until, lambda: daemon.log().count(CALL) > before_count, "the end of the call")
    return next(iter(stagings(daemon.home)), None)


async def test_cut_connections_send_only_the_rest(tmp_path: Path) -> None:
    """Cut at random points again and again: each attempt goes on, and all of them send hardly more than one."""
    moments = random.Random(38)  # noqa: S311 - the same cuts every time
    contents = {**NEW, b"large": BYTES.randbytes(24 << 20)}
    whole_bytes = sum(map(len, contents.values())) + len(pack_manifest(entries_of(contents)))
    with running_daemon(tmp_path) as daemon:
        write_session(daemon.home, OLD)
        cuts = [moments.randrange(2 << 20, 6 << 20) for _ in range(5)]
        async with cutting_proxy(daemon.target, cuts) as (target, proxy):
            for _ in range(20):
                try:
                    restored = await restore(target, MemorySource(contents))
                except UnavailableError:
                    assert read_session(daemon.home) == OLD
                else:
                    break
        assert proxy.cuts_count == 5
        assert read_session(daemon.home) == contents
        assert staged(daemon.home) == []
    assert restored.sent_bytes + restored.resumed_bytes == whole_bytes
    # A cut loses what was on its way: the message that was not whole, the manifest, and what buffers held.
    assert restored.resumed_bytes > sum(cuts) // 4


@pytest.mark.parametrize("attempts_count", [1, 3])
async def test_killed_daemon_goes_on_after_its_restart(tmp_path: Path, attempts_count: int) -> None:
    """Killed in the middle and started again: the same id goes on with what was on the disk."""
    for _ in range(attempts_count):
        with running_daemon(tmp_path) as daemon:
            write_session(daemon.home, OLD)
            with pytest.raises(UnavailableError):
                await restore(daemon.target, after_staged(daemon, daemon.process.kill))
            daemon.process.wait()
    with running_daemon(tmp_path) as daemon:
        assert read_session(daemon.home) == OLD
        restored = await restore(daemon.target)
        assert read_session(daemon.home) == NEW
        assert staged(daemon.home) == []
    assert restored.resumed_bytes > STAGED_BYTES
    assert restored.sent_bytes + restored.resumed_bytes == WHOLE_BYTES + MANIFEST_BYTES


async def test_killed_daemon_whose_restore_is_not_repeated(tmp_path: Path) -> None:
    """What a killed daemon had staged is removed by the next one when its time is over, without a call."""
    with running_daemon(tmp_path) as daemon:
        with pytest.raises(UnavailableError):
            await restore(daemon.target, after_staged(daemon, daemon.process.kill))
        daemon.process.wait()
        assert staged(daemon.home)
    with running_daemon(tmp_path, "--keep-seconds", "0.5") as daemon:
        await asyncio.to_thread(wait_until, lambda: not stagings(daemon.home), "the sweep")
        assert (await restore(daemon.target)).resumed_bytes == 0


async def test_cancelled_restore_goes_on(tmp_path: Path) -> None:
    """A restore that its caller ended leaves what had come to the next of its id, and nothing else to anyone."""
    with running_daemon(tmp_path) as daemon:
        assert await break_midway(daemon)
        other = await restore(daemon.target, restore_id="r-2")
        assert other.resumed_bytes == 0
        again = await restore(daemon.target)
        assert again.unchanged
        assert again.sent_bytes == MANIFEST_BYTES
        assert staged(daemon.home) == []


@pytest.mark.parametrize("restore_id", ["", RESTORE_ID])
async def test_what_stays_of_a_broken_restore(tmp_path: Path, restore_id: str) -> None:
    """Without an id nothing stays of a broken restore; with one, until the daemon ends."""
    with running_daemon(tmp_path) as daemon:
        staging = await break_midway(daemon, restore_id)
        assert (staging is not None) == bool(restore_id)
        home = daemon.home
    assert staged(home) == []


async def test_daemon_that_ends_in_the_middle(tmp_path: Path) -> None:
    """A daemon that is told to end cancels the restore and leaves nothing of it, though it has an id."""
    with running_daemon(tmp_path, "--drain-seconds", "0.2") as daemon:
        write_session(daemon.home, OLD)

        def end() -> None:
            daemon.process.terminate()
            daemon.process.wait(END_SECONDS)

        with pytest.raises(UnavailableError):
            await restore(daemon.target, after_staged(daemon, end))
        assert daemon.process.returncode == 0
        assert read_session(daemon.home) == OLD
        assert staged(daemon.home) == []


async def test_what_waits_is_removed_in_time(tmp_path: Path) -> None:
    """Without another attempt the running daemon removes it, and a later attempt begins anew."""
    with running_daemon(tmp_path, "--keep-seconds", "0.5") as daemon:
        await break_midway(daemon)
        await asyncio.to_thread(wait_until, lambda: not stagings(daemon.home), "the sweep")
        assert (await restore(daemon.target)).resumed_bytes == 0


async def test_no_more_wait_than_eight(tmp_path: Path) -> None:
    """However many restores break, only the last eight wait."""
    with running_daemon(tmp_path) as daemon:
        for number in range(10):
            await break_midway(daemon, f"r{number}")
        await asyncio.to_thread(wait_until, lambda: len(stagings(daemon.home)) == 8, "the oldest to go")
        assert (await restore(daemon.target, restore_id="r1")).resumed_bytes == 0
        assert (await restore(daemon.target, restore_id="r9")).unchanged
        await asyncio.to_thread(wait_until, lambda: len(stagings(daemon.home)) == 7, "the one that was used to go")


async def test_source_that_changed_is_never_spliced(tmp_path: Path) -> None:
    """What changed on the host before the next attempt is sent from its start."""
    changed = {**NEW, b"large": BYTES.randbytes(6 << 20)}
    with running_daemon(tmp_path) as daemon:
        await break_midway(daemon)
        restored = await restore(daemon.target, MemorySource(changed))
        assert read_session(daemon.home) == changed
    assert restored.resumed_bytes == 3 + 100 * 2000


def _swap_for_link(staging: Path) -> None:
    victim = staging.parent / "victim"
    (staging / "large").rename(victim)
    (staging / "large").symlink_to(victim)


def _grow(staging: Path) -> None:
    with (staging / "large").open("ab") as file:
        file.write(b"x" * 1000)


def _change(staging: Path) -> None:
    for path in (staging / "large", staging / "d/000", staging / "d/099"):
        with path.open("r+b") as file:
            file.write(b"changed")


def _empty(staging: Path) -> None:
    shutil.rmtree(staging)
    staging.mkdir()


def _swap_folder(staging: Path) -> None:
    (staging / "d").rename(staging.parent / "elsewhere")
    (staging / "d").symlink_to("../elsewhere")


@pytest.mark.parametrize("act", [_swap_for_link, _grow, _change, _empty, _swap_folder, shutil.rmtree])
async def test_hostile_sandbox_between_attempts(tmp_path: Path, act: Callable[[Path], object]) -> None:
    """Whatever the sandbox makes of what waits: the session is exactly the one that was sent."""
    with running_daemon(tmp_path) as daemon:
        staging = await break_midway(daemon)
        assert staging is not None
        act(staging)
        await restore(daemon.target)
        assert read_session(daemon.home) == NEW
        session = daemon.home / ".plain/sessions/S1"
        assert not [path for path in session.rglob("*") if path.is_symlink()]
        assert staged(daemon.home) == []


async def test_two_at_once(tmp_path: Path) -> None:
    """Two restores of one id at the same time: one is told to wait, the other is in place."""
    with running_daemon(tmp_path) as daemon:
        outcomes = await asyncio.gather(
            *(restore(daemon.target) for _ in range(2)),
            return_exceptions=True,
        )
        assert read_session(daemon.home) == NEW
        assert staged(daemon.home) == []
    for outcome in outcomes:
        assert not isinstance(outcome, BaseException) or (
            isinstance(outcome, OutpostError) and (outcome.code, outcome.reason) == ("conflict", "busy")
        )


async def test_id_of_no_use(tmp_path: Path) -> None:
    """An id that breaks the rule is refused by the client, and by the daemon as well."""
    with running_daemon(tmp_path) as daemon:
        for restore_id in ("a/b", "x" * 65, "é"):
            with pytest.raises(ConfigurationError) as caught:
                await restore(daemon.target, restore_id=restore_id)
            assert caught.value.reason == "invalid_id"
        assert not (daemon.home / ".plain").exists()


async def test_store_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store passes the id on and tells what was there already."""
    tested = store()
    content = BYTES.randbytes(8 << 20)
    source, target = tmp_path / "source", tmp_path / "target"
    for directory in (source, target):
        directory.mkdir()
    with running_daemon(source) as daemon:
        make_session(daemon.home / ".mycli", {"files/big": content})
        async with connect(daemon.target) as sandbox:
            record = await tested.capture(ID, ConversationContext(sandbox=sandbox, repository=tmp_path))
    with running_daemon(target) as daemon:
        async with connect(daemon.target) as sandbox:
            told: list[Progress] = []
            context = ConversationContext(
                sandbox=sandbox, repository=tmp_path, restore_id=RESTORE_ID, progress=told.append
            )
            with monkeypatch.context() as patch:
                act_in_restore(patch, cut, pieces_count=6)
                with pytest.raises(Cut):
                    await tested.restore(record, context)
            outcome = await tested.restore(record, context)
        assert (daemon.home / ".mycli/sessions" / ID / "files/big").read_bytes() == content
    assert outcome.resumed_bytes >= STAGED_BYTES
    assert outcome.sent_bytes < len(content)
    assert told[-1].is_complete


@pytest.mark.timeout(400)
def test_kill_at_every_step(tmp_path: Path) -> None:
    """An attempt that goes on, killed at any of its steps, leaves the old session or the new; the next one succeeds."""
    command = [sys.executable, killed_resume.__file__, str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 60


def need(**fields: object) -> bundle_pb2.RestoreResponse:
    """Return a daemon's need of all three files."""
    return bundle_pb2.RestoreResponse(need=bundle_pb2.RestoreNeed(lacking=b"\x07", **fields))  # type: ignore[arg-type]


LIES: dict[str, dict[str, object]] = {
    "part of a file that is not there": {"parts": [bundle_pb2.StagedPart(entry=7, size=1, sha256=bytes(32))]},
    "part as long as the file": {"parts": [bundle_pb2.StagedPart(entry=0, size=5, sha256=bytes(32))]},
    "part of nothing": {"parts": [bundle_pb2.StagedPart(entry=0, size=0, sha256=bytes(32))]},
    "part without a digest": {"parts": [bundle_pb2.StagedPart(entry=0, size=1)]},
    "part that is told twice": {"parts": [bundle_pb2.StagedPart(entry=0, size=1, sha256=bytes(32))] * 2},
    "more than there is": {"staged_bytes": 1},
}


@pytest.mark.parametrize("lie", LIES)
async def test_daemon_that_lies_about_what_it_has(lie: str) -> None:
    """What a daemon says is staged has to fit the manifest."""

    async def script(exchange: Exchange) -> None:
        await exchange.receive()
        await exchange.receive()
        await exchange.send(need(**LIES[lie]))
        await exchange.receive()

    async with fake_daemon(BundleService_Restore=script) as target:
        assert await refusal(restore(target, MemorySource(CONTENTS))) == "session/protocol"


def answering(words: list[str]) -> Callable[[Exchange], Awaitable[None]]:
    """Return a script of GetInfo that tells of these capabilities."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(info(capabilities=words))

    return script


async def test_old_daemon_is_asked_for_nothing_new() -> None:
    """A daemon without the capability is sent no id; the restore is an ordinary one."""
    headers: list[bundle_pb2.RestoreHeader] = []

    async def script(exchange: Exchange) -> None:
        header = await exchange.receive()
        assert header is not None
        headers.append(bundle_pb2.RestoreRequest.FromString(header).header)

    for words in ([], ["bundle.restore.id"]):
        async with fake_daemon(DaemonService_GetInfo=answering(words), BundleService_Restore=script) as target:
            await refusal(restore(target, MemorySource(CONTENTS)))
    assert [header.restore_id for header in headers] == ["", RESTORE_ID]
