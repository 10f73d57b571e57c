"""Hosts that share one archive in a directory, each with a cache of its own, for tests of archives."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.stores.archive import TransportConversations
from host_client.stores.archive_codec import Codec
from host_client.stores.archive_layout import Layout
from host_client.stores.archive_read import ArchiveReader
from host_client.stores.context import ConversationContext
from host_client.stores.transcript import TranscriptConversations
from host_client.transports.local import LocalTransport
from support.faulty_transport import FaultyTransport
from support.transcript_format import LAYOUT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from host_client.stores.archive_manifest import Manifest
    from host_client.stores.contract import ConversationStore

NAMESPACE = "team"


@dataclass
class Scene:
    """Hosts `a`, `b`, ... and sandboxes of these names, and a store in a directory.

    Attributes:
        directory: Has everything.
        base: The store whose conversations are archived.
        transport: The store, which can be told to fail.
    """

    directory: Path
    base: ConversationStore = field(default_factory=lambda: TranscriptConversations(LAYOUT))
    transport: FaultyTransport = field(init=False)

    def __post_init__(self) -> None:
        place = self.directory / "store"
        place.mkdir(parents=True, exist_ok=True)
        self.transport = FaultyTransport(LocalTransport(place))

    def archive(self, host: str = "a", **options: Any) -> TransportConversations:
        """Return the archive as a host has it."""
        given = {"transport": self.transport, "namespace": NAMESPACE, "cache": self.directory / host / "cache"}
        return TransportConversations(self.base, **{**given, **options})

    def home(self, sandbox: str = "a") -> Path:
        """Return the home of a sandbox."""
        return self.directory / sandbox / "home"

    @asynccontextmanager
    async def sandbox(self, name: str = "a", workspace: str = "workspace") -> AsyncIterator[ConversationContext]:
        """Serve a sandbox, and give the context for it."""
        root = self.directory / name / workspace
        for path in (self.home(name), root):
            path.mkdir(parents=True, exist_ok=True)
        async with connect(LocalTarget(self.home(name), root)) as sandbox:
            yield ConversationContext(sandbox=sandbox)

    async def manifest(self, conversation_id: str, number: int = -1, **options: Any) -> Manifest:
        """Return the manifest of a snapshot."""
        base_format = self.base.format or ""
        reader = ArchiveReader(self.transport.inner, Layout(NAMESPACE), Codec(**options), base_format)
        stored = await reader.find_index(conversation_id)
        assert stored is not None
        return await reader.manifest(stored.index, stored.index.entries[number])
