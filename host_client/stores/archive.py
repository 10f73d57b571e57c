"""Conversations in an archive: every version once, shared by hosts, verified, and restored anywhere.

The one rule: the archive's index is read before anything else and is what a capture must replace, so that nobody's
snapshot is lost, and nothing is told to be archived before the index says so.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from host_client.errors import ConfigurationError, ConflictError, SessionError
from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.stores import archive_lineage
from host_client.stores.archive_cache import DEFAULT_MAX_BYTES, ArchiveCache, default_directory
from host_client.stores.archive_capture import ArchiveCapture, StaleCopyError
from host_client.stores.archive_codec import Codec
from host_client.stores.archive_content import is_native, kept_context
from host_client.stores.archive_copies import SnapshotCopies, keep_copy
from host_client.stores.archive_index import Origin
from host_client.stores.archive_key import archive_key
from host_client.stores.archive_layout import Layout
from host_client.stores.archive_native import NativeMethods
from host_client.stores.archive_publish import Draft, Publication
from host_client.stores.archive_read import ArchiveReader, ArchiveReference, choose_snapshot
from sandbox_api.names import check_conversation_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from host_client.stores.archive_cache import PrivateHome
    from host_client.stores.archive_index import Snapshot
    from host_client.stores.archive_key import ArchiveKey
    from host_client.stores.archive_manifest import Manifest
    from host_client.stores.archive_read import StoredIndex
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import Comparison, ConversationRecord, ConversationStore, RestoreOutcome
    from host_client.transports.contract import Transport

T = TypeVar("T")


class TransportConversations(NativeMethods):
    """A `NativeConversationStore` that keeps the conversations of another one in an archive.

    A capture goes through the base store into a private folder of this host and from there into the archive, as a new
    snapshot in front of the newest one; only what is new is sent and stored. A record's file is a copy in a cache of
    this host, which is plain text, bounded, and made again from the archive when it is gone.

    What goes on in sandboxes is compared with the newest snapshot: a capture that does not begin with it is refused
    (`conflict`/`behind`, `diverged`). Which bytes count is what the base store's format says: the main transcript, a
    bundle's logs, or all files of a bundle whose profile names no logs.

    Args:
        base: The store of a format.
        transport: Keeps the objects.
        namespace: Whose conversations these are; objects are shared within it, and nothing is with others.
        key: Encrypts everything but ids, sizes and times; a function that returns it may block. None: nothing is.
        compress: Whether objects are compressed where that makes them smaller.
        cache: Directory of the copies; None: `outpost/archive` in the user's folder for caches.
        max_cache_bytes: How many bytes of copies stay.
        force: Archive also what does not go on from the newest snapshot, in front of it; and write again what the
            newest snapshot names and the store has lost, which makes the older ones whole as well.

    Raises:
        ConfigurationError: `invalid_key`: the namespace; `invalid_argument`: the store keeps several formats.
    """

    def __init__(
        self,
        base: ConversationStore,
        *,
        transport: Transport,
        namespace: str,
        key: ArchiveKey | Callable[[], bytes] | None = None,
        compress: bool = True,
        cache: Path | None = None,
        max_cache_bytes: int = DEFAULT_MAX_BYTES,
        force: bool = False,
    ) -> None:
        if base.format is None:
            raise ConfigurationError(
                "invalid_argument",
                "a store of several formats cannot be archived",
                hint="archive each format by its own store",
            )
        self.base = base
        self.transport = transport
        self.namespace = namespace
        self.force = force
        self._format = base.format
        self._layout = Layout(namespace)
        self._given_key = key
        self._compress = compress
        self._copies = SnapshotCopies(base, ArchiveCache(cache or default_directory(), max_bytes=max_cache_bytes))
        self._opened: ArchiveReader | None = None

    @property
    def name(self) -> str:
        """Return the name of the archive, for people."""
        return f"transport:{self.namespace}:{self._format}"

    @property
    def format(self) -> str:
        """Return the format's name."""
        return self._format

    async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Capture a conversation and archive it as a new snapshot, in front of the newest one.

        Content that the newest snapshot has already publishes nothing, and the record says `unchanged`. On failure or
        cancel the archive is as it was, and so is the sandbox in any case.

        Args:
            conversation_id: Its id in the archive: the CLI's, or what it was forked to.
            context: As the base's `capture` takes it; repository and conversation home are not used.

        Raises:
            ConflictError: `stale_revision`: somebody else archived it meanwhile; `behind`: the sandbox has less than
                the newest snapshot; `diverged`: it has something else.
            SessionError: `missing_object` and others of `locate` about the newest snapshot; those of the base's
                `capture`.
            OutpostError: those of the base's `capture` and of the transport.
        """
        started_seconds = time.perf_counter()
        reader = await self._reader()
        stored = await reader.find_index(check_conversation_id(conversation_id))
        newest = await self._newest(reader, stored)
        capture = ArchiveCapture(self.base, reader, conversation_id, stored, newest, context, looks_for_data=self.force)

        async def run(private: PrivateHome) -> ConversationRecord:
            record = await capture.run(private, partial(self._has_diverged, context))
            copied = await in_thread(keep_copy, private, record)
            index = capture.published
            return replace(
                copied,
                duration_seconds=time.perf_counter() - started_seconds,
                reference=self._reference(index, index.index.head),
            )

        if newest is not None and is_native(self.base):
            # Where nobody reads the copy of the newest snapshot, the base goes on with it and fetches what is new.
            async with opened_in_thread(self._copies.claimed, newest) as claimed:
                if claimed is not None:
                    try:
                        return await run(claimed)
                    except StaleCopyError:
                        pass  # begun again below, in an empty folder
        async with opened_in_thread(self._copies.cache.begin) as private:
            return await run(private)

    async def locate(
        self, conversation_id: str, context: ConversationContext, *, snapshot: str = ""
    ) -> ConversationRecord:
        """Find a snapshot, verify it as the base store does, and return its record.

        Args:
            conversation_id: The conversation's id in the archive.
            context: As the base's `locate` takes it; repository and conversation home are not used. Its progress is
                told how much was fetched of a snapshot that this host has no copy of.
            snapshot: Id of a snapshot, or the beginning of one; empty: the newest.

        Raises:
            SessionError: `not_found`: the archive has no such conversation, or no such snapshot; `ambiguous`: several
                snapshots begin so; `missing_object`: the archive has lost part of it; `corrupt`, `digest_mismatch`,
                `tampered`; those of the base's `locate`.
            ConfigurationError: `wrong_key`, `invalid_id`.
            OutpostError: those of the transport.
        """
        stored = await self._index(conversation_id)
        return await self._located(stored, choose_snapshot(stored.index, snapshot), context)

    @asynccontextmanager
    async def opened(
        self, conversation_id: str, context: ConversationContext, *, snapshot: str = ""
    ) -> AsyncIterator[ConversationRecord]:
        """Locate a snapshot, and hold the file of its record for the time of the block: see `locate`.

        Without that, a capture on this host may take the file away while it is read, or a newer copy its room.
        """
        stored = await self._index(conversation_id)
        chosen = choose_snapshot(stored.index, snapshot)
        reader = await self._reader()
        manifest = await reader.manifest(stored.index, chosen)
        async with self._copies.opened(reader, manifest, context) as record:
            yield self._told(record, manifest, stored, chosen)

    async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
        """Put an archived conversation in place in the sandbox; see the base's `restore`.

        The copy of the record is fetched again when it is gone, also on another host.

        Raises:
            OutpostError: those of `locate`, and of the base's `restore`.
        """
        record.checked_id(self._format)
        return await self._with_copy(record, context, self.base.restore)

    async def compare(self, record: ConversationRecord, context: ConversationContext) -> Comparison:
        """Tell what the sandbox has of an archived conversation; see `NativeConversationStore`.

        A base store that cannot compare has the sandbox's conversation captured; all its files decide then.

        Raises:
            OutpostError: those of `locate`, and of the base's `compare`.
        """
        record.checked_id(self._format)
        return await self._with_copy(record, context, self._compared)

    async def history(self, conversation_id: str) -> Sequence[Snapshot]:
        """Return the snapshots of a conversation, the newest last.

        Raises:
            SessionError: `not_found`; those of `locate` about the index.
            OutpostError: those of the transport.
        """
        return (await self._index(conversation_id)).index.entries

    async def fork(self, conversation_id: str, new_id: str, *, snapshot: str = "") -> Snapshot:
        """Begin another line of a conversation, with a snapshot of this one, whose data both share.

        The CLI's own id stays what it is: records of the fork have it, and name the fork in their reference.

        Args:
            conversation_id: The conversation's id in the archive.
            new_id: The fork's.
            snapshot: As for `locate`.

        Returns:
            The first snapshot of the fork.

        Raises:
            ConflictError: `exists`: the archive has a conversation of the new id; `stale_revision`.
            SessionError: those of `locate`.
            OutpostError: those of the transport.
        """
        check_conversation_id(new_id)
        reader = await self._reader()
        stored = await self._index(conversation_id)
        if await reader.find_index(new_id) is not None:
            raise _exists(new_id)
        chosen = choose_snapshot(stored.index, snapshot)
        manifest = await reader.manifest(stored.index, chosen)
        draft = Draft(
            archive_id=new_id,
            native_id=stored.index.native_id,
            source=manifest.source,
            digest=manifest.digest,
            previous=None,
            origin=Origin(conversation_id, chosen.snapshot_id),
        )
        try:
            published = await Publication(reader).fork(draft, manifest)
        except ConflictError as error:
            if error.reason == "stale_revision" and await reader.find_index(new_id) is not None:
                raise _exists(new_id) from None
            raise
        return published.index.head

    async def conversations(self) -> AsyncIterator[str]:
        """Yield the ids of the format's conversations in the archive, in no order."""
        prefix = f"{self._layout.conversations_prefix}/{self._format}"
        async for info in self.transport.list(prefix):
            found = self._layout.parse_conversation(info.key)
            if found is not None and not found.snapshot_id and found.format == self._format:
                yield found.archive_id

    async def _reader(self) -> ArchiveReader:
        if self._opened is None:
            key = await in_thread(archive_key, self._given_key)
            self._opened = ArchiveReader(
                self.transport, self._layout, Codec(key, compress=self._compress), self._format
            )
        return self._opened

    async def _index(self, conversation_id: str) -> StoredIndex:
        reader = await self._reader()
        stored = await reader.find_index(check_conversation_id(conversation_id))
        if stored is None:
            raise SessionError(
                "not_found",
                f"the archive {self.namespace} at {self.transport.name} has no {self._format} conversation "
                f"{conversation_id}",
                hint="capture it into the archive first; is it the right store and namespace?",
                facts={"key": self._layout.index_key(self._format, conversation_id)},
            )
        return stored

    async def _newest(self, reader: ArchiveReader, stored: StoredIndex | None) -> Manifest | None:
        """Read the newest manifest; one that cannot be read keeps a forced capture from nothing."""
        if stored is None:
            return None
        try:
            return await reader.manifest(stored.index, stored.index.head)
        except SessionError:
            if not self.force:
                raise
            return None

    async def _has_diverged(self, context: ConversationContext, stored: StoredIndex) -> bool:
        """Have the base compare the newest snapshot with the sandbox: relocation alone makes no difference to it.

        Returns:
            Whether the capture is put in front of a snapshot that it does not go on from, on demand.

        Raises:
            ConflictError: `behind`, `diverged`.
        """
        head = stored.index.head
        try:
            record = await self._located(stored, head, replace(context, allow_empty=True))
            comparison = await self.compare(record, context)
        except SessionError:
            if not self.force:
                raise
            return True
        if not self.force:
            archive_lineage.check_comparison(comparison, stored.index.id, head)
        return comparison not in ("same", "ahead")

    async def _located(
        self, stored: StoredIndex, snapshot: Snapshot, context: ConversationContext
    ) -> ConversationRecord:
        reader = await self._reader()
        manifest = await reader.manifest(stored.index, snapshot)
        return self._told(await self._copies.located(reader, manifest, context), manifest, stored, snapshot)

    async def _with_copy(
        self,
        record: ConversationRecord,
        context: ConversationContext,
        action: Callable[[ConversationRecord, ConversationContext], Awaitable[T]],
    ) -> T:
        if record.reference is None:
            return await action(record, context)  # of the base's own, kept where the context says
        reference, reader = self._checked_reference(record), await self._reader()

        async def find() -> Manifest:
            stored = await self._index(reference.archive_id)
            return await reader.manifest(stored.index, choose_snapshot(stored.index, reference.snapshot_id))

        return await self._copies.use(reader, record, find, context, action)

    async def _compared(self, record: ConversationRecord, context: ConversationContext) -> Comparison:
        if is_native(self.base) or hasattr(self.base, "compare"):
            return await self._native("compare").compare(record, context)
        async with opened_in_thread(self._copies.cache.begin) as private:
            scratch = kept_context(context, private.home)
            return await archive_lineage.compare_files(self.base, record, context, scratch)

    def _checked_reference(self, record: ConversationRecord) -> ArchiveReference:
        reference = record.reference
        if isinstance(reference, ArchiveReference) and reference.namespace == self.namespace:
            return reference
        raise ConfigurationError(
            "invalid_argument",
            f"the record is of another archive than {self.name}",
            hint="restore it by the store that it was captured or located with",
        )

    def _told(
        self, record: ConversationRecord, manifest: Manifest, stored: StoredIndex, snapshot: Snapshot
    ) -> ConversationRecord:
        source = PurePosixPath(manifest.source)
        return replace(record, source=source, reference=self._reference(stored, snapshot))

    def _reference(self, stored: StoredIndex, snapshot: Snapshot) -> ArchiveReference:
        return ArchiveReference(
            transport_name=self.transport.name,
            namespace=self.namespace,
            key=self._layout.index_key(self._format, stored.index.id),
            revision=stored.revision,
            archive_id=stored.index.id,
            snapshot_id=snapshot.snapshot_id,
        )


def _exists(archive_id: str) -> ConflictError:
    return ConflictError(
        "exists", f"the archive has a conversation {archive_id} already", hint="choose another id for the fork"
    )
