"""What lies in a namespace of a store: which conversations there are, their indexes and manifests, data and marks.

The one rule: what is listed counts only where it is exactly what an archive would have written there; what is read is
checked. Nothing here writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from host_client.errors import SessionError
from host_client.stores.archive_read import ArchiveReader

if TYPE_CHECKING:
    from host_client.stores.archive_codec import Codec
    from host_client.stores.archive_index import Index, Snapshot
    from host_client.stores.archive_layout import Layout
    from host_client.stores.archive_manifest import Manifest
    from host_client.stores.archive_read import StoredIndex
    from host_client.transports.contract import ObjectInfo, Transport


class ConversationName(NamedTuple):
    """A conversation of a namespace.

    Attributes:
        format: Its format.
        id: Its id in the archive.
    """

    format: str
    id: str


class SnapshotName(NamedTuple):
    """A snapshot of a namespace.

    Attributes:
        format: Its conversation's format.
        id: Its conversation's id in the archive.
        snapshot_id: Its id.
    """

    format: str
    id: str
    snapshot_id: str

    @property
    def conversation(self) -> ConversationName:
        """Its conversation."""
        return ConversationName(self.format, self.id)


@dataclass(slots=True)
class Listed:
    """What a listing has of a conversation.

    Attributes:
        index: Its index; None: there is none.
        manifests: The manifests of its snapshots, by their ids, whether or not the index names them.
    """

    index: ObjectInfo | None = None
    manifests: dict[str, ObjectInfo] = field(default_factory=dict)


class Survey:
    """Reads a namespace.

    Args:
        transport: The store.
        layout: The namespace's keys.
        codec: Decodes its objects.
    """

    def __init__(self, transport: Transport, layout: Layout, codec: Codec) -> None:
        self.transport = transport
        self.layout = layout
        self.codec = codec

    async def conversations(self) -> dict[ConversationName, Listed]:
        """List all conversations, those whose index is missing as well."""
        found: dict[ConversationName, Listed] = {}
        async for info in self.transport.list(self.layout.conversations_prefix):
            key = self.layout.parse_conversation(info.key)
            if key is None:
                continue
            listed = found.setdefault(ConversationName(key.format, key.archive_id), Listed())
            if key.snapshot_id:
                listed.manifests[key.snapshot_id] = info
            else:
                listed.index = info
        return dict(sorted(found.items()))

    async def data(self) -> dict[str, ObjectInfo]:
        """List all data objects by their names."""
        infos = self.transport.list(self.layout.data_prefix)
        return {name: info async for info in infos if (name := self.layout.parse_data(info.key))}

    async def marks(self) -> dict[str, ObjectInfo]:
        """List all marks by the names of the data objects that they mark."""
        infos = self.transport.list(self.layout.marks_prefix)
        return {name: info async for info in infos if (name := self.layout.parse_mark(info.key))}

    async def index(self, name: ConversationName) -> StoredIndex | None:
        """Read a conversation's index; None when there is none. See `ArchiveReader.find_index`."""
        return await self._reader(name.format).find_index(name.id)

    async def manifest(self, index: Index, snapshot: Snapshot) -> Manifest:
        """Read the manifest of a snapshot; see `ArchiveReader.manifest`."""
        return await self._reader(index.format).manifest(index, snapshot)

    async def current_manifest(self, index: Index, snapshot: Snapshot) -> Manifest | None:
        """Read the manifest of a snapshot; None when it is missing because the snapshot was pruned meanwhile."""
        try:
            return await self.manifest(index, snapshot)
        except SessionError as error:
            if error.reason != "missing_object":
                raise
            read = await self.index(ConversationName(index.format, index.id))
            if read is not None and any(entry.snapshot_id == snapshot.snapshot_id for entry in read.index.entries):
                raise
            return None

    def _reader(self, format_name: str) -> ArchiveReader:
        return ArchiveReader(self.transport, self.layout, self.codec, format_name)
