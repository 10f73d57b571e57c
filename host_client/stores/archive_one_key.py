"""One key for a whole namespace: what is looked at before a conversation is archived for the first time.

The one rule: whoever forgot the key must not lay contents in the clear beside those that are encrypted. Conversations
that are there already refuse by themselves: their index is read before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import SessionError
from host_client.sandbox.task import in_thread
from host_client.stores.archive_codec import MAX_OVERHEAD_BYTES
from host_client.stores.archive_index import MAX_INDEX_BYTES

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
