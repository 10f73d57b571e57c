"""A sandbox with a conversation that goes on, and a host that follows it, for tests of stores."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.sandbox.transcript import Transcripts
from host_client.stores.context import ConversationContext
from host_client.stores.transcript import TranscriptConversations
from support.conversation import files_below
from support.transcript_format import ID, IN_BUCKETS, OLD, WITH_SIDECARS, lines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from pathlib import Path, PurePosixPath

    import pytest

    from host_client.sandbox.follow import FollowPart
    from host_client.sandbox.sandbox import Sandbox
    from host_client.stores.contract import ConversationRecord, FollowUpdate
    from host_client.stores.layout import TranscriptFunctions

SESSIONS = ".mycli/sessions"
SECONDS = 60.0
"""Far more than any of this takes; a test that reaches it waits for what does not come."""


class FollowScene:
    """A conversation in a sandbox and its copy.

    Args:
        directory: Holds all of it.
        sandbox: Serves `home` and `workspace` of the directory.
        layout: The format.

    Attributes:
        source: The main transcript in the sandbox.
        child: Where the transcripts of its children lie.
        host: The conversation home of the host.
        copy: The main transcript there.
        state: What the host keeps for the next capture.
        context: Of captures.
        updates: What was told so far.
    """

    def __init__(self, directory: Path, sandbox: Sandbox, layout: TranscriptFunctions = WITH_SIDECARS) -> None:
        self.store = TranscriptConversations(layout)
        self.source = directory / "home" / SESSIONS / f"{ID}.jsonl"
        self.child = self.source.parent / ID / "subagents"
        self.host, self.repository = directory / "host", directory / "repo"
        self.copy = self.host / SESSIONS / f"{ID}.jsonl"
        self.state = self.host / f".outpost/conversations/mycli/{ID}.json"
        for path in (self.host, self.repository, self.source.parent):
            path.mkdir(parents=True, exist_ok=True)
        self.context = ConversationContext(
            sandbox=sandbox, conversation_home=self.host, repository=self.repository, durability="none"
        )
        self.updates: list[FollowUpdate] = []

    def write(self, content: bytes) -> None:
        """Let the CLI write the transcript anew, in place."""
        self.source.write_bytes(content)

    def append(self, content: bytes) -> None:
        """Let the CLI append."""
        with self.source.open("ab") as file:
            file.write(content)

    def moved(self, content: bytes | None = None) -> bytes:
        """Return what the transcript, or a content, must be on the host: whole lines of it."""
        content = self.source.read_bytes() if content is None else content
        whole = content[: content.rfind(b"\n") + 1]
        return whole.replace(json.dumps(OLD).encode(), json.dumps(str(self.repository)).encode())

    @asynccontextmanager
    async def following(self, **options: Any) -> AsyncIterator[AsyncGenerator[FollowUpdate, None]]:
        """Follow the conversation; the first capture has been told."""
        options = {"interval_seconds": 0.02, **options}
        context = replace(self.context, **options.pop("context", {}))
        async with asyncio.timeout(SECONDS), aclosing(self.store.follow(ID, context, **options)) as updates:
            self.updates.append(await anext(updates))
            yield updates

    async def until(
        self, updates: AsyncGenerator[FollowUpdate, None], holds: Callable[[], bool] | None = None
    ) -> list[FollowUpdate]:
        """Take updates until something holds, by default that the copy is up to date; return them."""
        told: list[FollowUpdate] = []
        while not (holds() if holds else self.is_current):
            told.append(await anext(updates))
            self.updates.append(told[-1])
        return told

    @property
    def is_current(self) -> bool:
        """Whether the copy has every whole line."""
        return self.copy.exists() and self.copy.read_bytes() == self.moved()

    async def capture(self) -> ConversationRecord:
        """Capture once more: what a follow leaves must be gone on with, and nothing be left beside it."""
        record = await self.store.capture(ID, self.context)
        located = await self.store.locate(ID, self.context)
        assert (located.digest, located.files_count) == (record.digest, record.files_count)
        beside = [path for path in files_below(self.host) if "/.outpost-" in path or path.endswith((".follow", ".tmp"))]
        assert not beside, "nothing is left beside the copy"
        return record


def said(number: int, cwd: str = OLD) -> bytes:
    """Return a line of a transcript."""
    return json.dumps({"type": "user", "cwd": cwd, "n": number}).encode() + b"\n"


BEGUN = lines(count=3)
"""A transcript that is followed."""


@asynccontextmanager
async def scene(
    tmp_path: Path, layout: TranscriptFunctions = WITH_SIDECARS, content: bytes = BEGUN
) -> AsyncIterator[FollowScene]:
    """Serve a sandbox with a conversation."""
    for name in ("home", "workspace"):
        (tmp_path / name).mkdir()
    async with connect(LocalTarget(tmp_path / "home", tmp_path / "workspace")) as sandbox:
        it = FollowScene(tmp_path, sandbox, layout)
        it.write(content)
        yield it


@asynccontextmanager
async def bucketed(tmp_path: Path) -> AsyncIterator[FollowScene]:
    """Serve a sandbox with a conversation in a folder of its workspace."""
    async with scene(tmp_path, IN_BUCKETS) as it:
        folder = it.source.parent / "workspace"
        folder.mkdir()
        it.source = it.source.rename(folder / it.source.name)
        it.copy = it.host / SESSIONS / "repo" / it.source.name
        yield it


def reasons(it: FollowScene) -> list[list[str]]:
    """Return the notices of each capture that was told."""
    return [[notice.reason for notice in update.record.notices] for update in it.updates if update.record]


def record_streams(patch: pytest.MonkeyPatch) -> list[list[FollowPart]]:
    """Return what comes in each stream of followed files from now on."""
    taken: list[list[FollowPart]] = []
    real = Transcripts.follow

    async def follow(self: Transcripts, home: PurePosixPath, **options: Any) -> AsyncGenerator[FollowPart, None]:
        taken.append([])
        async for part in real(self, home, **options):
            taken[-1].append(part)
            yield part

    patch.setattr(Transcripts, "follow", follow)
    return taken
