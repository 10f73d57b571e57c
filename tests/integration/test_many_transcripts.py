"""More transcripts than a daemon lets one bundle have files."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from host_client.agents.registry import builtin_format
from host_client.sandbox.sandbox import connect
from host_client.stores.context import ConversationContext
from host_client.stores.transcript import TranscriptConversations
from support.daemon import running_daemon
from support.transcript_format import ID, WITH_SIDECARS, lines, write_transcript

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def test_a_limit_of_bundles_is_none_of_transcripts(tmp_path: Path) -> None:
    """Conversations are listed, and one with many companions goes out and in again, whatever a bundle may have."""
    store = TranscriptConversations(WITH_SIDECARS)
    with running_daemon(tmp_path, "--max-files", "2") as daemon:
        folder = daemon.home / ".mycli/sessions"
        for number in range(4):
            path = write_transcript(folder, conversation_id=f"S{number}")
            (path.with_suffix("") / f"subagents/agent-{number}.jsonl").write_bytes(lines())
        for number in range(4):
            (folder / f"{ID}/subagents/agent-{number}.jsonl").write_bytes(lines())
        (tmp_path / "host").mkdir()
        async with connect(daemon.target) as sandbox:
            context = ConversationContext(sandbox=sandbox, conversation_home=tmp_path / "host")
            listed = [item.conversation_id async for item in store.list_sessions(context)]
            assert listed == ["S0", "S1", "S2", "S3"]
            record = await store.capture(ID, context)
            assert record.files_count == 6
            (folder / f"{ID}.jsonl").unlink()
            outcome = await store.restore(record, context)
            assert outcome.files_count == 6


async def test_those_that_are_open_are_found_among_many(tmp_path: Path) -> None:
    """Each conversation is told with the process that has it open, wherever it stands in the list."""
    ids = [str(UUID(int=number)) for number in range(70)]
    is_open = {ids[0], ids[33], ids[69]}
    home = tmp_path / "home/.claude"
    for conversation_id in ids:
        path = home / "projects/-w" / f"{conversation_id}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b'{"type":"user","cwd":"/w"}\n')
    (home / "sessions").mkdir()
    sign = {"pid": os.getpid(), "sessions": sorted(is_open)}
    (home / "sessions" / f"{os.getpid()}.json").write_text(json.dumps(sign))
    async with connect(f"local:{tmp_path / 'home'}") as sandbox:
        context = ConversationContext(sandbox=sandbox, conversation_home=tmp_path)
        listed = {
            item.conversation_id: item.in_use_pid async for item in builtin_format("claude").list_sessions(context)
        }
    assert list(listed) == ids
    assert {one for one, pid in listed.items() if pid == os.getpid()} == is_open
    assert {pid for one, pid in listed.items() if one not in is_open} == {0}
