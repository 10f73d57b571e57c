"""What is looked at before a conversation is archived for the first time: the namespace's key, and what came before.

The one rule: whoever forgot the key must not lay contents in the clear beside those that are encrypted. Conversations
that are there already refuse by themselves: their index is read before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import SessionError
from host_client.sandbox.task import in_thread
from host_client.stores.archive_codec import MAX_OVERHEAD_BYTES
from host_client.stores.archive_index import MAX_INDEX_BYTES
from host_client.stores.contract import Notice

if TYPE_CHECKING:
    from host_client.stores.archive_read import ArchiveReader


async def check_key(reader: ArchiveReader) -> None:
    """Refuse a key, or none, that is not the one of the conversations that the namespace has.

    The first index that is undamaged decides, of whatever format; where there is none, any key is right.

    Raises:
        ConfigurationError: `wrong_key`, `not_supported`.
        OutpostError: those of the transport.
    """
    layout = reader.layout
    async for info in reader.transport.list(layout.conversations_prefix):
        found = layout.parse_conversation(info.key)
        if found is None or found.snapshot_id:
            continue
        try:
            stored = await reader.transport.read(info.key, max_bytes=MAX_INDEX_BYTES + MAX_OVERHEAD_BYTES)
            if stored is None:
                continue  # removed meanwhile
            await in_thread(reader.codec.decode, stored.data, about=info.key, max_bytes=MAX_INDEX_BYTES)
        except SessionError:
            continue  # damage of another conversation, which `verify` tells
        return


async def unindexed(reader: ArchiveReader, archive_id: str) -> list[Notice]:
    """Tell of snapshots that the store has of a conversation without an index; prune removes them some day.

    A first push that failed leaves such a snapshot, so it is no reason to refuse the next one. A lost index leaves all.

    Raises:
        OutpostError: those of the transport.
    """
    layout = reader.layout
    listed = reader.transport.list(layout.conversation_prefix(reader.format_name, archive_id))
    keys = [info.key async for info in listed]
    count = sum(1 for key in keys if (found := layout.parse_conversation(key)) is not None and found.snapshot_id)
    if not count:
        return []
    message = (
        f"the store has {count} snapshot(s) of {archive_id} that no index names, of a first push that failed or from "
        "before an index was lost: this one has begun a new history, and prune removes them after its grace period"
    )
    return [Notice("unindexed", message)]
