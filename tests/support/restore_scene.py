"""A host with a conversation, and sandboxes that it is restored into, for tests of stores."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.stores.context import ConversationContext
from host_client.stores.transcript import TranscriptConversations
from support.transcript_format import ID, lines, write_transcript

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from host_client.sandbox.sandbox import Sandbox
    from host_client.stores.contract import ConversationRecord
    from host_client.stores.layout import TranscriptFunctions

CHILD = f"{ID}/subagents/agent-x.jsonl"


@asynccontextmanager
async def sandbox_of(directory: Path, workspace: str = "workspace") -> AsyncIterator[Sandbox]:
    """Serve `home` and a workspace of a directory."""
    for name in ("home", workspace):
        (directory / name).mkdir(parents=True, exist_ok=True)
    async with connect(LocalTarget(directory / "home", directory / workspace)) as sandbox:
        yield sandbox


class Host:
    """A host's home with a conversation, its repository, and the directory of a sandbox."""

    def __init__(self, tmp_path: Path, layout: TranscriptFunctions, content: bytes | None = None) -> None:
        self.store = TranscriptConversations(layout)
        self.home, self.repository, self.other = tmp_path / "host", tmp_path / "repo", tmp_path / "b"
        self.repository.mkdir()
        self.folder = self.home / ".mycli/sessions"
        if layout.root:
            self.folder /= "repo"
        content = lines(str(self.repository)) if content is None else content
        self.path = write_transcript(self.folder, content)
        self.context = ConversationContext(conversation_home=self.home, repository=self.repository)
        self.placed = self.other / "home/.mycli/sessions" / ("workspace" if layout.root else "")

    async def locate(self) -> ConversationRecord:
        """Return the record of the conversation."""
        return await self.store.locate(ID, self.context)
