"""Restores of files that break and are repeated with their id: only the rest is sent, and never is anything spliced."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, ConflictError, OutpostError, SessionError, UnavailableError
from host_client.sandbox.sandbox import connect
from host_client.sandbox.transcript import Transcripts, TranscriptSource
from host_client.stores.context import ConversationContext
from sandbox_api.lock import LockSign
from sandbox_api.manifest import Entry
from sandbox_api.v1 import transcript_pb2
from support.conversation import files_below
from support.cutting_proxy import cutting_proxy
from support.daemon import running_daemon
from support.fake_daemon import Exchange, fake_daemon, info
from support.restore_scene import Host
from support.transcript_format import ID, WITH_SIDECARS
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from host_client.sandbox.transcript_restore import RestoredTranscript
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio

MIB = 1 << 20
BYTES = random.Random(38)  # noqa: S311 - any bytes
LARGE = "p/S1.jsonl"
NEW = {"p/S1/a.json": b"small", "p/S1/b.bin": BYTES.randbytes(300_000), LARGE: BYTES.randbytes(6 * MIB)}
WHOLE_BYTES = sum(map(len, NEW.values()))
RESTORE_ID = "r-1"
CALL = "method=/sandbox_api.v1.TranscriptService/Restore"


class Cut(Exception):  # noqa: N818 - what the caller of a restore does, no error
    """Ends a restore from the side of its source."""


def pieces(content: bytes, act: Callable[[], object] | None = None) -> Iterator[bytes]:
    """Yield a content; act behind its second MiB."""
    for at in range(0, len(content), 64 << 10):
        if at == 2 * MIB and act is not None:
            act()
        yield content[at : at + (64 << 10)]


async def restore(
    target: str,
    contents: Mapping[str, bytes] = NEW,
    restore_id: str = RESTORE_ID,
    *,
    act: Callable[[], object] | None = None,
    locks: tuple[LockSign, ...] = (),
) -> RestoredTranscript:
    """Restore by a connection of its own."""
    sources = [TranscriptSource(PurePosixPath(path), partial(pieces, data, act)) for path, data in contents.items()]
    async with connect(target) as sandbox:
        return await sandbox.transcripts.restore(
            sandbox.home / ".demo", "demo", ID, sources, full_durability=False, restore_id=restore_id, locks=locks
        )


def home_of(daemon: RunningDaemon) -> Path:
    """Return the home of the format."""
    return daemon.home / ".demo"


def stagings(daemon: RunningDaemon) -> list[Path]:
    """Return the staging directories."""
    return list(home_of(daemon).glob(".outpost-session-*"))


async def break_midway(daemon: RunningDaemon, restore_id: str = RESTORE_ID) -> Path | None:
    """Break a restore when some of the large file is on the daemon's disk; return what stays staged, if anything."""

    def act() -> None:
        wait_until(
            lambda: any((path / LARGE).exists() and (path / LARGE).stat().st_size >= MIB for path in stagings(daemon)),
            "the daemon to write",
        )
        raise Cut

    before_count = daemon.log().count(CALL)
    with pytest.raises(Cut):
        await restore(daemon.target, restore_id=restore_id, act=act)
    await asyncio.to_thread(wait_until, lambda: daemon.log().count(CALL) > before_count, "the end of the call")
    return next(iter(stagings(daemon)), None)


def check_placed(daemon: RunningDaemon, contents: Mapping[str, bytes] = NEW) -> None:
    """Make sure that the files are there, and nothing else of ours."""
    assert files_below(home_of(daemon)) == dict(contents)
    assert not stagings(daemon)


async def test_cut_connections_send_only_the_rest(tmp_path: Path) -> None:
    """Cut again and again, each attempt goes on, and all of them send hardly more than one."""
    sent = [2 * MIB, 1 * MIB, 3 * MIB]
    with running_daemon(tmp_path) as daemon:
        async with cutting_proxy(daemon.target, sent) as (address, proxy):
            restored = None
            attempts_count = 0
            while restored is None:
                attempts_count += 1
                try:
                    restored = await restore(address)
                except UnavailableError:
                    assert attempts_count <= len(sent)
            assert proxy.cuts_count >= 2
        check_placed(daemon)
    assert restored.resumed_bytes + restored.sent_bytes >= WHOLE_BYTES
    assert restored.resumed_bytes > 2 * MIB


async def test_a_whole_file_is_not_sent_again_and_a_part_goes_on(tmp_path: Path) -> None:
    """What was staged is taken from there, its inode included, and everything of the broken attempt is gone then."""
    with running_daemon(tmp_path) as daemon:
        staged = await break_midway(daemon)
        assert staged is not None
        inode = (staged / LARGE).stat().st_ino
        staged_bytes = sum(path.stat().st_size for path in staged.rglob("*") if path.is_file())
        restored = await restore(daemon.target)
        assert restored.resumed_bytes == staged_bytes >= MIB
        assert restored.sent_bytes < WHOLE_BYTES - staged_bytes + 4096
        check_placed(daemon)
        assert (home_of(daemon) / LARGE).stat().st_ino == inode


async def test_a_source_that_changed_is_sent_from_its_start(tmp_path: Path) -> None:
    """What does not begin with what was staged, or is shorter, is not put behind it."""
    changed = {**NEW, LARGE: b"x" + NEW[LARGE][1:], "p/S1/b.bin": NEW["p/S1/b.bin"][:1000]}
    with running_daemon(tmp_path) as daemon:
        await break_midway(daemon)
        restored = await restore(daemon.target, changed)
        assert restored.resumed_bytes == len(b"small")
        check_placed(daemon, changed)


async def test_what_the_sandbox_made_of_it_is_not_used(tmp_path: Path) -> None:
    """A staged file that was changed, linked, or swapped for a directory or a link is sent again."""
    with running_daemon(tmp_path) as daemon:
        staged = await break_midway(daemon)
        assert staged is not None
        with (staged / LARGE).open("r+b") as file:
            file.write(b"tampered")
        (staged / "p/S1/a.json").unlink()
        (staged / "p/S1/a.json").symlink_to("/etc/passwd")
        os.link(staged / "p/S1/b.bin", tmp_path / "other name")
        restored = await restore(daemon.target)
        assert restored.resumed_bytes == 0
        check_placed(daemon)


async def test_a_killed_daemon_leaves_it_to_the_next(tmp_path: Path) -> None:
    """What a daemon had staged when it was killed is gone on with after its restart."""
    with running_daemon(tmp_path) as daemon:

        def kill() -> None:
            wait_until(lambda: any((path / LARGE).exists() for path in stagings(daemon)), "the daemon to write")
            daemon.process.kill()
            daemon.process.wait()

        with pytest.raises(OutpostError):
            await restore(daemon.target, act=kill)
    (tmp_path / "run/agent.sock").unlink(missing_ok=True)
    with running_daemon(tmp_path) as daemon:
        assert stagings(daemon)
        restored = await restore(daemon.target)
        assert restored.resumed_bytes >= len(b"small") + 300_000
        check_placed(daemon)


async def test_only_what_broke_with_an_id_is_left(tmp_path: Path) -> None:
    """Without an id nothing stays, nor after a refusal; and another id does not use what one has left."""
    with running_daemon(tmp_path) as daemon:
        assert await break_midway(daemon, "") is None
        assert await break_midway(daemon) is not None
        other = await restore(daemon.target, restore_id="r-2")
        assert other.resumed_bytes == 0
        assert len(stagings(daemon)) == 1
        (daemon.home / ".demo/locks").mkdir()
        (daemon.home / ".demo/locks" / str(os.getpid())).touch()
        with pytest.raises(ConflictError) as caught:
            await restore(daemon.target, locks=(LockSign("locks", r"^(?P<pid>\d+)$", b""),))
        assert caught.value.reason == "in_use"


async def test_what_is_gone_between_question_and_restore_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that the daemon told of and has no more is a conflict, never a hole; the next attempt begins anew."""

    async def lie(*_: object) -> Mapping[bytes, Entry]:
        content = NEW[LARGE][:1000]
        return {LARGE.encode(): Entry(LARGE.encode(), 1000, hashlib.sha256(content).digest())}

    with running_daemon(tmp_path) as daemon:
        with monkeypatch.context() as patch:
            patch.setattr(Transcripts, "_staged", lie)
            with pytest.raises(ConflictError) as caught:
                await restore(daemon.target)
        assert caught.value.reason == "target_changed"
        assert not stagings(daemon)
        await restore(daemon.target)
        check_placed(daemon)


async def test_a_daemon_without_the_word_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older daemon is asked nothing that it does not know, and the restore works."""
    monkeypatch.setattr("host_client.sandbox.transcript.RESUMES", "no.such.word")
    with running_daemon(tmp_path) as daemon:
        assert await break_midway(daemon) is None
        restored = await restore(daemon.target)
        assert restored.resumed_bytes == 0
        check_placed(daemon)


async def test_a_wrong_id_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """A restore id keeps the rule of ids."""
    with running_daemon(tmp_path) as daemon:
        with pytest.raises(ConfigurationError) as caught:
            await restore(daemon.target, restore_id="a/b")
        assert caught.value.reason == "invalid_id"
        assert not home_of(daemon).exists()


async def test_a_lie_about_what_is_staged_is_refused() -> None:
    """A daemon that tells of a digest that is none breaks its word, and gets nothing."""

    async def lie(exchange: Exchange) -> None:
        await exchange.receive()
        await exchange.send(transcript_pb2.TranscriptStagedFile(path=LARGE.encode(), size=5, sha256=b"short"))

    async def tell(exchange: Exchange) -> None:
        await exchange.send(info(capabilities=["transcript.restore.id"]))

    async with fake_daemon(TranscriptService_ListStaged=lie, DaemonService_GetInfo=tell) as target:
        with pytest.raises(SessionError) as caught:
            await restore(target)
    assert caught.value.reason == "protocol"


def long_line(directory: Path) -> bytes:
    """Return a line of 60 kB that names a directory."""
    return b'{"type":"user","cwd":"%b","text":"%b"}\n' % (str(directory).encode(), b"x" * 60_000)


async def test_a_store_goes_on_with_what_it_moved(tmp_path: Path) -> None:
    """A relocated transcript that broke goes on by the context's id, and the outcome tells how much was there."""
    host = Host(tmp_path, WITH_SIDECARS)
    host.path.write_bytes(long_line(host.repository) * 90)
    record = await host.locate()
    host.other.mkdir()
    with running_daemon(host.other) as daemon:
        async with cutting_proxy(daemon.target, [2 * MIB]) as (address, _):
            for _ in range(2):
                async with connect(address) as sandbox:
                    context = ConversationContext(
                        sandbox=sandbox, conversation_home=host.home, repository=host.repository, restore_id=RESTORE_ID
                    )
                    try:
                        outcome = await host.store.restore(record, context)
                    except UnavailableError:
                        continue
        assert outcome.resumed_bytes >= MIB
        placed = daemon.home / ".mycli/sessions" / f"{ID}.jsonl"
        assert placed.read_bytes() == long_line(daemon.workspace) * 90
    assert outcome.sent_bytes + outcome.resumed_bytes < outcome.bytes_count + 4096
