"""What is read of an archive: an index, a manifest, and the content of its files in their order.

The one rule: every object is checked before anything of it is used, and an object that is missing is an error, never
the end of what there is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.errors import Offender, SessionError, printable
from host_client.sandbox.task import in_thread, task_group
from host_client.stores.archive_codec import MAX_OVERHEAD_BYTES
from host_client.stores.archive_index import MAX_INDEX_BYTES, decode_index, read_manifest
from host_client.stores.archive_manifest import MAX_MANIFEST_BYTES
from host_client.stores.in_order import each

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable, Iterable

    from host_client.stores.archive_codec import Codec
    from host_client.stores.archive_index import Index, Snapshot
    from host_client.stores.archive_layout import Layout
    from host_client.stores.archive_manifest import ChunkReference, Manifest
    from host_client.transports.contract import Transport

MAX_AHEAD_COUNT = 16
MAX_AHEAD_BYTES = 24 << 20
"""Most that is read ahead of what was taken, in objects and in bytes."""

_MAX_TOLD_CHARACTERS_COUNT = 64


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """An index, and the revision that must be replaced by whoever changes it."""

    index: Index
    revision: str


@dataclass(frozen=True, slots=True)
class ArchiveReference:
    """Where a record's conversation is archived.

    Attributes:
        transport_name: The place, for people.
        namespace: The namespace.
        key: The key of the index.
        revision: The index's revision when the record was made.
        archive_id: The conversation's id in the archive; after a fork another one than the record's.
        snapshot_id: The snapshot.
    """

    transport_name: str
    namespace: str
    key: str
    revision: str
    archive_id: str
    snapshot_id: str


class ArchiveReader:
    """Reads the conversations of one format and namespace.

    Args:
        transport: Has the objects.
        layout: Says where they lie.
        codec: Decodes them.
        format_name: The format.
    """

    def __init__(self, transport: Transport, layout: Layout, codec: Codec, format_name: str) -> None:
        self.transport = transport
        self.layout = layout
        self.codec = codec
        self.format_name = format_name

    async def find_index(self, archive_id: str) -> StoredIndex | None:
        """Read the index of a conversation; None when the archive has not got it.

        Raises:
            SessionError: `corrupt`, `tampered`, `digest_mismatch`.
            ConfigurationError: `wrong_key`, `not_supported`: written by a newer version.
            OutpostError: those of the transport.
        """
        key = self.layout.index_key(self.format_name, archive_id)
        stored = await self.transport.read(key, max_bytes=MAX_INDEX_BYTES + MAX_OVERHEAD_BYTES)
        if stored is None:
            return None
        index = await in_thread(
            decode_index,
            stored.data,
            self.codec,
            about=key,
            format_name=self.format_name,
            namespace=self.layout.namespace,
            archive_id=archive_id,
        )
        return StoredIndex(index, stored.revision)

    async def manifest(self, index: Index, snapshot: Snapshot) -> Manifest:
        """Read the manifest of a snapshot.

        Raises:
            SessionError: `missing_object`; those of `find_index`.
            ConfigurationError: those of `find_index`.
        """
        key = self.layout.snapshot_key(self.format_name, index.id, snapshot.snapshot_id)
        stored = await self.transport.read(key, max_bytes=MAX_MANIFEST_BYTES + MAX_OVERHEAD_BYTES)
        if stored is None:
            raise missing(key)
        return await in_thread(read_manifest, stored.data, self.codec, about=key, index=index, snapshot=snapshot)

    async def content(
        self, manifest: Manifest, take: Callable[[bytes], None], after_chunk: Callable[[int], None] | None = None
    ) -> None:
        """Read all that the files of a manifest hold, in their order, and hand it on.

        Args:
            manifest: The snapshot's.
            take: Takes the contents, in a thread.
            after_chunk: Told the size of each chunk that was taken.

        Raises:
            SessionError: `missing_object`, `digest_mismatch`, `corrupt`, `tampered`.
            ConfigurationError: `wrong_key`.
        """
        ahead: deque[tuple[ChunkReference, Task[bytes]]] = deque()
        ahead_bytes = 0
        async with task_group() as group:

            async def take_first() -> int:
                chunk, task = ahead.popleft()
                await in_thread(take, await task)
                if after_chunk is not None:
                    after_chunk(chunk.size)
                return chunk.size

            for chunk in manifest.chunks:
                while len(ahead) >= MAX_AHEAD_COUNT or (ahead and ahead_bytes + chunk.size > MAX_AHEAD_BYTES):
                    ahead_bytes -= await take_first()
                ahead.append((chunk, group.create_task(self.chunk(chunk))))
                ahead_bytes += chunk.size
            while ahead:
                await take_first()

    async def lost(self, names: Iterable[str]) -> set[str]:
        """Look which data objects are not there, and return their names; none is read.

        Raises:
            OutpostError: those of the transport.
        """
        lost: set[str] = set()

        async def look(name: str) -> None:
            if await self.transport.stat(self.layout.data_key(name)) is None:
                lost.add(name)

        await each(names, look, concurrency_count=MAX_AHEAD_COUNT)
        return lost

    async def chunk(self, chunk: ChunkReference) -> bytes:
        """Read the content of one data object.

        Raises:
            SessionError: `missing_object`, `digest_mismatch`, `corrupt`, `tampered`.
            ConfigurationError: `wrong_key`.
        """
        key = self.layout.data_key(chunk.name)
        stored = await self.transport.read(key, max_bytes=chunk.size + MAX_OVERHEAD_BYTES)
        if stored is None:
            raise missing(key)
        return await in_thread(self.codec.decode_chunk, stored.data, about=key, name=chunk.name, size=chunk.size)


def missing(key: str) -> SessionError:
    """Return the failure to find an object that the archive names."""
    return SessionError(
        "missing_object",
        f"the archive names the object '{key}', which its store has not got",
        hint="see what else is hurt with `outpost archive verify`: older snapshots may be whole. Where a sandbox "
        "still has the conversation, force= (push --force) writes again what is gone",
        facts={"key": key},
    )


def choose_snapshot(index: Index, wanted: str) -> Snapshot:
    """Return the snapshot whose id begins so; the newest when nothing is wanted.

    Raises:
        SessionError: `not_found`, `ambiguous`.
    """
    found = [entry for entry in index.entries if entry.snapshot_id.startswith(wanted)] if wanted else [index.head]
    if len(found) == 1:
        return found[0]
    told = printable(wanted[:_MAX_TOLD_CHARACTERS_COUNT])
    if not found:
        raise SessionError(
            "not_found",
            f"the archive of {index.id} has no snapshot '{told}'",
            hint="see which ones it has with `outpost archive log`; prune may have removed it",
        )
    raise SessionError(
        "ambiguous",
        f"{len(found)} snapshots of {index.id} begin with '{told}'",
        hint="give more of the id",
        offenders=(Offender(entry.snapshot_id, f"of {entry.created_at:%Y-%m-%d %H:%M:%S} UTC") for entry in found),
    )
