"""The capture of a transcript conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import UnavailableError

if TYPE_CHECKING:
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord
    from host_client.stores.layout import TranscriptLayout


async def capture(layout: TranscriptLayout, conversation_id: str, context: ConversationContext) -> ConversationRecord:
    """Copy one conversation out of the sandbox; see `TranscriptConversations.capture`."""
    del conversation_id, context
    raise UnavailableError("unsupported", f"conversations of {layout.format} cannot be captured yet")
