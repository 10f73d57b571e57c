"""Transcripts kept up to date by a store while they grow in the sandbox of a real daemon."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client.agents.registry import builtin_format
from host_client.errors import ConflictError, LimitError, SessionError
from host_client.sandbox.follow import FollowBegin
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.session.redaction import LiteralRule, Redaction
from host_client.session.transcript_growth import TranscriptGrowth
from host_client.stores.context import ConversationContext
from sandbox_api.limits import Limits
from support.conversation import files_below
from support.follow_scene import BEGUN, bucketed, reasons, record_streams, said, scene
from support.recorded import DATA
from support.transcript_format import ID, lines

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.anyio


async def test_lines_are_added_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one capture every line is appended, relocated; what it leaves is what a capture would have made."""
    streams = record_streams(monkeypatch)
    async with scene(tmp_path) as it:
        async with it.following() as updates:
            first = it.updates[0]
            assert first.record is not None
            assert (first.path, first.size_bytes) == (it.copy, first.record.bytes_count)
            inode = it.copy.stat().st_ino
            it.append(said(1) + said(2))
            (told,) = await it.until(updates)
            added_bytes = len(it.moved(said(1) + said(2)))
            assert (told.path, told.record) == (it.copy, None)
            assert (told.appended_bytes, told.lines_count) == (added_bytes, 2)
            assert told.size_bytes == it.copy.stat().st_size
            for number in range(20):
                it.append(said(number))
                await it.until(updates)
        assert it.copy.stat().st_ino == inode, "the copy grew in place"
        assert len(streams) == 1
        record = await it.capture()
        assert (record.unchanged, record.received_bytes) == (True, 0)
        assert (reasons(it), list(record.notices)) == ([[]], [])


async def test_half_lines_wait_for_their_end(tmp_path: Path) -> None:
    """Another process writes pieces of any size: the copy is always whole lines, a beginning of what it must become."""
    rest = b"".join(map(said, range(300)))
    script = (
        "import sys,os\ndata=open(sys.argv[2],'rb').read()\nfd=os.open(sys.argv[1],os.O_WRONLY|os.O_APPEND)\nat=0\n"
    )
    script += "while at<len(data):\n size=1+at*7919%173\n at+=os.write(fd,data[at:at+size])\n"
    (tmp_path / "rest").write_bytes(rest)
    async with scene(tmp_path) as it, it.following() as updates:
        whole = it.moved(BEGUN + rest)
        with subprocess.Popen([sys.executable, "-c", script, it.source, tmp_path / "rest"]):  # noqa: ASYNC220 - not waited for
            while it.copy.read_bytes() != whole:
                it.updates.append(await anext(updates))
                copy = it.copy.read_bytes()
                assert whole.startswith(copy)
                assert copy.endswith(b"\n")
        assert sum(update.lines_count for update in it.updates) == 300
        assert reasons(it) == [[]]


async def test_torn_line_of_the_capture_is_completed(tmp_path: Path) -> None:
    """A last line that was captured without its end is gone on with where its bytes end."""
    async with scene(tmp_path, content=BEGUN + b'{"type":"us') as it, it.following() as updates:
        assert it.copy.read_bytes().endswith(b'{"type":"us')
        it.append(b'er","n":7}\n')
        (told,) = await it.until(updates)
        assert told.appended_bytes == len(b'er","n":7}\n')
        assert it.copy.read_bytes().endswith(b'\n{"type":"user","n":7}\n')


async def test_limit_holds_for_what_is_added(tmp_path: Path) -> None:
    """A conversation that grows beyond the limits of the context ends the follow before it does so on the host."""
    async with scene(tmp_path) as it:
        limits = Limits(max_bytes=len(it.moved(BEGUN)) + 10, max_files=10)
        async with it.following(context={"limits": limits}) as updates:
            it.append(lines(count=6))
            with pytest.raises(LimitError) as caught:
                await anext(updates)
        assert caught.value.reason == "max_bytes"
        assert it.copy.read_bytes() == it.moved(BEGUN)


async def test_secrets_are_redacted_as_lines_come(tmp_path: Path) -> None:
    """A secret is on the host in no line, nor in the digests that are kept."""
    redaction = Redaction([LiteralRule("key", "s3cret-value")])
    async with scene(tmp_path) as it:
        async with it.following(context={"redaction": redaction}) as updates:
            for number in range(3):
                it.append(b'{"type":"user","said":"s3cret-value"}\n' + said(number))
                last = it.moved(said(number))
                (told,) = await it.until(updates, lambda last=last: it.copy.read_bytes().endswith(last))
                assert told.record is None
        assert it.copy.read_bytes().count(b"[redacted:key]") == 3
        assert all(b"s3cret-value" not in content for content in files_below(it.host).values())
        assert all(file["parts"] == [] for file in json.loads(it.state.read_bytes())["files"].values())


async def test_conversation_that_is_not_there_is_not_waited_for(tmp_path: Path) -> None:
    """The first capture's failure comes out at once, and nothing is claimed any more."""
    async with scene(tmp_path) as it:
        it.source.unlink()
        for _ in range(2):
            with pytest.raises(SessionError) as caught:
                async with it.following(patience_seconds=1e9):
                    pass
            assert caught.value.reason == "not_found"


async def test_second_follow_is_refused(tmp_path: Path) -> None:
    """One conversation is followed once at a time into one place; when that has ended, again."""
    async with scene(tmp_path) as it:
        for _ in range(2):
            async with it.following() as updates:
                with pytest.raises(ConflictError) as caught:
                    async with it.following():
                        pass
                assert caught.value.reason == "busy"
                it.append(said(1))
                await it.until(updates)


async def test_capture_beside_a_follow(tmp_path: Path) -> None:
    """Somebody else's capture of the same conversation leaves nothing twice, and the follow goes on."""
    async with scene(tmp_path) as it, it.following() as updates:
        for number in range(3):
            it.append(said(number))
            await it.store.capture(ID, it.context)
            await it.until(updates)
            assert it.is_current
            it.append(said(number))
            await it.until(updates)


async def test_what_lies_where_it_is_kept_is_not_followed(tmp_path: Path) -> None:
    """A local sandbox whose transcript is the host's own file: there is nothing to keep up to date."""
    async with scene(tmp_path) as it:
        context = replace(it.context, conversation_home=tmp_path / "home")
        updates = [update async for update in it.store.follow(ID, context)]
        assert [update.record is not None and update.record.unchanged for update in updates] == [True]


async def test_follow_goes_on_where_the_last_one_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another follow brings only what is new, in one part for each stream, and its stream begins where that ends."""
    streams = record_streams(monkeypatch)
    async with bucketed(tmp_path) as it:
        for number in range(3):
            async with it.following(context={"durability": "full"}) as updates:
                it.append(said(number) + said(number))
                await it.until(updates)
                it.append(said(number))
                await it.until(updates)
            begins = [part.offset for part in streams[-1] if isinstance(part, FollowBegin)]
            assert begins == [len(BEGUN) + number * 3 * len(said(1))]
            parts = next(iter(json.loads(it.state.read_bytes())["files"].values()))["parts"]
            assert [size for size, _ in parts] == [len(BEGUN), *[3 * len(said(1))] * (number + 1)]
        assert [update.record.received_bytes for update in it.updates if update.record][1:] == [0, 0]


async def test_what_was_found_in_added_lines_is_known(tmp_path: Path) -> None:
    """A capture behind a follow tells of lines that it did not read again."""
    async with scene(tmp_path) as it:
        async with it.following() as updates:
            at = it.copy.stat().st_size + len(b'{"n":"')
            it.append(b'{"n":"\0"}\n')
            assert [update.record for update in await it.until(updates)] == [None]
        record = await it.capture()
        assert record.received_bytes == 0
        assert [(notice.reason, notice.offset) for notice in record.notices] == [("nul_bytes", at)]


@pytest.mark.parametrize("durability", ["full", "none"])
async def test_lines_are_on_the_disk_when_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    """With full durability only, and for each update."""
    forced: list[TranscriptGrowth] = []

    def force(growth: TranscriptGrowth) -> None:
        forced.append(growth)

    monkeypatch.setattr(TranscriptGrowth, "force", force)
    async with scene(tmp_path) as it, it.following(context={"durability": durability}) as updates:
        for number in range(3):
            it.append(said(number))
            await it.until(updates)
        assert len(forced) == (len(it.updates) - 1 if durability == "full" else 0)


RECORDED = {"claude": "2.1.332/subagent", "codex": "0.171.0/fork"}


@pytest.mark.parametrize("name", RECORDED)
async def test_recorded_conversations_are_followed(tmp_path: Path, name: str) -> None:
    """A line that the CLI would append to any transcript of the conversation is added; nothing else changes."""
    shutil.copytree(DATA / name / RECORDED[name] / "home", tmp_path / "home", copy_function=shutil.copyfile)
    for path in (tmp_path / "workspace", tmp_path / "host"):
        path.mkdir()
    store = builtin_format(name)
    async with connect(LocalTarget(tmp_path / "home", tmp_path / "workspace")) as sandbox:
        context = ConversationContext(sandbox=sandbox, conversation_home=tmp_path / "host", durability="none")
        *_, session = [item async for item in store.list_sessions(context)]
        transcripts = [path for path in (tmp_path / "home").rglob("*.jsonl") if path.name != "session_index.jsonl"]
        options = {"interval_seconds": 0.02}
        async with asyncio.timeout(60), aclosing(store.follow(session.conversation_id, context, **options)) as updates:
            first = (await anext(updates)).record
            assert first is not None
            before = files_below(tmp_path / "host")
            for transcript in transcripts:
                with transcript.open("ab") as file:
                    file.write(b'{"type":"added"}\n')
            added: set[str] = set()
            while len(added) < len(transcripts):
                update = await anext(updates)
                assert (update.record, update.appended_bytes) == (None, len(b'{"type":"added"}\n'))
                added.add(str(update.path.relative_to(tmp_path / "host")))
        record = await store.capture(session.conversation_id, context)
        located = await store.locate(session.conversation_id, context)
    assert (record.unchanged, located.digest) == (True, record.digest)
    after = files_below(tmp_path / "host")
    changed = {path for path in after if path in before and after[path] != before[path] and ".outpost" not in path}
    assert changed == added
    assert all(after[path] == before[path] + b'{"type":"added"}\n' for path in added)
