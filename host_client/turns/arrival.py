"""A conversation brought to the sandbox that is to go on with it.

The one rule: nothing is resumed from nothing. Either the sandbox has the conversation when this returns, or it raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from host_client.errors import ConfigurationError, ConflictError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord, ConversationStore, Notice
    from host_client.turns.known import LastTurn, SandboxIdentity
    from host_client.turns.preparation import Prepared


async def bring(
    storage: ConversationStore | None,
    prepared: Prepared,
    context: ConversationContext,
    here: SandboxIdentity,
    last_turn: LastTurn | None,
    *,
    conversation_id: str,
) -> Sequence[Notice]:
    """Restore the conversation unless the sandbox has all of it already, and return what should be known of that.

    Where the last turn was here, and what was captured then is what the host has, nothing is looked at. Else a store
    that can compare says whether the sandbox went on (it is left alone), is behind (it is restored) or went on
    differently. A store that cannot restores. What the host has not got, since the capture after the last turn failed,
    goes on where a store that can list the sandbox's conversations finds it.

    Raises:
        ConflictError: `diverged`: sandbox and host went on differently, and `force` was not given.
        OutpostError: those of the store's `compare` and `restore`, and why the host has not got the conversation.
    """
    kept = prepared.kept
    if _is_warm(last_turn, here, kept, can_compare=hasattr(storage, "compare")):
        return ()
    if kept is None or storage is None:
        if await _is_there(conversation_id, storage, context):
            return ()
        raise prepared.missing or ConfigurationError("not_supported", "the host has not got the conversation")
    compare = getattr(storage, "compare", None)
    comparison = await compare(kept, context) if compare else "behind"
    if comparison in ("same", "ahead"):
        return ()
    if comparison == "diverged" and not context.force:
        raise ConflictError(
            "diverged",
            f"sandbox and host went on differently with {kept.conversation_id}",
            hint="force replaces what the sandbox has, which is set aside there; another sandbox leaves it alone",
            facts={"conversation": kept.conversation_id},
        )
    return (await storage.restore(kept, context)).notices


async def _is_there(conversation_id: str, storage: ConversationStore | None, context: ConversationContext) -> bool:
    """Tell whether the sandbox has the conversation, as after a restart of the daemon that the last turn was at."""
    listed: Any = getattr(storage, "list_sessions", None)
    if listed is None:
        return False
    return any([item.conversation_id == conversation_id and item.complete async for item in listed(context)])


def _is_warm(
    last_turn: LastTurn | None, here: SandboxIdentity, kept: ConversationRecord | None, *, can_compare: bool
) -> bool:
    if last_turn is None or last_turn.sandbox != here:
        return False
    if kept is None or kept.digest == last_turn.digest:
        return True
    # The host has something else than was captured here. Without a capture that is older than what is here.
    return not last_turn.digest and not can_compare
