"""Captures of threads that Codex archived, compressed or took out again since the last capture."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents.codex import LAYOUT as CODEX
from host_client.errors import ConflictError, LimitError
from host_client.sandbox.follow import FollowBeat, FollowMark
from host_client.sandbox.transcript import Transcripts
from host_client.session.compression import compressed, decompressed
from host_client.session.transcript_placement import Placement
from host_client.stores import transcript_capture
from support.capture_scene import Scene, reasons, scene
from support.conversation import files_below

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path, PurePosixPath

    from host_client.sandbox.follow import FollowPart
    from host_client.session.transcript_placement import Placed, Placing
    from host_client.stores.contract import ConversationRecord

pytestmark = pytest.mark.anyio

MAIN, CHILD, PARENT = THREADS = [f"01a22be9-6e94-7931-90f0-7b34fd12f65{digit}" for digit in "012"]
EACH = pytest.mark.parametrize("thread_id", THREADS, ids=["main", "sub-agent", "forked from"])
SESSIONS, ARCHIVED = "sessions/2026/11/30", "archived_sessions"
LINE = b'{"type":"event_msg","payload":{}}\n'


def rollout(thread_id: str, folder: str = SESSIONS, suffix: str = "") -> str:
    """Return where Codex keeps a thread."""
    return f".codex/{folder}/rollout-2026-11-30T10-04-08-{thread_id}.jsonl{suffix}"


def told(thread_id: str, **more: object) -> bytes:
    """Return a rollout of a thread in which something was said."""
    meta = {"session_id": thread_id, "id": thread_id, "cwd": "/old", **more}
    said = [{"type": "session_meta", "payload": meta}, {"type": "response_item", "payload": {"cwd": "/old"}}]
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in said)


def fill(it: Scene) -> None:
    """Give the sandbox a thread with a sub-agent, forked from another."""
    base = {"thread_id": PARENT, "end_byte_offset": len(told(PARENT)), "end_ordinal_exclusive": 2}
    (it.sandbox_home / rollout(MAIN)).parent.mkdir(parents=True)
    (it.sandbox_home / rollout(MAIN)).write_bytes(told(MAIN, history_base=base))
    (it.sandbox_home / rollout(CHILD)).write_bytes(told(CHILD, session_id=MAIN))
    (it.sandbox_home / rollout(PARENT)).write_bytes(told(PARENT))


def append(it: Scene, path: str) -> None:
    """Let the CLI write a line."""
    with (it.sandbox_home / path).open("ab") as file:
        file.write(LINE)


def move(home: Path, old: str, new: str) -> None:
    """Move a rollout, packed or unpacked where the new name says so."""
    data = (home / old).read_bytes()
    if old.endswith(".zst"):
        data = b"".join(decompressed([data]))
    (home / old).unlink()
    (home / new).parent.mkdir(exist_ok=True)
    (home / new).write_bytes(b"".join(compressed([data])) if new.endswith(".zst") else data)


def copies(it: Scene, thread_id: str) -> list[str]:
    """Return where the host has a thread."""
    return [str(path.relative_to(it.home)) for path in (it.home / ".codex").rglob(f"*{thread_id}*")]


def content(it: Scene, thread_id: str) -> bytes:
    """Return the host's only copy of a thread, unpacked."""
    (path,) = copies(it, thread_id)
    data = (it.home / path).read_bytes()
    return b"".join(decompressed([data])) if path.endswith(".zst") else data


def set_aside(it: Scene, conversation_id: str = MAIN) -> dict[str, bytes]:
    """Return what was set aside on the host, by the paths below the CLI home."""
    found: dict[str, bytes] = {}
    for entry in (it.home / ".outpost/recovery/codex").glob(f"{conversation_id}-*"):
        found |= files_below(entry)
    return found


async def capture(it: Scene, conversation_id: str = MAIN) -> ConversationRecord:
    """Capture; the record must be what locating finds, and the number of a fork must fit."""
    record = await it.store.capture(conversation_id, it.context)
    located = await it.store.locate(conversation_id, it.context)
    assert (located.digest, located.files_count) == (record.digest, record.files_count)
    base = json.loads(content(it, MAIN).splitlines()[0])["payload"]["history_base"]
    said = content(it, PARENT).splitlines(keepends=True)[: base["end_ordinal_exclusive"]]
    assert base["end_byte_offset"] == len(b"".join(said))
    return record


@EACH
async def test_thread_that_moved_in_the_sandbox_moves_on_the_host(tmp_path: Path, thread_id: str) -> None:
    """Archived, compressed, both at once undone: the host has one copy, the new one, and the old one set aside."""
    async with scene(tmp_path, CODEX) as it:
        fill(it)
        await capture(it)
        old = rollout(thread_id)
        for new in (rollout(thread_id, ARCHIVED), rollout(thread_id, ARCHIVED, ".zst"), rollout(thread_id)):
            before = (it.home / old).read_bytes()
            move(it.sandbox_home, old, new)
            record = await capture(it)
            assert copies(it, thread_id) == [new]
            assert set_aside(it)[old.removeprefix(".codex/")] == before
            (notice,) = (one for one in record.notices if one.reason == "replaced_on_host")
            assert all(path.removeprefix(".codex/") in notice.message for path in (old, new))
            assert notice.path.endswith(old.removeprefix(".codex"))
            assert not record.unchanged
            again = await capture(it)
            assert (again.unchanged, again.received_bytes, reasons(again)) == (True, again.received_bytes, [])
            old = new
        assert len(list((it.home / ".outpost/recovery/codex").iterdir())) == 3


async def test_all_threads_that_moved_are_moved_together(tmp_path: Path) -> None:
    """What a capture left of each is set aside in one entry; what is not touched by then is believed by its content."""
    async with scene(tmp_path, CODEX) as it:
        fill(it)
        await capture(it)
        for thread_id in THREADS:
            os.utime(it.home / rollout(thread_id), (5, 5))
            move(it.sandbox_home, rollout(thread_id), rollout(thread_id, ARCHIVED))
        record = await capture(it)
        assert reasons(record) == ["full_capture", *["replaced_on_host"] * 3]
        assert {path: copies(it, path) for path in THREADS} == {path: [rollout(path, ARCHIVED)] for path in THREADS}
        (entry,) = (it.home / ".outpost/recovery/codex").iterdir()
        assert len(files_below(entry)) == 3


@EACH
@pytest.mark.parametrize("way", ["gone on with", "changed", "never captured"])
async def test_copy_that_no_capture_left_is_never_touched(tmp_path: Path, thread_id: str, way: str) -> None:
    """A copy in another place that the user went on with, or made, is a refusal, and nothing at all is changed."""
    async with scene(tmp_path, CODEX) as it:
        fill(it)
        await capture(it)
        theirs = it.home / rollout(thread_id)
        if way == "never captured":
            (it.home / f".outpost/conversations/codex/{MAIN}.json").unlink()
        else:
            data = theirs.read_bytes()
            theirs.write_bytes(data + LINE if way == "gone on with" else data[::-1])
        for one in THREADS:
            move(it.sandbox_home, rollout(one), rollout(one, ARCHIVED if one == thread_id else "sessions/x"))
        before = files_below(it.home)
        with pytest.raises(ConflictError) as caught:
            await it.store.capture(MAIN, it.context)
        assert caught.value.reason == "other_bucket"
        told_of = {offender.path for offender in caught.value.offenders}
        assert str(theirs) in told_of
        assert len(told_of) == (3 if way == "never captured" else 1)
        assert files_below(it.home) == before


async def test_what_the_capture_of_a_parent_left_is_known(tmp_path: Path) -> None:
    """A parent that was last captured by itself is ours as well when it is archived and its fork is captured."""
    async with scene(tmp_path, CODEX) as it:
        fill(it)
        await capture(it)
        append(it, rollout(PARENT))
        await capture(it, PARENT)
        move(it.sandbox_home, rollout(PARENT), rollout(PARENT, ARCHIVED))
        record = await capture(it)
        assert "replaced_on_host" in reasons(record)
        assert copies(it, PARENT) == [rollout(PARENT, ARCHIVED)]
        assert (it.home / rollout(PARENT, ARCHIVED)).read_bytes().endswith(LINE)


@EACH
async def test_failure_brings_the_old_form_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread_id: str
) -> None:
    """When a later step fails, the copy is where it was, nothing is left aside, and the next capture moves it."""
    async with scene(tmp_path, CODEX) as it:
        fill(it)
        await capture(it)
        before = files_below(it.home)
        move(it.sandbox_home, rollout(thread_id), rollout(thread_id, ARCHIVED))

        def full(*_: object, **__: object) -> None:
            assert copies(it, thread_id) == [rollout(thread_id, ARCHIVED)]
            raise LimitError("disk_full", "no space is left")

        with monkeypatch.context() as patch:
            patch.setattr(transcript_capture, "save", full)
            with pytest.raises(LimitError):
                await it.store.capture(MAIN, it.context)
        assert files_below(it.home) == before
        await capture(it)
        assert copies(it, thread_id) == [rollout(thread_id, ARCHIVED)]


async def test_form_whose_successor_cannot_be_captured_stays(tmp_path: Path) -> None:
    """A sub-agent that was compressed and is damaged is not captured; what the host has of it stays in its place."""
    async with scene(tmp_path, CODEX) as it:
        fill(it)
        child = it.sandbox_home / rollout(CHILD)
        child.write_bytes(child.read_bytes() + b"".join(LINE + os.urandom(3000).hex().encode() for _ in range(100)))
        await capture(it)
        before = (it.home / rollout(CHILD)).read_bytes()
        move(it.sandbox_home, rollout(CHILD), packed := rollout(CHILD, suffix=".zst"))
        os.truncate(it.sandbox_home / packed, (it.sandbox_home / packed).stat().st_size - 1)
        record = await capture(it)
        assert reasons(record) == ["companion_failed"]
        assert copies(it, CHILD) == [rollout(CHILD)]
        assert (it.home / rollout(CHILD)).read_bytes() == before
        assert set_aside(it) == {}


async def test_capture_after_one_that_was_killed_between_the_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the old form set aside and no new one yet, the next capture brings it, and has nothing to refuse."""
    async with scene(tmp_path, CODEX) as it:
        fill(it)
        await capture(it)
        before = (it.home / rollout(MAIN)).read_bytes()
        move(it.sandbox_home, rollout(MAIN), rollout(MAIN, ARCHIVED))
        real = Placement.place

        def place(self: Placement, placing: Placing) -> Placed:
            if placing.path.name in rollout(MAIN):
                raise LimitError("disk_full", "as if it were killed")
            return real(self, placing)

        with monkeypatch.context() as patch:
            patch.setattr(Placement, "place", place)
            patch.setattr(Placement, "__exit__", lambda *_: None)  # who is killed undoes nothing
            with pytest.raises(LimitError):
                await it.store.capture(MAIN, it.context)
        assert copies(it, MAIN) == []
        assert set_aside(it) == {rollout(MAIN).removeprefix(".codex/"): before}
        assert reasons(await capture(it)) == ["full_capture"]
        assert copies(it, MAIN) == [rollout(MAIN, ARCHIVED)]


async def test_follow_goes_on_with_a_thread_that_was_archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a follow has added since the last capture is ours, too: the copy moves, and lines come to the new one."""
    real = Transcripts.follow

    async def follow(self: Transcripts, home: PurePosixPath, **options: Any) -> AsyncGenerator[FollowPart, None]:
        async for part in real(self, home, **options):
            yield part
            if isinstance(part, FollowMark):
                yield FollowBeat()  # as after a while of silence: it is looked whether the transcript is still there

    monkeypatch.setattr(Transcripts, "follow", follow)
    old, new, child = rollout(MAIN), rollout(MAIN, ARCHIVED), rollout(CHILD)
    async with scene(tmp_path, CODEX) as it:
        fill(it)
        (it.sandbox_home / new).parent.mkdir()
        async with asyncio.timeout(60), aclosing(it.store.follow(MAIN, it.context, interval_seconds=0.02)) as updates:
            await anext(updates)
            append(it, old)
            assert (await anext(updates)).lines_count == 1
            (it.sandbox_home / old).rename(it.sandbox_home / new)
            append(it, child)
            while (record := (await anext(updates)).record) is None:
                pass
            assert reasons(record) == ["full_capture", "replaced_on_host"]
            assert copies(it, MAIN) == [new]
            assert content(it, MAIN).endswith(LINE)
            append(it, new)
            while (await anext(updates)).path != it.home / new:
                pass
        assert (await capture(it)).unchanged
