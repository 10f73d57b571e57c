"""A small archive in a directory, written as the product writes it, whose store's clock a test can let go on."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.stores.archive_codec import Codec
from host_client.stores.archive_content import ContentFile
from host_client.stores.archive_index import Origin
from host_client.stores.archive_layout import Layout
from host_client.stores.archive_maintenance import ConversationArchive
from host_client.stores.archive_publish import Draft, Publication
from host_client.stores.archive_read import ArchiveReader
from host_client.transports.local import LocalTransport
from sandbox_api.manifest import Entry, bundle_digest
from support.faulty_transport import Fault, FaultyTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

    from host_client.stores.archive_index import Index, Snapshot
    from host_client.stores.archive_key import ArchiveKey
    from host_client.stores.archive_manifest import Manifest
    from host_client.transports.contract import Transport

DAY_SECONDS = 24 * 60 * 60


@dataclass(frozen=True)
class SmallArchive:
    """One namespace of a directory.

    Attributes:
        directory: The store's.
        namespace: The namespace.
        key: Its key; None: it is not encrypted.
        store: The store, if that is not the directory.
    """

    directory: Path
    namespace: str = "team"
    key: ArchiveKey | None = None
    store: Transport | None = None

    @property
    def transport(self) -> Transport:
        """The store."""
        return self.store or LocalTransport(self.directory)

    @property
    def layout(self) -> Layout:
        """Its keys."""
        return Layout(self.namespace)

    def archive(self, transport: Transport | None = None) -> ConversationArchive:
        """Return its maintenance, through another transport if one is given."""
        return ConversationArchive(transport or self.transport, self.namespace, self.key)

    def reader(self, format_name: str = "mycli", transport: Transport | None = None) -> ArchiveReader:
        """Return what reads the conversations of a format."""
        return ArchiveReader(transport or self.transport, self.layout, Codec(self.key), format_name)

    async def push(
        self,
        archive_id: str,
        files: Mapping[str, bytes],
        *,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Snapshot:
        """Archive files as the newest snapshot of a conversation, by a host with some clock."""
        reader = self.reader(transport=transport)
        previous = await reader.find_index(archive_id)
        newest = await reader.manifest(previous.index, previous.index.head) if previous else None
        draft = Draft(
            archive_id=archive_id,
            native_id=archive_id,
            source="/home/user/.mycli/sessions/x",
            digest=digest_of(files),
            previous=previous,
        )
        contents = [content_file(path, content) for path, content in sorted(files.items())]
        return (await Publication(reader, clock=clock).capture(draft, contents, newest)).index.head

    async def fork(
        self, archive_id: str, snapshot_id: str, new_id: str, *, transport: Transport | None = None
    ) -> Snapshot:
        """Begin another line of history with a snapshot."""
        reader = self.reader(transport=transport)
        found = await reader.find_index(archive_id)
        assert found is not None
        (snapshot,) = (entry for entry in found.index.entries if entry.snapshot_id == snapshot_id)
        draft = Draft(
            archive_id=new_id,
            native_id=archive_id,
            source="/home/user/.mycli/sessions/x",
            digest=snapshot.digest,
            previous=None,
            origin=Origin(archive_id, snapshot_id),
        )
        manifest = await reader.manifest(found.index, snapshot)
        return (await Publication(reader).fork(draft, manifest)).index.head

    async def index(self, archive_id: str) -> Index:
        """Read the index of a conversation."""
        found = await self.reader().find_index(archive_id)
        assert found is not None, archive_id
        return found.index

    async def manifest(self, archive_id: str, snapshot_id: str = "") -> Manifest:
        """Read the manifest of a snapshot, or of the newest."""
        index = await self.index(archive_id)
        snapshots = {entry.snapshot_id: entry for entry in index.entries}
        return await self.reader().manifest(index, snapshots[snapshot_id or index.head.snapshot_id])

    async def restored(self, archive_id: str, snapshot_id: str = "") -> dict[str, bytes]:
        """Read the files of a snapshot, or of the newest."""
        manifest = await self.manifest(archive_id, snapshot_id)
        content = bytearray()
        await self.reader().content(manifest, content.extend)
        files = {}
        for file in manifest.files:
            files[file.path] = bytes(content[: file.size])
            del content[: file.size]
        return files

    async def keys(self, prefix: str = "") -> list[str]:
        """List all keys below a prefix."""
        return sorted([info.key async for info in self.transport.list(prefix)])

    def files(self) -> list[Path]:
        """Return the files that the store's objects are."""
        found = [path for path in sorted(self.directory.rglob("*")) if path.is_file() and path.name[0] != "."]
        assert found
        return found

    def let_pass(self, seconds: float) -> None:
        """Make everything in the store older by so much."""
        for path in self.files():
            times = path.stat()
            os.utime(path, (times.st_atime - seconds, times.st_mtime - seconds))


def content_file(path: str, content: bytes) -> ContentFile:
    """Return a file as a publication takes it."""

    def pieces() -> Iterator[bytes]:
        yield content

    return ContentFile(path, len(content), hashlib.sha256(content).digest(), pieces)


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return the bundle digest of files, in hex."""
    return bundle_digest(
        Entry(path.encode(), len(content), hashlib.sha256(content).digest()) for path, content in sorted(files.items())
    ).hex()


def data_names(manifest: Manifest) -> set[str]:
    """Return the names of the data objects that a snapshot needs."""
    return {chunk.name for chunk in manifest.chunks}


class InterposedTransport(FaultyTransport):
    """A transport that does something else right before one of its operations.

    Args:
        inner: What it stands in front of.
        number: Which operation, counted from 0.
        action: What is done.

    Attributes:
        has_acted: It was done.
    """

    def __init__(self, inner: Transport, number: int, action: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._number = number
        self._action = action
        self.has_acted = False

    async def _begin(self, operation: str, key: str, data_bytes: int = 0) -> tuple[int, list[Fault]]:
        if len(self.operations) == self._number:
            self._number = -1
            await self._action()
            self.has_acted = True
        return await super()._begin(operation, key, data_bytes)
