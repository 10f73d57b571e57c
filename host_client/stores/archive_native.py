"""What an archive of a native store's conversations passes on to that store: whatever is about the sandbox alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from host_client.errors import ConfigurationError, printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence
    from pathlib import Path

    from host_client.sandbox.place import RecoveryItem, SessionSummary, Undone
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationStore, FollowUpdate, NativeConversationStore
    from sandbox_api.profile import Profile


class NativeMethods:
    """Those methods of `NativeConversationStore` that an archive changes nothing about.

    Where the base store is no native one they are refused with `configuration`/`not_supported`, except that it lists no
    sessions.

    Attributes:
        base: The store.
    """

    base: ConversationStore

    def _native(self, method: str) -> NativeConversationStore:
        if not hasattr(self.base, method):
            raise ConfigurationError(
                "not_supported",
                f"the store of {printable(str(self.base.format))} that is archived cannot do that: it has no {method}",
                hint="see NativeConversationStore",
            )
        return cast("NativeConversationStore", self.base)

    @property
    def profile(self) -> Profile:
        """The place of the format, as a daemon is told it."""
        return self._native("profile").profile

    def directory(self, context: ConversationContext) -> Path:
        """Return the host directory that the base store would keep conversations in; an archive does not use it."""
        return self._native("directory").directory(context)

    def destination(self, conversation_id: str, context: ConversationContext) -> Path:
        """Return the host file that the base store would keep a conversation in; an archive does not use it."""
        return self._native("destination").destination(conversation_id, context)

    def follow(
        self,
        conversation_id: str,
        context: ConversationContext,
        *,
        interval_seconds: float = 0.5,
        patience_seconds: float = 60.0,
    ) -> AsyncGenerator[FollowUpdate, None]:
        """Refuse: an archive keeps whole snapshots.

        Raises:
            ConfigurationError: `not_supported`.
        """
        del context, interval_seconds, patience_seconds
        raise ConfigurationError(
            "not_supported",
            f"an archive does not follow {printable(conversation_id)} line by line",
            hint="follow with the base store, and capture into the archive as often as a snapshot is wanted",
        )

    async def list_sessions(self, context: ConversationContext) -> AsyncIterator[SessionSummary]:
        """Yield the conversations of the sandbox; see `NativeConversationStore`."""
        if hasattr(self.base, "list_sessions"):
            async for found in self._native("list_sessions").list_sessions(context):
                yield found

    async def list_recovery(
        self, context: ConversationContext, conversation_id: str = ""
    ) -> AsyncIterator[RecoveryItem]:
        """Yield what restores have set aside in the sandbox; see `NativeConversationStore`."""
        async for found in self._native("list_recovery").list_recovery(context, conversation_id):
            yield found

    async def undo_restore(self, conversation_id: str, context: ConversationContext, name: str = "") -> Undone:
        """Put back what a restore has set aside in the sandbox; see `NativeConversationStore`."""
        return await self._native("undo_restore").undo_restore(conversation_id, context, name)

    async def prune_recovery(
        self,
        context: ConversationContext,
        conversation_id: str = "",
        *,
        keep_count: int | None = None,
        older_than_seconds: int | None = None,
    ) -> Sequence[str]:
        """Remove what restores have set aside in the sandbox; see `NativeConversationStore`."""
        return await self._native("prune_recovery").prune_recovery(
            context, conversation_id, keep_count=keep_count, older_than_seconds=older_than_seconds
        )
