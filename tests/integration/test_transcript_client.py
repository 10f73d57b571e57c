"""Transcripts of a real daemon through the client: put in place, told who has them open, followed, set aside."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from contextlib import aclosing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from host_client.errors import ConflictError, OutpostError, SessionError, UnavailableError
from host_client.sandbox.follow import FollowBegin, FollowData, FollowHeld, FollowPattern
from host_client.sandbox.sandbox import connect
from host_client.sandbox.transcript import TranscriptSource
from sandbox_api.limits import MIB
from sandbox_api.lock import LockSign
from support.daemon import END_SECONDS, running_daemon
from support.restoring import files_of, staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from host_client.sandbox.sandbox import Sandbox
    from host_client.sandbox.transcript_restore import RestoredTranscript
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon with an empty home."""
    with running_daemon(tmp_path) as running:
        yield running


async def test_home_is_resolved_by_variable_and_directory(daemon: RunningDaemon) -> None:
    """A variable that is set moves the home; else it is the directory below the agent home, there or not yet."""
    moved = daemon.home / "moved"
    moved.mkdir()
    async with connect(daemon.target) as sandbox:
        home = await sandbox.resolve_home("CLAUDE_CONFIG_DIR", ".claude")
        assert (home.path, home.exists) == (PurePosixPath(daemon.home / ".claude"), False)
        for variables, path in (({"CLAUDE_CONFIG_DIR": str(moved)}, moved), ({"CLAUDE_CONFIG_DIR": ""}, None)):
            home = await sandbox.resolve_home("CLAUDE_CONFIG_DIR", ".claude", variables=variables)
            assert (home.path, home.exists) == (PurePosixPath(path or daemon.home / ".claude"), path is not None)
        assert (await sandbox.resolve_home(None, "")).path == PurePosixPath(daemon.home)


async def test_home_that_is_a_link_is_followed_only_when_asked(daemon: RunningDaemon) -> None:
    """A CLI home that is a link is refused, or resolved when the caller accepts that."""
    (daemon.home / "real").mkdir()
    (daemon.home / ".claude").symlink_to("real")
    async with connect(daemon.target) as sandbox:
        with pytest.raises(OutpostError) as caught:
            await sandbox.resolve_home(None, ".claude")
        assert (caught.value.code, caught.value.reason) == ("session", "root_symlink")
        home = await sandbox.resolve_home(None, ".claude", follow_root_link=True)
    assert (home.path, home.exists) == (PurePosixPath(daemon.home / "real"), True)


async def test_only_a_private_daemon_is_local(daemon: RunningDaemon, tmp_path: Path) -> None:
    """A sandbox knows whether its files are this machine's by how it was connected, not by where its socket is."""
    (tmp_path / "other").mkdir()
    async with connect(daemon.target) as remote, connect(f"local:{tmp_path / 'other'}") as local:
        assert (remote.is_local, local.is_local) == (False, True)


async def test_process_that_has_a_conversation_open_is_told(daemon: RunningDaemon) -> None:
    """A sign with a running process in its name is told by path and process; one of another content is not."""
    home = PurePosixPath(daemon.home / ".claude")
    signs = daemon.home / ".claude" / "sessions"
    signs.mkdir(parents=True)
    (signs / f"{os.getpid()}.json").write_bytes(b'{"sessionId":"S1"}')
    (signs / "notes.txt").write_bytes(b'{"sessionId":"S1"}')
    pattern = r"^(?P<pid>\d+)[.]json$"
    async with connect(daemon.target) as sandbox:
        (holder,) = await sandbox.transcripts.find_holders(home, [LockSign("sessions", pattern, b'"S1"')])
        assert (holder.path, holder.pid) == (home / "sessions" / f"{os.getpid()}.json", os.getpid())
        assert not await sandbox.transcripts.find_holders(home, [LockSign("sessions", pattern, b'"S2"')])


def source(path: str, content: bytes, **options: Any) -> TranscriptSource:
    """Return a file in memory."""
    return TranscriptSource(PurePosixPath(path), lambda: iter([content]), **options)


async def restore(sandbox: Sandbox, home: Path, files: dict[str, bytes], **options: Any) -> RestoredTranscript:
    """Restore files in memory as the conversation S1."""
    sources = [source(path, content) for path, content in files.items()]
    return await sandbox.transcripts.restore(PurePosixPath(home), "claude", "S1", sources, **options)


OLD = {"p/S1/a.json": b"old a", "p/S1.jsonl": b"old"}
NEW = {"p/S1/b.json": bytes(3 * MIB), "p/S1/a.json": b"old a", "p/S1.jsonl": b"new\n"}


async def test_restore_is_set_aside_listed_undone_and_pruned(daemon: RunningDaemon) -> None:
    """What a restore replaced and added is told; an undo brings the old files back, and an undo of it the new ones."""
    home = daemon.home / ".claude"
    main = PurePosixPath("p/S1.jsonl")
    async with connect(daemon.target) as sandbox:
        first = await restore(sandbox, home, OLD)
        assert (first.recovery, first.replaced, set(first.added)) == ("", (), set(map(PurePosixPath, OLD)))
        assert (await restore(sandbox, home, OLD)).unchanged
        second = await restore(sandbox, home, NEW, full_durability=False, expected_bytes=4 * MIB)
        assert (second.replaced, second.added) == ((main,), (PurePosixPath("p/S1/b.json"),))
        assert (second.files_count, second.bytes_count) == (3, 3 * MIB + 9)
        assert {path: (home / path).read_bytes() for path in NEW} == NEW
        assert (home / main).stat().st_mode & 0o777 == 0o600

        transcripts = sandbox.transcripts
        (item,) = [item async for item in transcripts.list_recovery(PurePosixPath(home), "claude")]
        assert (item.name, item.conversation_id) == (second.recovery, "S1")
        assert set(item.files) == {main, PurePosixPath("p/S1/b.json")}
        undone = await transcripts.undo_restore(PurePosixPath(home), "claude", "S1")
        assert (undone.restored, undone.removed) == ((main,), (PurePosixPath("p/S1/b.json"),))
        assert {path: (home / path).read_bytes() for path in OLD} == OLD
        assert not (home / "p/S1/b.json").exists()
        again = await transcripts.undo_restore(PurePosixPath(home), "claude", "S1", undone.recovery)
        assert {path: (home / path).read_bytes() for path in NEW} == NEW
        pruned = await transcripts.prune_recovery(PurePosixPath(home), "claude", keep_count=0)
        assert pruned == (again.recovery,)
        assert [item async for item in transcripts.list_recovery(PurePosixPath(home), "claude", "S1")] == []
        with pytest.raises(SessionError) as caught:
            await transcripts.undo_restore(PurePosixPath(home), "claude", "S1")
        assert caught.value.reason == "not_found"


async def test_lines_are_added_to_a_shared_file(daemon: RunningDaemon) -> None:
    """Of lines that are to be appended the file gets those that it lacks."""
    home = daemon.home / ".codex"
    home.mkdir()
    (home / "index.jsonl").write_bytes(b"one\ntwo\n")
    async with connect(daemon.target) as sandbox:
        sources = [source("index.jsonl", b"two\nthree\n", append_lines=True), source("S1.jsonl", b"{}\n")]
        await sandbox.transcripts.restore(PurePosixPath(home), "codex", "S1", sources)
    assert (home / "index.jsonl").read_bytes() == b"one\ntwo\nthree\n"


async def test_open_conversation_is_replaced_only_by_force(daemon: RunningDaemon) -> None:
    """A running process that shows a sign is in the way, also when a lot is being sent; force goes on."""
    home = daemon.home / ".claude"
    (home / "sessions").mkdir(parents=True)
    (home / "sessions" / f"{os.getpid()}.json").write_bytes(b"S1")
    locks = [LockSign("sessions", r"^(?P<pid>\d+)[.]json$", b"S1")]
    async with connect(daemon.target) as sandbox:
        with pytest.raises(ConflictError) as caught:
            await restore(sandbox, home, {"big": bytes(20 * MIB), "p/S1.jsonl": b"x"}, locks=locks)
        assert caught.value.reason == "in_use"
        assert not (home / "p").exists()
        assert (await restore(sandbox, home, OLD, locks=locks, force=True)).added


@pytest.mark.parametrize("where", ["source", "before_commit", "cancel"])
async def test_restore_that_does_not_commit_leaves_nothing(tmp_path: Path, where: str) -> None:
    """A failure of the caller, and a cancel, at any time before the commit leave the old files and nothing staged."""
    home = tmp_path / "home" / ".claude"
    is_sent, may_go_on = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        yield bytes(5 * MIB)
        if where == "source":
            raise RuntimeError(where)

    def before_commit() -> None:
        is_sent.set()
        if where == "before_commit":
            raise RuntimeError(where)
        assert may_go_on.wait(20)

    with running_daemon(tmp_path) as running:
        async with connect(running.target) as sandbox:
            await restore(sandbox, home, OLD)
            sources = [source("p/S1/a.json", b"new"), TranscriptSource(PurePosixPath("p/S1.jsonl"), pieces)]
            call = sandbox.transcripts.restore(
                PurePosixPath(home), "claude", "S1", sources, before_commit=before_commit
            )
            if where == "cancel":
                task = asyncio.create_task(call)
                await asyncio.to_thread(is_sent.wait, 20)
                task.cancel()
                may_go_on.set()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                with pytest.raises(RuntimeError, match=where):
                    await call
    # The daemon has ended, so what it does about a call that ended is done.
    assert (files_of(home), staged(home)) == (OLD, [])


async def test_files_are_followed_while_they_grow(daemon: RunningDaemon) -> None:
    """What is held is not sent again; whole lines come as they are appended, new files too, and digests fit."""
    home = daemon.home / ".claude"
    (home / "p").mkdir(parents=True)
    main = home / "p" / "S1.jsonl"
    main.write_bytes(b"one\ntwo\nhal")
    held = FollowHeld(PurePosixPath("p/S1.jsonl"), [(4, hashlib.sha256(b"one\n").digest())])
    patterns = [
        FollowPattern(PurePosixPath("p"), "*.jsonl", whole_lines=True),
        FollowPattern(PurePosixPath("tasks/S1"), "*", whole_lines=False),
    ]
    arrived = {PurePosixPath("p/S1.jsonl"): bytearray(b"one\n")}
    paths: dict[int, PurePosixPath] = {}
    offsets: dict[int, int] = {}
    async with asyncio.timeout(30), connect(daemon.target) as sandbox:
        parts = sandbox.transcripts.follow(PurePosixPath(home), held=[held], patterns=patterns, interval_seconds=0.05)
        async with aclosing(parts):

            async def until_mark(path: str, content: bytes) -> None:
                async for part in parts:
                    if isinstance(part, FollowBegin):
                        paths[part.number], offsets[part.number] = part.path, part.offset
                        del arrived.setdefault(part.path, bytearray())[part.offset :]
                    elif isinstance(part, FollowData):
                        arrived[paths[part.number]] += part.data
                    else:
                        so_far = arrived[paths[part.number]]
                        sent = so_far[offsets[part.number] :]
                        assert (part.size, part.sha256) == (len(so_far), hashlib.sha256(sent).digest())
                        if paths[part.number] == PurePosixPath(path) and so_far == content:
                            return

            await until_mark("p/S1.jsonl", b"one\ntwo\n")
            assert paths == {1: PurePosixPath("p/S1.jsonl")}
            with main.open("ab") as file:
                file.write(b"f\n")
            await until_mark("p/S1.jsonl", b"one\ntwo\nhalf\n")
            (home / "tasks" / "S1").mkdir(parents=True)
            (home / "tasks" / "S1" / "1.json").write_bytes(b"{}")
            await until_mark("tasks/S1/1.json", b"{}")
            main.write_bytes(b"other\n")
            await until_mark("p/S1.jsonl", b"other\n")


async def test_follow_ends_with_its_daemon(tmp_path: Path) -> None:
    """A daemon that goes away ends a follow with a failure, as does one that ends the call by itself."""
    async with asyncio.timeout(60):
        with running_daemon(tmp_path) as running:
            (running.home / "p").mkdir()
            (running.home / "p" / "a").write_bytes(b"a")
            async with connect(running.target) as sandbox:
                pattern = FollowPattern(PurePosixPath("p"), "*", whole_lines=False)
                parts = sandbox.transcripts.follow(PurePosixPath(running.home), held=[], patterns=[pattern])
                async with aclosing(parts):
                    assert isinstance(await anext(parts), FollowBegin)
                    running.process.terminate()
                    with pytest.raises(UnavailableError):
                        _ = [part async for part in parts]
            assert await asyncio.to_thread(running.process.wait, END_SECONDS) == 0
