"""One session into many sandboxes: captured once, restored everywhere, each target with an outcome of its own.

The one rule: a target that is dead, slow or refuses changes nothing for the others.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from host_client.errors import DeadlineError, OutpostError
from host_client.sandbox.sandbox import Sandbox, connect
from host_client.sandbox.task import opened_in_thread, task_group
from host_client.stores.context import ConversationContext
from host_client.stores.delivery import Delivery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.stores.contract import ConversationRecord, ConversationStore, RestoreOutcome

DEFAULT_CONCURRENCY_COUNT = 16


@dataclass(frozen=True, slots=True)
class RelayResult:
    """What was captured, and what came of each target, in the order given.

    `record.path` is gone: the private copy is removed at the end.
    """

    record: ConversationRecord
    outcomes: Sequence[Delivery]

    @property
    def digest(self) -> str:
        """The bundle digest of the capture, in hex."""
        return self.record.digest


async def relay(
    source: Sandbox,
    conversation_id: str,
    targets: Sequence[Sandbox | str],
    store: ConversationStore,
    context: ConversationContext | None = None,
    *,
    concurrency_count: int = DEFAULT_CONCURRENCY_COUNT,
    target_seconds: float | None = None,
) -> RelayResult:
    """Capture one session and restore it in every target.

    The capture is kept in a private folder of the host for as long as the call takes. It is a failure of the call
    when the capture fails; what a target's restore raises is its outcome.

    Args:
        source: Where the session is.
        conversation_id: Its id.
        targets: Connected sandboxes, which stay connected, or targets for `connect`.
        store: The format's store.
        context: Rules of capture and restore; its sandbox, repository and conversation home are not used. Its progress
            is told of the capture.
        concurrency_count: Restores at a time. More slow targets than that delay those behind them.
        target_seconds: Longest time for one target, connecting included; then its outcome is `timeout`/`deadline`.
            None: as long as its daemon says something.

    Raises:
        OutpostError: those of the store's `capture`.
    """
    async with opened_in_thread(tempfile.TemporaryDirectory, prefix="outpost-relay-") as directory:
        rules = replace(context or ConversationContext(), repository=None, conversation_home=Path(directory))
        record = await store.capture(conversation_id, replace(rules, sandbox=source, durability="none"))
        slots = asyncio.Semaphore(concurrency_count)

        async def deliver(target: Sandbox | str) -> Delivery:
            async with slots:
                try:
                    async with asyncio.timeout(target_seconds):
                        return Delivery(target, await _restore(target, record, store, rules))
                except TimeoutError:
                    return Delivery(
                        target, error=DeadlineError("deadline", f"{target} took longer than {target_seconds} s")
                    )
                except OutpostError as error:
                    return Delivery(target, error=error)

        async with task_group() as group:
            deliveries = [group.create_task(deliver(target)) for target in targets]
        return RelayResult(record, tuple(delivery.result() for delivery in deliveries))


async def _restore(
    target: Sandbox | str, record: ConversationRecord, store: ConversationStore, rules: ConversationContext
) -> RestoreOutcome:
    if isinstance(target, Sandbox):
        return await store.restore(record, replace(rules, sandbox=target, progress=None))
    async with connect(target, limits=rules.limits) as sandbox:
        return await store.restore(record, replace(rules, sandbox=sandbox, progress=None))
