"""The capture of transcripts that say how many bytes of others belong to them."""

from __future__ import annotations

import json
import shutil
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from host_client.agents.codex import LAYOUT as CODEX
from host_client.session.compression import compressed, decompressed
from host_client.session.redaction import LiteralRule, Redaction
from support.capture_scene import Scene, reasons, scene
from support.recorded import DATA
from support.transcript_text import relocated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


pytestmark = pytest.mark.anyio

FORK = DATA / "codex/0.171.0/fork"


@asynccontextmanager
async def fork(tmp_path: Path) -> AsyncIterator[tuple[Scene, Path, Path]]:
    """Serve the recorded fork of Codex 0.171.0, and give it with the paths of fork and parent below the home."""
    async with scene(tmp_path, CODEX) as it:
        shutil.copytree(FORK / "home/.codex", it.sandbox_home / ".codex")
        parent, child = sorted((it.sandbox_home / ".codex/sessions").rglob("*.jsonl"))
        yield it, child.relative_to(it.sandbox_home), parent.relative_to(it.sandbox_home)


def base_of(path: Path) -> tuple[int, int]:
    """Return where a fork says that its part of the parent ends: by line, and by byte."""
    told = json.loads(path.read_bytes().partition(b"\n")[0])["payload"]["history_base"]
    return told["end_ordinal_exclusive"], told["end_byte_offset"]


def bytes_before(path: Path, ordinal: int) -> int:
    """Return the size of the lines in front of an ordinal."""
    found = path.read_bytes().splitlines(keepends=True)
    return sum(len(line) for line in found if json.loads(line)["ordinal"] < ordinal)


@pytest.mark.parametrize("is_redacted", [False, True])
async def test_fork_points_to_the_same_line_of_its_parent(tmp_path: Path, *, is_redacted: bool) -> None:
    """Relocation and redaction move the place that a fork names in its parent; the number is what is right there."""
    async with fork(tmp_path) as (it, child, parent):
        conversation_id = child.stem[-36:]
        rules = Redaction((LiteralRule("who", "assistant"),)) if is_redacted else None
        record = await it.store.capture(conversation_id, replace(it.context, redaction=rules))
        ordinal, offset = base_of(it.home / child)
        assert offset == bytes_before(it.home / parent, ordinal)
        assert offset != base_of(it.sandbox_home / child)[1]
        assert (record.files_count, "full_capture" in reasons(record)) == (2, False)
        with (it.sandbox_home / child).open("ab") as file:
            file.write(b'{"type":"event_msg","ordinal":99,"payload":{}}\n')
        again = await it.store.capture(conversation_id, replace(it.context, redaction=rules))
        assert base_of(it.home / child) == (ordinal, offset)
        assert (it.home / child).read_bytes().endswith(b'"ordinal":99,"payload":{}}\n')
        if not is_redacted:
            assert again.received_bytes < 100_000
            assert reasons(again) == []


async def test_fork_of_a_rewritten_parent_is_captured_whole(tmp_path: Path) -> None:
    """When the parent is not what it was, everything is captured anew, so that the number fits again."""
    async with fork(tmp_path) as (it, child, parent):
        conversation_id = child.stem[-36:]
        await it.store.capture(conversation_id, it.context)
        path = it.sandbox_home / parent
        path.write_bytes(path.read_bytes().replace(b'"type":"event_msg"', b'"type": "event_msg"'))
        record = await it.store.capture(conversation_id, it.context)
        assert reasons(record) == ["full_capture"]
        # The fork's own number is another line's now; that line is what it still points at.
        number = base_of(it.sandbox_home / child)[1]
        told = path.read_bytes()
        start = told.rfind(b"\n", 0, number) + 1
        origin = json.loads((FORK / "expected.json").read_text())["recorded_workspace"]
        before = relocated(told[:start], str(it.repository), origin)
        assert base_of(it.home / child)[1] == len(before) + number - start


async def test_fork_of_a_parent_that_was_moved_is_captured_whole(tmp_path: Path) -> None:
    """A parent that was archived since the last capture is found where it is now, and the number fits to it."""
    async with fork(tmp_path) as (it, child, parent):
        conversation_id = child.stem[-36:]
        await it.store.capture(conversation_id, it.context)
        archived = Path(".codex/archived_sessions", parent.name)
        for home in (it.sandbox_home, it.home):
            (home / archived).parent.mkdir()
            (home / parent).rename(home / archived)
        record = await it.store.capture(conversation_id, it.context)
        assert reasons(record) == ["full_capture"]
        ordinal, offset = base_of(it.home / child)
        assert offset == bytes_before(it.home / archived, ordinal)


async def test_fork_of_a_compressed_parent(tmp_path: Path) -> None:
    """Offsets count in the unpacked parent, which is packed again; one in which nothing changes keeps its bytes."""
    async with fork(tmp_path) as (it, child, parent):
        conversation_id = child.stem[-36:]
        plain = it.sandbox_home / parent
        packed = plain.with_suffix(".jsonl.zst")
        packed.write_bytes(b"".join(compressed([plain.read_bytes()])) + b"".join(compressed([b""])))
        plain.unlink()
        await it.store.capture(conversation_id, it.context)
        copy = (it.home / parent).with_suffix(".jsonl.zst")
        unpacked = it.home / "unpacked"
        unpacked.write_bytes(b"".join(decompressed([copy.read_bytes()])))
        ordinal, offset = base_of(it.home / child)
        assert offset == bytes_before(unpacked, ordinal)
        again = await it.store.capture(conversation_id, it.context)
        assert again.unchanged
        workspace = Path(json.loads((FORK / "expected.json").read_text())["recorded_workspace"])
        shutil.rmtree(it.home)
        it.home.mkdir()
        same = await it.store.capture(conversation_id, replace(it.context, repository=workspace))
        assert same.files_count == 2
        assert copy.read_bytes() == packed.read_bytes()


async def test_parent_that_the_user_went_on_with_is_left_alone(tmp_path: Path) -> None:
    """The parent of a fork is another conversation: where the host's has more, it stays, and the fork fits to it."""
    async with fork(tmp_path) as (it, child, parent):
        conversation_id = child.stem[-36:]
        await it.store.capture(conversation_id, it.context)
        with (it.home / parent).open("ab") as file:
            file.write(b'{"type":"event_msg","ordinal":99,"payload":{}}\n')
        theirs = (it.home / parent).read_bytes()
        for _ in range(2):
            with (it.sandbox_home / child).open("ab") as file:
                file.write(b'{"type":"event_msg","ordinal":98,"payload":{}}\n')
            record = await it.store.capture(conversation_id, it.context)
            assert "went_on" in reasons(record)
            assert (await it.store.locate(conversation_id, it.context)).digest == record.digest
        assert reasons(record) == ["went_on"]
        assert (it.home / parent).read_bytes() == theirs
        assert not (it.home / ".outpost/recovery").exists()
        ordinal, offset = base_of(it.home / child)
        assert offset == bytes_before(it.home / parent, ordinal)
        assert (it.home / child).read_bytes().count(b'"ordinal":98') == 2
