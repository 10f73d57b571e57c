"""Snapshots as copies on this host: found or fetched, verified, and held for as long as they are used.

The one rule: what a copy is used for is done by the base store, which reads and verifies all of it.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from host_client.errors import ConfigurationError, SessionError, WorkspaceError
from host_client.sandbox.progress import Progress, Reporter
from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.stores.archive_content import is_native, kept_context
from host_client.stores.archive_writer import ArchivedContent, write_content

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from host_client.stores.archive_cache import ArchiveCache, Copy, PrivateHome
    from host_client.stores.archive_manifest import Manifest
    from host_client.stores.archive_read import ArchiveReader
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord, ConversationStore

T = TypeVar("T")


class SnapshotCopies:
    """The copies that a host has of the snapshots of a format.

    Args:
        base: The store of the format.
        cache: Where they lie.
    """

    def __init__(self, base: ConversationStore, cache: ArchiveCache) -> None:
        self.base = base
        self.cache = cache

    def claimed(self, manifest: Manifest) -> AbstractContextManager[PrivateHome | None]:
        """Take the copy of a snapshot away, to go on with it, if there is one that nobody reads; blocks."""
        name = _copy_name(manifest.format, manifest.conversation_id, manifest.digest)
        return self.cache.claim(name) or nullcontext()

    async def located(
        self, reader: ArchiveReader, manifest: Manifest, context: ConversationContext
    ) -> ConversationRecord:
        """Return the base's record of a snapshot, whose copy is made if there is none that is what it should be.

        Raises:
            OutpostError: those of `TransportConversations.locate`.
        """
        record = await self._cached(manifest, context)
        if record is not None:
            return record
        async with self._fetched(reader, manifest, context) as private:
            return await in_thread(keep_copy, private, await self._verified(private.home, manifest, context))

    @asynccontextmanager
    async def opened(
        self, reader: ArchiveReader, manifest: Manifest, context: ConversationContext
    ) -> AsyncIterator[ConversationRecord]:
        """Give what `located` returns, with its copy held."""
        name = _copy_name(manifest.format, manifest.conversation_id, manifest.digest)
        while True:
            record = await self.located(reader, manifest, context)
            async with opened_in_thread(self._leased, name) as copy:
                if copy is not None:
                    yield record
                    return
            # Else it was taken away at this moment: by a capture that goes on with it, or for room.

    async def use(
        self,
        reader: ArchiveReader,
        record: ConversationRecord,
        find: Callable[[], Awaitable[Manifest]],
        context: ConversationContext,
        action: Callable[[ConversationRecord, ConversationContext], Awaitable[T]],
    ) -> T:
        """Have the base do something with a record, whose copy is on this host for as long as that takes.

        Args:
            reader: Reads the archive.
            record: The record.
            find: Returns the manifest of its snapshot; called if there is no copy that is what it should be.
            context: What the action is given, with the copy as its conversation home.
            action: What is done.

        Raises:
            ConfigurationError: `invalid_argument`: the record is of another snapshot than it says.
            OutpostError: those of `TransportConversations.locate` and of the action.
        """
        name = _copy_name(record.format, record.conversation_id, record.digest)
        async with opened_in_thread(self._leased, name) as copy:
            if copy is not None:
                there = _working_context(context, copy.home)
                # What the native stores make use of they verify; of others that is not known.
                if is_native(self.base) or await self._is_sound(record, there):
                    try:
                        return await action(replace(record, path=copy.path), there)
                    except (SessionError, WorkspaceError):
                        if await self._is_sound(record, there):
                            raise
                await in_thread(self.cache.drop, name)
        manifest = await find()
        if (manifest.conversation_id, manifest.digest) != (record.conversation_id, record.digest):
            raise ConfigurationError(
                "invalid_argument", "the record is not of the snapshot that it names", hint="locate it again"
            )
        async with self._fetched(reader, manifest, context) as private:
            found = await self._verified(private.home, manifest, replace(context, allow_empty=True))
            result = await action(replace(record, path=found.path), _working_context(context, private.home))
            await in_thread(keep_copy, private, found)
            return result

    async def _cached(self, manifest: Manifest, context: ConversationContext) -> ConversationRecord | None:
        """Return the record of a copy that is on this host and what it should be; None: there is none."""
        name = _copy_name(manifest.format, manifest.conversation_id, manifest.digest)
        async with opened_in_thread(self._leased, name) as copy:
            if copy is None:
                return None
            try:
                return await self._verified(copy.home, manifest, context)
            except (SessionError, WorkspaceError):
                await in_thread(self.cache.drop, name)  # somebody changed it: it is made again
                return None

    @asynccontextmanager
    async def _fetched(
        self, reader: ArchiveReader, manifest: Manifest, context: ConversationContext
    ) -> AsyncIterator[PrivateHome]:
        """Give a folder that has a snapshot, read from the archive."""
        content = ArchivedContent(
            manifest.conversation_id,
            PurePosixPath(manifest.source),
            [file.entry for file in manifest.files],
            bytes.fromhex(manifest.digest),
        )
        reporter, done_bytes = Reporter(context.progress), 0
        files_count, bytes_count = len(content.entries), sum(entry.size for entry in content.entries)

        def after_chunk(size: int) -> None:
            nonlocal done_bytes
            done_bytes += size
            reporter.report(Progress(0, files_count, done_bytes, bytes_count))

        async with opened_in_thread(self.cache.begin) as private:
            there = kept_context(context, private.home)
            fetch = partial(reader.content, manifest, after_chunk=after_chunk)
            await write_content(self.base, content, there, fetch)
            yield private

    async def _verified(self, home: Path, manifest: Manifest, context: ConversationContext) -> ConversationRecord:
        """Have the base read and verify a copy."""
        record = await self.base.locate(manifest.conversation_id, kept_context(context, home))
        if record.digest != manifest.digest:
            raise SessionError(
                "digest_mismatch",
                f"what the archive has of {manifest.conversation_id} is not what its digest says",
                facts={"snapshot": manifest.snapshot_id},
            )
        return record

    async def _is_sound(self, record: ConversationRecord, context: ConversationContext) -> bool:
        try:
            found = await self.base.locate(record.conversation_id, replace(context, allow_empty=True))
        except (SessionError, WorkspaceError):
            return False
        return found.digest == record.digest

    def _leased(self, name: str) -> AbstractContextManager[Copy | None]:
        return self.cache.lease(name) or nullcontext()


def keep_copy(private: PrivateHome, record: ConversationRecord) -> ConversationRecord:
    """Make a private folder the copy of a record; blocks."""
    name = _copy_name(record.format, record.conversation_id, record.digest)
    return replace(record, path=private.keep(name, record.path))


def _copy_name(format_name: str, native_id: str, digest: str) -> str:
    return hashlib.sha256(json.dumps([format_name, native_id, digest]).encode()).hexdigest()


def _working_context(context: ConversationContext, home: Path) -> ConversationContext:
    """Return the context for what a sandbox is given of a copy: there it is as durable as the caller says."""
    return replace(kept_context(context, home), durability=context.durability)
