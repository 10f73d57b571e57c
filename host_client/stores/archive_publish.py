"""A new snapshot on its way into the archive: its data, then its manifest, then the index.

The one rule: what an index names is there before the index says so. Until the last step, the one that must win against
all others, the archive is as it was; what a writer leaves that did not come so far is named by nothing.

An object that is there already is used unless it is marked by prune, which may be about to remove it: a marked one is
written again under a new generation (`docs/adr/0022-marks-of-prune.md`). So is one that a push which took long finds
gone.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from host_client.errors import ConflictError, SessionError, printable
from host_client.sandbox.task import in_thread, task_group
from host_client.stores.archive_cut import Cutter, plan_streams
from host_client.stores.archive_index import (
    Index,
    Snapshot,
    encode_index,
    manifest_sha256,
    new_snapshot_id,
    now,
)
from host_client.stores.archive_layout import content_name, new_generation
from host_client.stores.archive_manifest import ChunkReference, FileReference, Manifest, Stream, encode_manifest
from host_client.stores.archive_read import StoredIndex

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence

    from host_client.stores.archive_content import ContentFile
    from host_client.stores.archive_cut import Chunk
    from host_client.stores.archive_index import Origin
    from host_client.stores.archive_read import ArchiveReader

    _Found = list[ChunkReference | Task[ChunkReference]]

_MAX_CONCURRENT_COUNT = 12
"""Objects that are written at the same time, each of at most 2 MiB."""

_LOOKED_FOR_BYTES = 32 << 10
"""Larger objects are looked for before they are sent, since they may be there already."""

_MAX_ROUNDS_COUNT = 5
"""How often what prune has marked meanwhile is written again, before its end is to be waited for."""

_LONG_SECONDS = 300.0
"""After so long a push does not take for granted that what it wrote or found is still there. Grace periods are longer
than this by far; only who looks so often can rely on them."""


def _awake_or_asleep_seconds() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """What a snapshot is to say.

    Attributes:
        archive_id: The conversation in the archive.
        native_id: The id by which its CLI knows it.
        source: Where it was captured from.
        digest: Of its record.
        previous: The index that is to be replaced; None: there must be none.
        diverged: It does not go on from the newest snapshot.
        origin: What it was forked from.
    """

    archive_id: str
    native_id: str
    source: str
    digest: str
    previous: StoredIndex | None
    diverged: bool = False
    origin: Origin | None = None


@dataclass
class Publication:
    """One snapshot that is being published; used once.

    Attributes:
        reader: Has transport, layout and codec.
        usable: Objects known to be there, by the name of their content.
        marked: Objects that prune may be about to remove, or has removed meanwhile.
        vouched: Objects that the index names which is to be replaced: while it is there, nobody removes them.
        lost: Objects that older snapshots name and that are not there: they are written again under the same name.
        stored_bytes: What was written.
        clock: Tells seconds, those included that this host slept.
    """

    reader: ArchiveReader
    usable: dict[str, ChunkReference] = field(default_factory=dict)
    marked: set[str] = field(default_factory=set)
    vouched: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    stored_bytes: int = 0
    clock: Callable[[], float] = _awake_or_asleep_seconds

    async def capture(self, draft: Draft, files: Sequence[ContentFile], newest: Manifest | None) -> StoredIndex:
        """Publish files as a snapshot, and return the index that names it.

        Args:
            draft: What it says.
            files: Its files, by path.
            newest: The snapshot that it may have grown from.

        Raises:
            ConflictError: `stale_revision`: somebody else was faster, or prune is at work without an end.
            SessionError: `digest_mismatch`: a file is no longer what it was.
            OutpostError: those of the transport.
        """
        if newest is not None:
            self.usable.update(newest.references)
            self.vouched |= newest.names
        return await self._publish(draft, lambda: self._cut(files, newest))

    async def fork(self, draft: Draft, manifest: Manifest) -> StoredIndex:
        """Publish a snapshot that is there already as the first one of another line, and return its index.

        Raises:
            ConflictError: `stale_revision`: the other line exists; prune is at work without an end.
            SessionError: `missing_object` and others about an object that must be written again.
            OutpostError: those of the transport.
        """

        async def streams() -> Sequence[Stream]:
            return [Stream(stream.files, await self._renewed(stream.chunks)) for stream in manifest.streams]

        return await self._publish(draft, streams)

    async def _publish(self, draft: Draft, make_streams: Callable[[], Awaitable[Sequence[Stream]]]) -> StoredIndex:
        begun_seconds = self.clock()
        self.marked = await self._marks()
        for _ in range(_MAX_ROUNDS_COUNT):
            streams = tuple(await make_streams())
            snapshot = await self._write_manifest(draft, streams)
            named = {chunk.name for stream in streams for chunk in stream.chunks}
            looked_seconds = self.clock()
            self.marked |= await self._marks()
            if looked_seconds - begun_seconds > _LONG_SECONDS:
                # In this order: what is there now and was not marked before stays for a grace period from then on.
                self.marked |= await self.reader.lost(named - self.vouched)
            if named.isdisjoint(self.marked) and self.clock() - looked_seconds <= _LONG_SECONDS:
                return await self._write_index(draft, snapshot)
        raise ConflictError(
            "stale_revision",
            f"prune has marked again and again what {draft.archive_id} needs, or the store was too slow to tell",
            hint="is it run with a grace period that is shorter than a capture takes? Capture again after its end",
        )

    async def _marks(self) -> set[str]:
        layout = self.reader.layout
        listed = self.reader.transport.list(layout.marks_prefix)
        return {name async for info in listed if (name := layout.parse_mark(info.key)) is not None}

    async def _cut(self, files: Sequence[ContentFile], newest: Manifest | None) -> Sequence[Stream]:
        by_path = {file.path: file for file in files}
        planned = plan_streams(FileReference(file.path, file.size, file.sha256.hex()) for file in files)
        streams: list[tuple[tuple[FileReference, ...], _Found]] = []
        slots = asyncio.Semaphore(_MAX_CONCURRENT_COUNT)
        async with task_group() as group:
            for references in planned:
                grown = newest.chunks_of(references[0].path) if newest and len(references) == 1 else ()
                found: _Found = []
                streams.append((references, found))
                pieces = _verified(by_path[reference.path] for reference in references)
                chunks = Cutter(self.reader.codec.object_name, grown).cut(pieces)
                try:
                    while (chunk := await in_thread(self._next_new, chunks, found)) is not None:
                        await slots.acquire()
                        found.append(group.create_task(self._put(chunk, slots)))
                finally:
                    await in_thread(pieces.close)
        return [
            Stream(references, tuple(one if isinstance(one, ChunkReference) else one.result() for one in found))
            for references, found in streams
        ]

    def _next_new(self, chunks: Iterator[Chunk], found: _Found) -> Chunk | None:
        """Return the next chunk that must be written; the ones before it are noted as found. Blocks."""
        for chunk in chunks:
            reference = chunk.reference or self.usable.get(chunk.name)
            if reference is None or reference.name in self.marked or reference.name in self.lost:
                return chunk
            found.append(reference)
        return None

    async def _put(self, chunk: Chunk, slots: asyncio.Semaphore) -> ChunkReference:
        known = chunk.reference or self.usable.get(chunk.name)
        is_lost = known is not None and known.name in self.lost
        try:
            reference = await self._written(known.name if known and is_lost else chunk.name, chunk.data)
        finally:
            slots.release()
        self.usable[chunk.name] = reference
        return reference

    async def _written(self, name: str, data: bytes) -> ChunkReference:
        """Write a content unless it is there already, unmarked."""
        transport, layout = self.reader.transport, self.reader.layout
        if name not in self.marked:
            key = layout.data_key(name)
            if len(data) <= _LOOKED_FOR_BYTES or await transport.stat(key) is None:
                try:
                    await self._write(key, data)
                except ConflictError as error:
                    if error.reason != "stale_revision":
                        raise  # else another writer was faster, or this very content is there twice
            return ChunkReference(name, len(data))
        again = new_generation(name)
        await self._write(layout.data_key(again), data)
        return ChunkReference(again, len(data))

    async def _write(self, key: str, data: bytes) -> None:
        encoded = await in_thread(self.reader.codec.encode, data, about=key)
        await self.reader.transport.write(key, encoded, if_revision=None)
        self.stored_bytes += len(encoded)

    async def _renewed(self, chunks: Sequence[ChunkReference]) -> tuple[ChunkReference, ...]:
        """Return chunks of another snapshot, those written again that are marked."""
        found = []
        for chunk in chunks:
            reference = self.usable.get(content_name(chunk.name), chunk)
            if reference.name in self.marked:
                reference = await self._written(content_name(reference.name), await self.reader.chunk(reference))
                self.usable[content_name(chunk.name)] = reference
            found.append(reference)
        return tuple(found)

    async def _write_manifest(self, draft: Draft, streams: tuple[Stream, ...]) -> Snapshot:
        reader, head = self.reader, draft.previous.index.head if draft.previous else None
        # Ids sort by time also where the clocks of two hosts do not agree.
        created_at = max(now(), head.created_at) if head else now()
        manifest = Manifest(
            snapshot_id=new_snapshot_id(created_at),
            format=reader.format_name,
            conversation_id=draft.native_id,
            source=printable(draft.source),
            digest=draft.digest,
            created_at=created_at,
            streams=streams,
        )
        key = reader.layout.snapshot_key(reader.format_name, draft.archive_id, manifest.snapshot_id)
        encoded = await in_thread(encode_manifest, manifest, reader.codec, about=key)
        await reader.transport.write(key, encoded, if_revision=None)
        self.stored_bytes += len(encoded)
        files = tuple(manifest.files)
        return Snapshot(
            snapshot_id=manifest.snapshot_id,
            parent=head.snapshot_id if head else "",
            digest=draft.digest,
            manifest_sha256=manifest_sha256(encoded),
            created_at=created_at,
            files_count=len(files),
            bytes_count=sum(file.size for file in files),
            added_bytes=self.stored_bytes,
            diverged=draft.diverged,
            origin=draft.origin,
        )

    async def _write_index(self, draft: Draft, snapshot: Snapshot) -> StoredIndex:
        reader, previous = self.reader, draft.previous
        if previous is not None:
            index = previous.index.with_snapshot(snapshot)
        else:
            index = Index(
                format=reader.format_name,
                namespace=reader.layout.namespace,
                id=draft.archive_id,
                native_id=draft.native_id,
                entries=(snapshot,),
            )
        key = reader.layout.index_key(reader.format_name, draft.archive_id)
        encoded = await in_thread(encode_index, index, reader.codec, about=key)
        try:
            revision = await reader.transport.write(key, encoded, if_revision=previous.revision if previous else None)
        except ConflictError as error:
            if error.reason != "stale_revision":
                raise
            raise ConflictError(
                "stale_revision",
                f"somebody else wrote to the archive of {draft.archive_id} meanwhile; nothing of it was replaced",
                hint="capture again: what is archived by then is compared with what the sandbox has, which is "
                "unchanged",
                facts={"key": key},
            ) from None
        return StoredIndex(index, revision)


def _verified(files: Iterable[ContentFile]) -> Generator[bytes, None, None]:
    """Yield the contents of files in a row, and make sure that each is what it was; blocks."""
    for file in files:
        sha256 = hashlib.sha256()
        for piece in file.pieces():
            sha256.update(piece)
            yield piece
        if sha256.digest() != file.sha256:
            raise SessionError("digest_mismatch", f"{printable(file.path)} is no longer what was captured")
