"""One capture into an archive: by the base store into a folder of nobody else, compared, and published.

The one rule: nothing is published that was not compared with the snapshot it is put in front of.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from host_client.errors import OutpostError
from host_client.sandbox.task import in_thread
from host_client.stores import archive_lineage
from host_client.stores.archive_beginning import check_key, unindexed
from host_client.stores.archive_content import has_stale_files, kept_context, opened_content
from host_client.stores.archive_publish import Draft, Publication

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from host_client.stores.archive_cache import PrivateHome
    from host_client.stores.archive_manifest import Manifest
    from host_client.stores.archive_read import ArchiveReader, StoredIndex
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord, ConversationStore, Notice

_OF_THE_COPY = frozenset((("conflict", "other_bucket"), ("session", "ambiguous"), ("session", "corrupt")))
"""What a capture fails with where the copy that it goes on with is at fault, perhaps."""


class StaleCopyError(Exception):
    """The copy that a capture was to go on with is no use for that."""


@dataclass
class ArchiveCapture:
    """What one capture knows.

    Attributes:
        base: The store that captures.
        reader: Reads the archive.
        archive_id: The conversation in the archive.
        stored: Its index; None: there is none.
        newest: Its newest manifest; None: there is none, or none that can be read.
        context: As the caller gave it.
        looks_for_data: Whether data that the newest snapshot names is looked for, and written again if it is gone.
    """

    base: ConversationStore
    reader: ArchiveReader
    archive_id: str
    stored: StoredIndex | None
    newest: Manifest | None
    context: ConversationContext
    looks_for_data: bool = False
    published: StoredIndex = field(init=False)

    async def run(
        self, private: PrivateHome, has_diverged: Callable[[StoredIndex], Awaitable[bool]]
    ) -> ConversationRecord:
        """Capture into a folder and publish; `published` is the index afterwards.

        Args:
            private: The folder.
            has_diverged: Compares the sandbox with the newest snapshot where bytes do not tell that it goes on from
                that; refuses what does not.

        Raises:
            StaleCopyError: the folder is a copy that is no use; nothing was published.
            OutpostError: those of `TransportConversations.capture`.
        """
        stored, newest = self.stored, self.newest
        earlier: list[Notice] = []
        if stored is None:
            await check_key(self.reader)
            earlier = await unindexed(self.reader, self.archive_id)
        record = await self._captured(private)
        lost = await self.reader.lost(newest.names) if self.looks_for_data and newest is not None else set()
        if stored is not None and newest is not None and record.digest == newest.digest and not lost:
            self.published = stored
            return replace(record, unchanged=True)
        sizes = archive_lineage.asked_sizes(self.base, newest)
        async with opened_content(self.base, record, kept_context(self.context, private.home), sizes) as files:
            goes_on = newest is None or archive_lineage.goes_on(self.base, newest, files)
            diverged = False
            if stored is not None and (newest is None or not goes_on):
                diverged = await has_diverged(stored)
            draft = Draft(
                archive_id=self.archive_id,
                native_id=record.conversation_id,
                source=str(record.source),
                digest=record.digest,
                previous=stored,
                diverged=diverged,
            )
            self.published = await Publication(self.reader, lost=lost).capture(draft, files, newest)
        return replace(record, unchanged=False, notices=[*record.notices, *earlier])

    async def _captured(self, private: PrivateHome) -> ConversationRecord:
        there = kept_context(self.context, private.home)
        native_id = self.stored.index.native_id if self.stored else self.archive_id
        try:
            record = await self.base.capture(native_id, there)
        except OutpostError as error:
            if not private.is_claimed:
                raise
            if (error.code, error.reason) in _OF_THE_COPY:
                raise StaleCopyError from None
            await in_thread(private.put_back)
            raise
        if private.is_claimed and await has_stale_files(self.base, record, there):
            raise StaleCopyError
        # What the capture set aside in the folder is in the archive, and nobody is to look for it in the folder.
        await in_thread(shutil.rmtree, private.home / ".outpost" / "recovery", ignore_errors=True)
        return replace(record, notices=[one for one in record.notices if one.reason != "replaced_on_host"])
