"""A sandbox with a conversation, and a host that captures it, for tests of stores."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.session.transcript_stream import TranscriptStream
from host_client.stores.context import ConversationContext
from host_client.stores.layout import Conversation, Related, Skipped
from host_client.stores.transcript import TranscriptConversations
from support.conversation import files_below
from support.transcript_format import ID, LAYOUT, OLD, WITH_SIDECARS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    import pytest

    from host_client.stores.contract import ConversationRecord
    from host_client.stores.layout import TranscriptFunctions

SESSIONS = ".mycli/sessions"
STATE = f".outpost/conversations/mycli/{ID}.json"


class Scene:
    """A sandbox with a conversation, and a host that captures it.

    Attributes:
        sandbox_home: The agent home.
        source: The main transcript there.
        home: The conversation home of the host.
        repository: The repository of the host.
        copy: The main transcript there.
        context: Of captures.
    """

    def __init__(self, tmp_path: Path, layout: TranscriptFunctions, sandbox: Any) -> None:
        self.store = TranscriptConversations(layout)
        self.sandbox_home = tmp_path / "sandbox"
        self.source = self.sandbox_home / SESSIONS / f"{ID}.jsonl"
        self.home, self.repository = tmp_path / "host", tmp_path / "repo"
        self.copy = self.home / SESSIONS / f"{ID}.jsonl"
        for path in (self.home, self.repository, self.source.parent):
            path.mkdir(parents=True, exist_ok=True)
        self.context = ConversationContext(
            sandbox=sandbox, conversation_home=self.home, repository=self.repository, durability="none"
        )

    async def capture(self, content: bytes | None = None, **context: Any) -> ConversationRecord:
        """Capture, after writing that content; the record must be what locating finds."""
        if content is not None:
            self.source.write_bytes(content)
        before = files_below(self.sandbox_home)
        record = await self.store.capture(ID, replace(self.context, **context))
        assert files_below(self.sandbox_home) == before, "a capture changes nothing in the sandbox"
        located = await self.store.locate(ID, replace(self.context, **context))
        assert (located.digest, located.files_count) == (record.digest, record.files_count)
        assert not list(self.home.rglob(".outpost-session-*")), "nothing staged is left"
        return record

    def append(self, content: bytes) -> None:
        """Let the CLI write."""
        with self.source.open("ab") as file:
            file.write(content)

    def moved(self, content: bytes | None = None) -> bytes:
        """Return what the transcript must be on the host."""
        content = self.source.read_bytes() if content is None else content
        return content.replace(json.dumps(OLD).encode(), json.dumps(str(self.repository)).encode())


@asynccontextmanager
async def scene(tmp_path: Path, layout: TranscriptFunctions = LAYOUT) -> AsyncIterator[Scene]:
    """Serve the sandbox of a scene."""
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "workspace").mkdir()
    async with connect(LocalTarget(tmp_path / "sandbox", tmp_path / "workspace")) as sandbox:
        yield Scene(tmp_path, layout, sandbox)


def reasons(record: ConversationRecord) -> list[str]:
    """Return the reasons of a record's notices."""
    return [notice.reason for notice in record.notices]


def act_once(patch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Act when a capture has got its first piece of a transcript, in the thread that takes it."""
    real = TranscriptStream.feed
    acted: list[object] = []

    def feed(self: TranscriptStream, data: bytes) -> None:
        real(self, data)
        if not acted:
            acted.append(action())

    patch.setattr(TranscriptStream, "feed", feed)


def with_companions(*related: Related | Skipped) -> TranscriptFunctions:
    """Return the format with files that belong to each conversation."""

    async def named(conversation: Conversation) -> Sequence[Related | Skipped]:
        return [item for item in related if isinstance(item, Related) or await conversation.files.exists(item.path)]

    return replace(WITH_SIDECARS, related=named)
