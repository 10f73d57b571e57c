"""The capture of transcript conversations from real daemons: whole, what is new, odd, empty."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client.errors import SessionError
from host_client.stores import transcript_fetch
from support.capture_scene import SESSIONS, STATE, reasons, scene
from support.transcript_format import ID, lines

if TYPE_CHECKING:
    from pathlib import Path

    from host_client.sandbox.progress import Progress

pytestmark = pytest.mark.anyio

BIG = lines(count=30_000)
"""More than one of the pieces in which a daemon sends."""


async def test_only_what_is_new_travels(tmp_path: Path) -> None:
    """A grown transcript sends and writes its new lines, capture after capture; an unchanged one nothing at all."""
    async with scene(tmp_path) as it:
        first = await it.capture(BIG)
        inode = it.copy.stat().st_ino
        assert (first.received_bytes >= len(BIG), first.unchanged, reasons(first)) == (True, False, [])
        assert it.copy.stat().st_mode & 0o777 == 0o600
        for number in range(3):
            new = lines(count=number + 1)
            it.append(new)
            record = await it.capture()
            assert (record.received_bytes, record.unchanged, reasons(record)) == (len(new), False, [])
            assert it.copy.read_bytes() == it.moved()
        unchanged = await it.capture()
        assert (unchanged.received_bytes, unchanged.unchanged, unchanged.digest) == (0, True, record.digest)
        assert it.copy.stat().st_ino == inode
        (it.home / STATE).unlink()
        whole = await it.capture()
        assert (whole.received_bytes > len(BIG), whole.unchanged, whole.digest) == (True, True, record.digest)


@pytest.mark.parametrize("left_bytes", [0, 1, 30, 10_000])
async def test_killed_between_append_and_state(tmp_path: Path, left_bytes: int) -> None:
    """What a killed capture left of its lines is gone on with: only the new lines travel, and none is there twice."""
    async with scene(tmp_path) as it:
        await it.capture(lines(count=100))
        state, size = (it.home / STATE).read_bytes(), it.copy.stat().st_size
        it.append(lines(count=100))
        await it.capture()
        (it.home / STATE).write_bytes(state)
        os.truncate(it.copy, min(size + left_bytes, it.copy.stat().st_size))
        it.append(lines(count=1))
        record = await it.capture()
        assert (record.received_bytes, reasons(record)) == (len(lines(count=100) + lines(count=1)), [])
        assert it.copy.read_bytes() == it.moved()


async def test_rewritten_source_is_captured_whole(tmp_path: Path) -> None:
    """A transcript that no longer begins with what was taken is captured anew, and the result says so."""
    async with scene(tmp_path) as it:
        await it.capture(lines(count=100))
        record = await it.capture(lines(count=50) + b'{"type":"other"}\n' * 1000)
        assert reasons(record) == ["full_capture"]
        assert "does not begin with what was captured before" in record.notices[0].message
        assert it.copy.read_bytes() == it.moved()
        assert not (it.home / ".outpost/recovery").exists(), "what a capture left may go"


async def test_what_the_sandbox_has_lost_is_set_aside(tmp_path: Path) -> None:
    """A transcript that became shorter in the sandbox is captured; the longer copy, the last one, is kept and told."""
    async with scene(tmp_path) as it:
        longer = await it.capture(lines(count=100))
        before = it.copy.read_bytes()
        record = await it.capture(lines(count=3))
        assert reasons(record) == ["full_capture", "replaced_on_host"]
        assert it.copy.read_bytes() == it.moved()
        (aside,) = (it.home / ".outpost/recovery/mycli").glob(f"{ID}-*/{SESSIONS}/{ID}.jsonl")
        assert (aside.read_bytes(), len(before)) == (before, longer.bytes_count)
        assert record.notices[-1].path == str(aside)
        it.append(lines(count=1))
        assert reasons(await it.capture()) == []


@pytest.mark.parametrize("known", [True, False])
async def test_what_the_user_went_on_with_is_set_aside(tmp_path: Path, *, known: bool) -> None:
    """A host's copy that is neither ours nor a beginning of the new content is kept, and the result says where."""
    async with scene(tmp_path) as it:
        await it.capture(lines(count=3))
        with it.copy.open("ab") as file:
            file.write(b'{"type":"user","said":"at home"}\n')
        theirs = it.copy.read_bytes()
        if not known:
            (it.home / STATE).unlink()
        it.append(lines(count=2))
        record = await it.capture()
        assert reasons(record) == [*(["full_capture"] if known else []), "replaced_on_host"]
        (aside,) = (it.home / ".outpost/recovery/mycli").glob(f"{ID}-*/{SESSIONS}/{ID}.jsonl")
        assert aside.read_bytes() == theirs
        assert record.notices[-1].path == str(aside)
        assert it.copy.read_bytes() == it.moved()


async def test_too_many_parts_become_one_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came in as many parts as are kept is captured whole, and says so; the next capture brings its new lines."""
    monkeypatch.setattr(transcript_fetch, "MAX_PARTS_COUNT", 3)
    async with scene(tmp_path) as it:
        await it.capture(lines(count=10))
        told = []
        for _ in range(4):
            it.append(lines(count=1))
            record = await it.capture()
            told.append((record.received_bytes < len(lines(count=10)), reasons(record)))
            assert it.copy.read_bytes() == it.moved()
        assert told == [(True, []), (True, []), (False, ["full_capture"]), (True, [])]
        (state,) = json.loads((it.home / STATE).read_bytes())["files"].values()
        assert len(state["parts"]) == 2


async def test_other_destination_is_captured_whole(tmp_path: Path) -> None:
    """Lines for one repository are not appended to those of another."""
    async with scene(tmp_path) as it:
        await it.capture(lines())
        other = tmp_path / "elsewhere"
        other.mkdir()
        record = await it.capture(repository=other)
        assert reasons(record) == ["full_capture"]
        assert str(other).encode() in it.copy.read_bytes()


ODD: dict[str, tuple[bytes, list[tuple[str, int | None]]]] = {
    "torn last line": (lines() + b'{"type":"user","cwd":"/o', [("torn_tail", len(lines()))]),
    "last line without a newline": (lines().rstrip(b"\n"), []),
    "NUL bytes in the middle": (lines() + bytes(4096) + b"\n" + lines(), [("nul_bytes", len(lines()))]),
    "NUL bytes at the end": (lines() + bytes(1728), [("torn_tail", len(lines())), ("nul_bytes", len(lines()))]),
    "byte order mark": (b"\xef\xbb\xbf" + lines(), []),
    "invalid UTF-8": (lines() + b'{"type":"user","text":"\xff\xed\xa0\x80"}\n', []),
    "lone surrogate": (lines() + b'{"type":"user","text":"\\ud800"}\n', []),
    "a line of 3 MB": (lines() + b'{"type":"user","text":"%b"}\n' % (b"x" * 3_000_000) + lines(), []),
    "odd spelling": (lines() + b'{ "n" : 1e2 , "type":"user" , "\\u0063wd":"/old" , "s":"\\u002f" }  \n', []),
    "first line is no message": (b'{"type":"summary"}\n' + lines(), []),
    "dangling parents": (lines() + b'{"type":"user","parentUuid":"gone","leafUuid":"gone"}\n', []),
    "blank lines and CRLF": (b"\r\n\n" + lines().replace(b"\n", b"\r\n"), []),
    "line separators": (lines() + '{"type":"user","text":"\u2028"}\n'.encode(), []),
    "no working directory": (b'{"type":"user"}\n', [("no_origin", None)]),
}


@pytest.mark.parametrize("name", ODD)
async def test_odd_transcripts_arrive_byte_for_byte(tmp_path: Path, name: str) -> None:
    """Whatever a transcript has, only values of `cwd` change; what is unusual is told with its place on the host."""
    content, told = ODD[name]
    async with scene(tmp_path) as it:
        record = await it.capture(content)
        expected = it.moved()
        assert it.copy.read_bytes() == expected
        grown = len(it.moved(lines())) - len(lines())
        places = [(reason, None if at is None else at + grown) for reason, at in told]
        assert [(notice.reason, notice.offset) for notice in record.notices] == places
        again = await it.capture()
        assert (again.unchanged, again.notices) == (True, record.notices)
        it.append(b"\n" + lines(count=1))
        await it.capture()
        assert it.copy.read_bytes().startswith(expected)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"garbage\n"])
async def test_transcript_without_a_record_is_refused_unless_allowed(tmp_path: Path, content: bytes) -> None:
    """Nothing said is no success; by explicit choice it is captured as it is."""
    async with scene(tmp_path) as it:
        it.source.write_bytes(content)
        with pytest.raises(SessionError) as caught:
            await it.store.capture(ID, it.context)
        assert caught.value.reason == "empty"
        assert not it.copy.exists()
        await it.capture(allow_empty=True)
        assert it.copy.read_bytes() == content


async def test_conversation_that_lies_there_already_is_not_touched(tmp_path: Path) -> None:
    """Capturing this host's own conversation to the place where it lies reads it and changes nothing."""
    async with scene(tmp_path) as it:
        it.source.write_bytes(lines())
        context = replace(it.context, conversation_home=it.sandbox_home)
        record = await it.store.capture(ID, context)
        assert (record.unchanged, record.path, record.received_bytes) == (True, it.source, 0)
        assert it.source.read_bytes() == lines()
        assert (await it.store.locate(ID, context)).digest == record.digest


async def test_progress_grows_and_ends_complete(tmp_path: Path) -> None:
    """Reports never go back, and the last one says that all is done."""
    told: list[Progress] = []
    async with scene(tmp_path) as it:
        await it.capture(BIG, progress=told.append)
        await it.capture(progress=told.append)
    assert [progress.is_complete for progress in told][-1]
    assert {(progress.files_count, progress.bytes_count) for progress in told if progress.is_complete} == {
        (1, len(BIG))
    }


async def test_copy_that_was_written_just_now_is_believed_later(tmp_path: Path) -> None:
    """A file that was right already, but so new that a write might not show, is not believed by its times."""
    async with scene(tmp_path) as it:
        it.copy.parent.mkdir(parents=True)
        it.source.write_bytes(lines())
        it.copy.write_bytes(it.moved())
        assert (await it.capture()).unchanged
        state = json.loads((it.home / STATE).read_bytes())
        assert [file["identity"] for file in state["files"].values()] == [[]]
        hour_ago_seconds = time.time() - 3600
        os.utime(it.copy, (hour_ago_seconds, hour_ago_seconds))
        assert (await it.capture()).unchanged
        state = json.loads((it.home / STATE).read_bytes())
        assert [file["identity"][1] for file in state["files"].values()] == [it.copy.stat().st_ino]
