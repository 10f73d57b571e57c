"""Restores in many sandboxes, blocking."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from host_client.fleet import executor as _executor
from host_client.fleet import restore as _restore
from host_client.sync.blocking import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from host_client.fleet.job import RestoreJob
    from host_client.fleet.retry import Retry
    from host_client.sandbox import sandbox as _sandbox
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord
    from host_client.stores.delivery import Delivery, DeliveryProgress
    from host_client.sync.conversation import Conversations
    from host_client.sync.sandbox import Sandbox


def restore_many(
    records: ConversationRecord | Sequence[ConversationRecord],
    targets: Sequence[Sandbox | str],
    store: Conversations,
    context: ConversationContext | None = None,
    *,
    concurrency_count: int = _restore.DEFAULT_CONCURRENCY_COUNT,
    target_seconds: float | None = None,
    retry: Retry | None = None,
    progress: Callable[[DeliveryProgress], None] | None = None,
) -> Sequence[Delivery]:
    """Restore one kept conversation, or many, in many targets; see `host_client.fleet.restore.restore_many`."""
    return wait_for(
        partial(
            _restore.restore_many,
            records,
            targets if isinstance(targets, str) else [_asynchronous(target) for target in targets],
            store.asynchronous,
            context,
            concurrency_count=concurrency_count,
            target_seconds=target_seconds,
            retry=retry,
            progress=progress,
        )
    )


def restore_through(
    executor: Executor,
    jobs: Sequence[RestoreJob],
    *,
    target_seconds: float | None = None,
    retry: Retry | None = None,
    progress: Callable[[DeliveryProgress], None] | None = None,
) -> Sequence[Delivery]:
    """Do many restores by the workers of an executor; see `host_client.fleet.executor.restore_through`."""
    return wait_for(
        partial(
            _executor.restore_through,
            executor,
            jobs,
            target_seconds=target_seconds,
            retry=retry,
            progress=progress,
        )
    )


def _asynchronous(target: Sandbox | str) -> _sandbox.Sandbox | str:
    return target if isinstance(target, str) else target.asynchronous
