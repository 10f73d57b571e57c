"""More transcripts than a daemon lets one bundle have files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
