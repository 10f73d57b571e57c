"""Archives by the hand of somebody who can write to the store and has no key: undamaged, and anything may be said."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.stores.archive_codec import Codec
from host_client.stores.archive_layout import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from host_client.transports.contract import Transport
    from sandbox_api.manifest import Entry

SNAPSHOT = "6957e5a5" + 24 * "0"
TIME = "2026-01-02T03:04:05Z"


@dataclass(frozen=True)
class ForgedArchive:
    """A namespace of a store.

    Attributes:
        transport: The store.
        format: The format of its conversations.
        namespace: The namespace.
    """

    transport: Transport
    format: str
    namespace: str = "team"

    async def data(self, content: bytes) -> tuple[str, int]:
        """Write a content, and return what a manifest says of it."""
        name = Codec().object_name(content)
        await self._write(Layout(self.namespace).data_key(name), content)
        return name, len(content)

    async def snapshot(
        self,
        archive_id: str,
        entries: Sequence[Entry],
        chunks: Sequence[tuple[str, int]],
        digest: str,
        *,
        time: str = TIME,
    ) -> None:
        """Write the manifest of a snapshot, all of whose files are one stream, and an index that has it alone."""
        files = [[entry.path.decode(), entry.size, entry.sha256.hex()] for entry in entries]
        manifest = {
            "snapshot_id": SNAPSHOT,
            "conversation_id": archive_id,
            "source": "/x",
            "digest": digest,
            "created_at": time,
            "streams": [{"files": files, "chunks": chunks}],
        }
        layout = Layout(self.namespace)
        stored = await self._document(layout.snapshot_key(self.format, archive_id, SNAPSHOT), manifest)
        sha256, bytes_count = hashlib.sha256(stored).hexdigest(), sum(entry.size for entry in entries)
        entry = [SNAPSHOT, "", digest, sha256, time, len(files), bytes_count, 1, False, None]
        index = {"namespace": self.namespace, "id": archive_id, "native_id": archive_id, "entries": [entry]}
        await self._document(layout.index_key(self.format, archive_id), index)

    async def _document(self, key: str, fields: Mapping[str, object]) -> bytes:
        return await self._write(key, json.dumps({"version": 1, "format": self.format, **fields}).encode())

    async def _write(self, key: str, content: bytes) -> bytes:
        stored = Codec().encode(content, about=key)
        await self.transport.write(key, stored, if_revision=None)
        return stored
