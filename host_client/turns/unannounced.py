"""The conversation of a turn that failed before the agent told its id.

The one rule: only a conversation that can be nobody else's is taken for the turn's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from host_client.errors import OutpostError, UnavailableError

if TYPE_CHECKING:
    from host_client.agents.adapter import Command
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationStore


class Unannounced:
    """Finds the conversation that a turn began.

    Args:
        storage: The agent's store.
        context: Has the sandbox.
        chosen_id: The id that the agent was offered for the conversation.
    """

    def __init__(self, storage: ConversationStore | None, context: ConversationContext, chosen_id: str) -> None:
        self._storage: Any = storage if hasattr(storage, "list_sessions") else None
        self._context = context
        self._chosen_id = chosen_id
        self._is_chosen = False
        self._before: frozenset[str] | None = None

    async def look(self, command: Command) -> None:
        """Note what is there before the command runs, unless it gives the conversation the id that it was offered."""
        # In a word of its own, or in one such as `--session-id=…`.
        self._is_chosen = any(self._chosen_id in word for word in (*command.arguments, *command.variables.values()))
        if not self._is_chosen and self._storage is not None:
            try:
                self._before = await self._listed()
            except OutpostError:
                return  # what cannot be listed is not known, and the turn goes on without

    async def find(self) -> str:
        """Return the id of the turn's conversation; empty: it left none, or several are new.

        Raises:
            UnavailableError: the daemon is away.
        """
        if self._is_chosen:
            return self._chosen_id
        if self._before is None:
            return ""
        try:
            new = await self._listed() - self._before
        except UnavailableError:
            raise
        except OutpostError:
            return ""
        return next(iter(new)) if len(new) == 1 else ""

    async def _listed(self) -> frozenset[str]:
        return frozenset([item.conversation_id async for item in self._storage.list_sessions(self._context)])
