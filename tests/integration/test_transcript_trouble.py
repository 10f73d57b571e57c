"""Captures of transcripts that grow, shrink, are in use or not to be found, and captures that fail."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from host_client.errors import LimitError, SessionError
from host_client.session import transcript_placement
from host_client.stores import transcript_capture
from host_client.stores.layout import Related
from sandbox_api.limits import Limits
from sandbox_api.lock import LockSign
from support.capture_scene import SESSIONS, act_once, reasons, scene, with_companions
from support.conversation import files_below
from support.transcript_format import ID, IN_BUCKETS, LAYOUT, lines

pytestmark = pytest.mark.anyio

HUGE = lines() + b'{"type":"user","text":"%b"}\n' % (b"x" * 4000) * 8_000
"""More than a daemon reads before its client has taken the first piece."""


async def test_growing_transcript_ends_at_the_last_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended during the capture, half lines too, is not in it, nor a line that was not whole before."""
    async with scene(tmp_path) as it:
        it.source.write_bytes(HUGE + b'{"type":"user","half":')
        act_once(monkeypatch, lambda: it.append(b'"line"}\n{"another'))
        record = await it.store.capture(ID, it.context)
        assert it.copy.read_bytes() == it.moved(HUGE)
        assert reasons(record) == ["grew"]
        assert (await it.store.locate(ID, it.context)).digest == record.digest
        it.append(b'":1}\n')
        following = await it.capture()
        assert it.copy.read_bytes() == it.moved()
        assert reasons(following) == []
        assert following.received_bytes == len(b'{"type":"user","half":"line"}\n{"another":1}\n')


@pytest.mark.parametrize("retries", [0, 1])
async def test_truncated_transcript_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    """A transcript that is cut while it is read is `changed`, or read again as often as the caller allows."""
    async with scene(tmp_path) as it:
        it.source.write_bytes(HUGE)
        act_once(monkeypatch, lambda: it.source.write_bytes(lines()))
        context = replace(it.context, retries=retries)
        if retries:
            await it.store.capture(ID, context)
            assert it.copy.read_bytes() == it.moved(lines())
        else:
            with pytest.raises(SessionError) as caught:
                await it.store.capture(ID, context)
            assert caught.value.reason == "changed"
            assert not it.copy.exists()


async def test_conversation_in_use_is_captured_up_to_the_last_line(tmp_path: Path) -> None:
    """While the CLI runs, a half line is not taken, and the result names the process; once it has ended it is."""
    layout = replace(LAYOUT, locks=lambda _: [LockSign(".mycli", r"^(?P<pid>\d+)\.lock$")])
    async with scene(tmp_path, layout) as it:
        lock = it.sandbox_home / ".mycli" / f"{os.getpid()}.lock"
        lock.touch()
        record = await it.capture(lines() + b'{"half')
        assert (record.in_use_pid, reasons(record)) == (os.getpid(), ["in_use"])
        assert record.notices[0].path == str(lock)
        assert it.copy.read_bytes() == it.moved(lines())
        lock.unlink()
        record = await it.capture()
        assert (record.in_use_pid, reasons(record)) == (0, ["torn_tail"])
        assert it.copy.read_bytes() == it.moved()


async def test_several_with_one_id_are_refused_with_size_and_time(tmp_path: Path) -> None:
    """Two transcripts of one id are not guessed between; the one of this workspace is taken, and the other named."""
    async with scene(tmp_path, IN_BUCKETS) as it:
        folder = it.sandbox_home / SESSIONS
        for bucket, count in (("one", 10), ("two", 12)):
            (folder / bucket).mkdir()
            (folder / bucket / f"{ID}.jsonl").write_bytes(lines(count=count))
        with pytest.raises(SessionError) as caught:
            await it.store.capture(ID, it.context)
        assert caught.value.reason == "ambiguous"
        for offender, count in zip(caught.value.offenders, (10, 12), strict=True):
            assert offender.problem.startswith(f"{len(lines(count=count))} bytes, changed 20")
        (folder / "two").rename(folder / "workspace")
        record = await it.store.capture(ID, it.context)
        assert record.source == PurePosixPath(folder / "workspace" / f"{ID}.jsonl")
        assert reasons(record) == ["other_copy"]
        assert [item.path for item in record.left_out] == [f"sessions/one/{ID}.jsonl"]


async def test_unknown_conversation_is_told_with_the_place(tmp_path: Path) -> None:
    """Where nothing is, the failure says where was looked, and nothing is made on the host."""
    async with scene(tmp_path) as it:
        with pytest.raises(SessionError) as caught:
            await it.store.capture(ID, it.context)
        assert caught.value.reason == "not_found"
        assert str(it.sandbox_home / SESSIONS) in caught.value.message
        assert list(it.home.iterdir()) == []


async def test_limits_of_the_caller_hold(tmp_path: Path) -> None:
    """More bytes or files than the caller allows are refused, and nothing is placed."""
    async with scene(tmp_path, with_companions(Related(PurePosixPath(".mycli/x")))) as it:
        it.source.write_bytes(lines())
        (it.sandbox_home / ".mycli/x").write_bytes(b"x" * 100)
        for limits, reason in (
            (Limits(max_bytes=len(lines()) - 1), "max_bytes"),
            (Limits(max_bytes=len(it.moved()) + 99), "max_bytes"),
            (Limits(max_files=1), "max_files"),
        ):
            with pytest.raises(LimitError) as caught:
                await it.store.capture(ID, replace(it.context, limits=limits))
            assert caught.value.reason == reason
        assert not it.copy.exists()


async def test_cancelled_capture_leaves_the_host_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel in the middle leaves the copy of before and nothing staged."""
    async with scene(tmp_path) as it:
        await it.capture(lines())
        before = files_below(it.home)
        it.source.write_bytes(HUGE)
        loop = asyncio.get_running_loop()
        capture = asyncio.ensure_future(it.store.capture(ID, it.context))
        act_once(monkeypatch, lambda: loop.call_soon_threadsafe(capture.cancel))
        with pytest.raises(asyncio.CancelledError):
            await capture
        assert files_below(it.home) == before
        assert not list(it.home.glob(".outpost-session-*"))


async def test_failure_while_placing_puts_the_old_files_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last step fails, files that were in place already go back, and so does what was appended."""
    async with scene(tmp_path, with_companions(Related(PurePosixPath(".mycli/x")))) as it:
        (it.sandbox_home / ".mycli/x").write_bytes(b"old")
        await it.capture(lines())
        before = files_below(it.home)
        (it.sandbox_home / ".mycli/x").write_bytes(b"new")
        it.append(lines())

        def full(*_: object, **__: object) -> None:
            raise LimitError("disk_full", "no space is left")

        with monkeypatch.context() as patch:
            patch.setattr(transcript_capture, "save", full)
            with pytest.raises(LimitError):
                await it.store.capture(ID, it.context)
        assert files_below(it.home) == before
        await it.capture()
        assert it.copy.read_bytes() == it.moved()


async def test_host_that_changes_while_placing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that the user goes on with in the very last moment is not appended to."""
    async with scene(tmp_path) as it:
        await it.capture(lines())
        it.append(lines())
        real = transcript_placement.Placement.place

        def place(self: transcript_placement.Placement, placing: transcript_placement.Placing) -> Any:
            with it.copy.open("ab") as file:
                file.write(b"theirs\n")
            return real(self, placing)

        monkeypatch.setattr(transcript_placement.Placement, "place", place)
        with pytest.raises(SessionError) as caught:
            await it.store.capture(ID, it.context)
        assert caught.value.reason == "changed"
        assert it.copy.read_bytes() == it.moved(lines()) + b"theirs\n"
