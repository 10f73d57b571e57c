"""Kept conversations into many sandboxes, from this process.

The one rule: a target that is dead, slow or refuses changes nothing for the others.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from host_client.errors import ConfigurationError, DeadlineError, OutpostError
from host_client.fleet.retry import Attempts, Retry
from host_client.sandbox.sandbox import Sandbox, connect
from host_client.sandbox.task import task_group
from host_client.stores.context import ConversationContext
from host_client.stores.contract import ConversationRecord
from host_client.stores.delivery import Delivery, DeliveryTally, check_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from host_client.stores.contract import ConversationStore, RestoreOutcome
    from host_client.stores.delivery import DeliveryProgress

DEFAULT_CONCURRENCY_COUNT = 16


async def restore_many(
    records: ConversationRecord | Sequence[ConversationRecord],
    targets: Sequence[Sandbox | str],
    store: ConversationStore,
    context: ConversationContext | None = None,
    *,
    concurrency_count: int = DEFAULT_CONCURRENCY_COUNT,
    target_seconds: float | None = None,
    retry: Retry | None = None,
    progress: Callable[[DeliveryProgress], None] | None = None,
) -> Sequence[Delivery]:
    """Restore one kept conversation in every target, or each of many in a target of its own.

    What a target's restore raises is its outcome. On cancel all restores end, and a sandbox whose restore was not
    committed has its old session. Memory is that of the restores at a time.

    Args:
        records: One record, for all targets; or as many as there are targets, each for the target in its place.
        targets: Connected sandboxes, which stay connected, or targets for `connect`, each connected only for as long
            as its restore takes.
        store: The store of the records.
        context: Rules of the restores, and where the store keeps the conversations; its sandbox and its progress are
            not used.
        concurrency_count: Restores, and so connections, at a time.
        target_seconds: Longest time for one target, connecting and all attempts included; then its outcome is
            `timeout`/`deadline`. None: as long as its daemon says something.
        retry: Which failures are tried again, and how often; None: as `Retry()` says.
        progress: Told of every target that has ended, and of the bytes of all at most ten times a second. What it
            raises ends the call.

    Returns:
        What came of each target, in the order given.

    Raises:
        ConfigurationError: `invalid_argument`: records and targets are not as many, or a number is not above 0.
    """
    wanted = _paired(records, targets)
    check_bounds(concurrency_count, target_seconds)
    rules = context or ConversationContext()
    tally = DeliveryTally(len(wanted), progress)
    slots = asyncio.Semaphore(concurrency_count)

    async def deliver_numbered(number: int, record: ConversationRecord, target: Sandbox | str) -> Delivery:
        async with slots:
            own = replace(rules, progress=tally.watch(number))
            delivery = await deliver(target, record, store, own, retry=retry or Retry(), target_seconds=target_seconds)
        tally.end(number, delivery)
        return delivery

    async with task_group() as group:
        tasks = [group.create_task(deliver_numbered(number, *pair)) for number, pair in enumerate(wanted)]
    return tuple(task.result() for task in tasks)


async def deliver(
    target: Sandbox | str,
    record: ConversationRecord,
    store: ConversationStore,
    rules: ConversationContext,
    *,
    retry: Retry,
    target_seconds: float | None,
) -> Delivery:
    """Try one target until it succeeds, fails for good or takes too long; return what came of it."""
    # One id for all attempts: each goes on with what the one before it has left there.
    own = replace(rules, restore_id=rules.restore_id or uuid4().hex)
    attempts = Attempts(retry)
    try:
        async with asyncio.timeout(target_seconds) as limit:
            outcome = await attempts.run(lambda: _restore(target, record, store, own))
    except TimeoutError:
        if not limit.expired():
            raise  # somebody else's
        last = attempts.last_error
        late = DeadlineError(
            "deadline",
            f"{target if isinstance(target, str) else target.target} took longer than {target_seconds} s",
            hint=f"attempt {attempts.count} was under way; an earlier one failed: {last.message}" if last else "",
        )
        return Delivery(target, error=late, attempts_count=attempts.count)
    except OutpostError as error:
        return Delivery(target, error=error, attempts_count=attempts.count)
    return Delivery(target, outcome, attempts_count=attempts.count)


async def _restore(
    target: Sandbox | str, record: ConversationRecord, store: ConversationStore, rules: ConversationContext
) -> RestoreOutcome:
    if isinstance(target, Sandbox):
        return await store.restore(record, replace(rules, sandbox=target))
    async with connect(target, limits=rules.limits) as sandbox:
        return await store.restore(record, replace(rules, sandbox=sandbox))


def _paired(
    records: ConversationRecord | Sequence[ConversationRecord], targets: Sequence[Sandbox | str]
) -> Sequence[tuple[ConversationRecord, Sandbox | str]]:
    if isinstance(targets, str):
        raise ConfigurationError("invalid_argument", "targets are a sequence", hint="give a list, also for one target")
    if isinstance(records, ConversationRecord):
        return [(records, target) for target in targets]
    if len(records) != len(targets):
        raise ConfigurationError(
            "invalid_argument",
            f"{len(records)} records cannot be restored in {len(targets)} targets",
            hint="give one record itself, for all targets, or a sequence with one for each",
        )
    return list(zip(records, targets, strict=True))
