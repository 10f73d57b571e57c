"""Stores of conversations, blocking."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from host_client.errors import ConfigurationError
from host_client.stores import relay as _relay
from host_client.stores.archive import TransportConversations
from host_client.stores.contract import ConversationStore
from host_client.stores.relay_spool import DEFAULT_MAX_SPOOL_BYTES
from host_client.sync.blocking import Blocking, call, each, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Sequence

    from host_client.sandbox.progress import Progress
    from host_client.stores.archive_index import Snapshot
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord, FollowUpdate
    from host_client.stores.delivery import DeliveryProgress
    from host_client.stores.relay import RelayResult
    from host_client.sync.sandbox import Sandbox


class Conversations(Blocking[ConversationStore]):
    """A store of conversations with blocking methods, in front of any `ConversationStore`."""

    locate = call(ConversationStore.locate)
    capture = call(ConversationStore.capture)
    restore = call(ConversationStore.restore)

    def follow(
        self,
        conversation_id: str,
        context: ConversationContext,
        *,
        interval_seconds: float | None = None,
        patience_seconds: float | None = None,
    ) -> Generator[FollowUpdate, None, None]:
        """Yield updates of a native store's `follow` as they come; each is waited for. Close it, or go on to its end.

        Args:
            conversation_id: The conversation.
            context: As for `capture`.
            interval_seconds: As there; None: the store's own.
            patience_seconds: The same.
        """
        store: Any = self.asynchronous  # not every store has it
        given = {"interval_seconds": interval_seconds, "patience_seconds": patience_seconds}
        options = {name: value for name, value in given.items() if value is not None}
        updates: AsyncGenerator[FollowUpdate, None] = store.follow(conversation_id, context, **options)
        return each(updates)

    def locate_snapshot(self, conversation_id: str, context: ConversationContext, snapshot: str) -> ConversationRecord:
        """Locate an older snapshot of an archive; see `TransportConversations.locate`."""
        return wait_for(partial(self._archive.locate, conversation_id, context, snapshot=snapshot))

    def history(self, conversation_id: str) -> Sequence[Snapshot]:
        """Return the snapshots of an archived conversation; see `TransportConversations.history`."""
        return wait_for(partial(self._archive.history, conversation_id))

    def fork(self, conversation_id: str, new_id: str, *, snapshot: str = "") -> Snapshot:
        """Begin another line of an archived conversation; see `TransportConversations.fork`."""
        return wait_for(partial(self._archive.fork, conversation_id, new_id, snapshot=snapshot))

    @property
    def format(self) -> str | None:
        """The store's format."""
        return self.asynchronous.format

    @property
    def _archive(self) -> TransportConversations:
        if not isinstance(self.asynchronous, TransportConversations):
            raise ConfigurationError(
                "not_supported",
                "only an archive has snapshots",
                hint="give Conversations a TransportConversations",
            )
        return self.asynchronous


def relay(
    source: Sandbox,
    conversation_id: str,
    targets: Sequence[Sandbox | str],
    store: Conversations,
    context: ConversationContext | None = None,
    *,
    concurrency_count: int = _relay.DEFAULT_CONCURRENCY_COUNT,
    target_seconds: float | None = None,
    max_spool_bytes: int = DEFAULT_MAX_SPOOL_BYTES,
    target_progress: Callable[[Sandbox | str, Progress], None] | None = None,
    progress: Callable[[DeliveryProgress], None] | None = None,
) -> RelayResult:
    """Capture one session and restore it in every target; see `host_client.stores.relay.relay`."""
    given = {target if isinstance(target, str) else target.asynchronous: target for target in targets}
    tell = target_progress
    return wait_for(
        partial(
            _relay.relay,
            source.asynchronous,
            conversation_id,
            [target if isinstance(target, str) else target.asynchronous for target in targets],
            store.asynchronous,
            context,
            concurrency_count=concurrency_count,
            target_seconds=target_seconds,
            max_spool_bytes=max_spool_bytes,
            target_progress=(lambda target, one: tell(given[target], one)) if tell else None,
            progress=progress,
        )
    )
