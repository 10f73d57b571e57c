"""What a follow leaves to captures, and how it goes on after them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from host_client.errors import SessionError
from host_client.sandbox.follow import FollowBeat, FollowMark
from host_client.sandbox.transcript import Transcripts
from host_client.session import transcript_growth
from host_client.session.compression import compressed, decompressed
from host_client.stores import transcript_follow
from host_client.stores.layout import Conversation, Related, Skipped
from support.follow_scene import BEGUN, SESSIONS, bucketed, reasons, record_streams, said, scene
from support.transcript_format import ID, WITH_SIDECARS, lines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path, PurePosixPath

    from host_client.sandbox.follow import FollowPart

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("change", ["truncate", "rewrite", "replace", "empty"])
async def test_other_content_is_captured_and_followed_again(tmp_path: Path, change: str) -> None:
    """Truncated, written anew in place, replaced by another file, or emptied first: the copy is as the transcript."""
    async with scene(tmp_path) as it, it.following() as updates:
        it.append(said(1))
        await it.until(updates)
        if change == "truncate":
            os.truncate(it.source, len(lines(count=1)))
        elif change == "replace":
            (it.source.parent / "new").write_bytes(b'{"other":1}\n' + BEGUN)
            (it.source.parent / "new").rename(it.source)
        elif change == "empty":
            it.write(b"")
            it.append(b'{"other":1}\n' + BEGUN)
        else:
            it.write(b'{"other":1}\n' + BEGUN)
        await it.until(updates)
        it.append(said(2))
        (told,) = await it.until(updates)
        assert told.record is None
        (again,) = [update.record for update in it.updates[1:] if update.record]
        assert [notice.reason for notice in again.notices] == ["full_capture", "replaced_on_host"]


async def test_children_are_taken_up_and_followed(tmp_path: Path) -> None:
    """A child that was there grows, and so does one that comes later."""
    async with scene(tmp_path) as it:
        it.child.mkdir(parents=True)
        old, new = it.child / "agent-a.jsonl", it.child / "deep/agent-b.jsonl"
        old.write_bytes(said(1))

        def copied(child: Path) -> bytes:
            path = it.copy.parent / child.relative_to(it.source.parent)
            return path.read_bytes() if path.exists() else b""

        async with it.following() as updates:
            with old.open("ab") as file:
                file.write(said(2))
            (told,) = await it.until(updates, lambda: copied(old) == it.moved(said(1) + said(2)))
            assert told.path == it.copy.parent / old.relative_to(it.source.parent)
            new.parent.mkdir()
            new.write_bytes(said(3))
            (told,) = await it.until(updates, lambda: copied(new) == it.moved(said(3)))
            assert told.record is not None
            assert told.record.files_count == 3
            with new.open("ab") as file:
                file.write(said(4))
            (told,) = await it.until(updates, lambda: copied(new) == it.moved(said(3) + said(4)))
            assert told.record is None
        assert (await it.capture()).unchanged


async def test_other_file_of_that_name_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy below the transcript's folder costs one capture, which names it, and no more, whatever it grows by."""
    streams = record_streams(monkeypatch)
    async with bucketed(tmp_path) as it:
        other = it.source.parent / "deep" / it.source.name
        other.parent.mkdir()
        async with it.following() as updates:
            other.write_bytes(said(1))
            for number in range(10):
                it.append(said(number))
                await it.until(updates)
                with other.open("ab") as file:
                    file.write(said(number))
        assert len(streams) == 2
        assert reasons(it) in ([[]], [[], ["other_copy"]])


async def test_host_file_that_somebody_changed_is_looked_at(tmp_path: Path) -> None:
    """What the user went on with is set aside by a capture; a copy that was only touched goes on; then lines come."""
    async with scene(tmp_path) as it, it.following() as updates:
        os.utime(it.copy)
        it.append(said(1))
        told = await it.until(updates)
        assert [update.record is None for update in told] == [False]
        with it.copy.open("ab") as file:
            file.write(b'{"type":"user","said":"at home"}\n')
        it.append(said(2))
        await it.until(updates)
        assert reasons(it)[1:] == [[], ["full_capture", "replaced_on_host"]]
        it.copy.unlink()
        it.append(said(3))
        await it.until(updates)
        it.append(said(4))
        assert [update.record for update in await it.until(updates)] == [None]


async def test_captures_at_the_same_time(tmp_path: Path) -> None:
    """Whoever is first: no line is there twice, none is missing, and a capture that came too late says so."""
    async with scene(tmp_path) as it, it.following() as updates:
        reached: list[str] = []
        is_over = False

        async def go_on() -> None:
            await it.until(updates, lambda: is_over and it.is_current)

        async with asyncio.TaskGroup() as group:
            group.create_task(go_on())
            for number in range(20):
                it.append(said(number))
                try:
                    await it.store.capture(ID, it.context)
                except SessionError as error:
                    reached.append(error.reason)
            is_over = True
            it.append(said(20))
        assert set(reached) <= {"changed"}
        assert not (it.host / ".outpost/recovery").exists()


async def test_wrong_mark_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines whose digest is another are not written; a capture brings what is there."""
    real, added = Transcripts.follow, []

    async def follow(self: Transcripts, home: PurePosixPath, **options: Any) -> AsyncGenerator[FollowPart, None]:
        async for part in real(self, home, **options):
            yield replace(part, sha256=bytes(32)) if isinstance(part, FollowMark) and len(added) < 2 else part

    append = transcript_growth.extend

    def extend(*args: Any, **options: Any) -> None:
        added.append(args)
        append(*args, **options)

    monkeypatch.setattr(Transcripts, "follow", follow)
    monkeypatch.setattr(transcript_growth, "extend", extend)
    async with scene(tmp_path) as it, it.following() as updates:
        it.append(said(1))
        told = await it.until(updates)
        assert [update.record is None for update in told] == [False]
        assert added == []


async def test_much_at_once_is_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a batch may hold in memory goes by way of the disk, and lines come again afterwards."""
    monkeypatch.setattr(transcript_follow, "MAX_BATCH_BYTES", 1000)
    async with scene(tmp_path) as it, it.following() as updates:
        it.append(lines(count=100))
        told = await it.until(updates)
        assert [update.record is None for update in told] == [False]
        it.append(said(1))
        assert [update.record for update in await it.until(updates)] == [None]


async def test_conversation_without_a_directory_is_captured_each_time(tmp_path: Path) -> None:
    """As long as no line names one, a first one may change what is there: then lines are appended."""
    async with scene(tmp_path, content=b'{"type":"mode"}\n') as it, it.following() as updates:
        it.append(b'{"type":"user"}\n')
        assert all(update.record for update in await it.until(updates))
        it.append(said(1))
        assert all(update.record for update in await it.until(updates))
        it.append(said(2))
        assert [update.record for update in await it.until(updates)] == [None]


async def test_compressed_transcript_is_captured_when_it_changes(tmp_path: Path) -> None:
    """Nothing can be appended to what is packed."""
    layout = replace(
        WITH_SIDECARS,
        pattern=lambda wanted: f"{wanted}.jsonl*",
        conversation_id=lambda path: ID if path.name == f"{ID}.jsonl.zst" else None,
        matches=lambda path, wanted: path.name == f"{wanted}.jsonl.zst",
        capture_path=lambda wanted, _repository, home, _original: home / SESSIONS / f"{wanted}.jsonl.zst",
    )
    async with scene(tmp_path, layout) as it:
        packed = it.source.with_name(f"{ID}.jsonl.zst")
        packed.write_bytes(b"".join(compressed([BEGUN])))
        it.source.unlink()
        async with it.following() as updates:
            with packed.open("ab") as file:
                file.write(b"".join(compressed([said(1)])))
            told = await anext(updates)
        assert told.record is not None
        assert not told.record.unchanged
        copy = it.copy.with_name(packed.name).read_bytes()
        assert b"".join(decompressed([copy])) == it.moved(BEGUN + said(1))


async def test_other_files_follow_a_growing_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no transcript is captured when it is new or changed, looked at no more often than it should be."""
    monkeypatch.setattr(transcript_follow, "COMPANIONS_SECONDS", 0.0)
    monkeypatch.setattr(transcript_follow, "_COMPANIONS_SHARE", 1e9)
    looks: list[PurePosixPath] = []

    async def related(conversation: Conversation) -> Sequence[Related | Skipped]:
        looks.append(conversation.transcript)
        return [
            Related(path, beside=True)
            for path in await conversation.files.find(conversation.transcript.parent / "results")
        ]

    async with scene(tmp_path, replace(WITH_SIDECARS, related=related)) as it, it.following() as updates:
        result = it.source.parent / "results/1.txt"
        result.parent.mkdir()
        copied = it.copy.parent / "results/1.txt"
        for number, content in enumerate((b"one", b"other")):
            result.write_bytes(content)
            it.append(said(number))
            await it.until(updates, lambda content=content: copied.exists() and copied.read_bytes() == content)
            assert it.is_current
        monkeypatch.setattr(transcript_follow, "COMPANIONS_SECONDS", 1e9)
        it.append(said(2))
        await it.until(updates)
        looks.clear()
        for number in range(3):
            it.append(said(number))
            await it.until(updates)
        assert len(looks) <= 2, "one look that was due, and the capture that it may have led to"


async def test_conversation_that_is_gone_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When all is quiet it is looked whether the transcript is still there; one that stays away is a failure."""
    real = Transcripts.follow
    gone = False

    async def follow(self: Transcripts, home: PurePosixPath, **options: Any) -> AsyncGenerator[FollowPart, None]:
        async for part in real(self, home, **options):
            yield part
            if gone and isinstance(part, FollowMark):
                yield FollowBeat()

    monkeypatch.setattr(Transcripts, "follow", follow)
    async with scene(tmp_path) as it, it.following(patience_seconds=0.0) as updates:
        it.append(said(1))
        await it.until(updates)
        gone = True
        it.child.mkdir(parents=True)
        (it.child / "agent-a.jsonl").write_bytes(said(1))
        it.source.unlink()
        with pytest.raises(SessionError) as caught:
            await it.until(updates, lambda: False)
        assert caught.value.reason == "not_found"
