"""One session into many sandboxes: captured once, restored everywhere, each target with an outcome of its own.

The one rule: a target that is dead, slow or refuses changes nothing for the others, and none commits before the capture
was verified to its end.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError, DeadlineError, OutpostError
from host_client.sandbox.sandbox import Sandbox, connect
from host_client.sandbox.task import opened_in_thread, task_group
from host_client.stores import transcript_capture
from host_client.stores.bundle import SessionBundleConversations
from host_client.stores.context import ConversationContext
from host_client.stores.delivery import Delivery, DeliveryTally, check_bounds
from host_client.stores.relay_bundle import restore_spooled_bundle
from host_client.stores.relay_restore import restore_spooled
from host_client.stores.relay_spool import DEFAULT_MAX_SPOOL_BYTES, NotStreamableError, Spool
from host_client.stores.transcript import TranscriptConversations
from sandbox_api.names import check_conversation_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from host_client.sandbox.progress import Progress
    from host_client.stores.contract import ConversationRecord, ConversationStore, RestoreOutcome
    from host_client.stores.delivery import DeliveryProgress
    from host_client.stores.relay_spool import SpoolReader

    Restore = Callable[[ConversationContext], Awaitable[RestoreOutcome]]

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
    max_spool_bytes: int = DEFAULT_MAX_SPOOL_BYTES,
    target_progress: Callable[[Sandbox | str, Progress], None] | None = None,
    progress: Callable[[DeliveryProgress], None] | None = None,
) -> RelayResult:
    """Capture one session and restore it in every target.

    It is a failure of the call when the capture fails, and then every target has its old session; what a target's
    restore raises is its outcome.

    A conversation is streamed: what arrives is written to a private folder of the host, and each target reads from
    there behind the capture; what all have read is freed. Captured whole into that folder first are conversations whose
    transcripts refer to others or are compressed, session directories that are redacted or captured again when they
    change (`retries`), for daemons that are too old, and those of stores of other makes.

    Args:
        source: Where the session is.
        conversation_id: Its id.
        targets: Connected sandboxes, which stay connected, or targets for `connect`.
        store: The format's store.
        context: Rules of capture and restore; its sandbox, repository and conversation home are not used. Its progress
            is told of the capture.
        concurrency_count: Restores at a time. More slow targets than that delay those behind them; with more targets
            than that everything is kept to the end.
        target_seconds: Longest time for one target, connecting included and waiting for the capture not; then its
            outcome is `timeout`/`deadline`. None: as long as its daemon says something.
        max_spool_bytes: How far a streamed capture and its slowest target may be apart, give or take a few MiB. A
            target that falls half of that behind the fastest one is given up, as `limit`/`max_spool_bytes`; when all
            are so far behind, the capture waits.
        target_progress: Told how far each target is, at most ten times a second each.
        progress: Told of every target that has ended, and of the bytes of all at most ten times a second.

    Raises:
        ConfigurationError: `invalid_argument`: a number is not above 0.
        OutpostError: those of the store's `capture`.
    """
    check_bounds(concurrency_count, target_seconds)
    if max_spool_bytes <= 0:
        raise ConfigurationError("invalid_argument", f"a spool of {max_spool_bytes} bytes holds nothing")
    call = _Relay(
        source,
        check_conversation_id(conversation_id),
        targets,
        context or ConversationContext(),
        asyncio.Semaphore(concurrency_count),
        target_seconds,
        target_progress,
        DeliveryTally(len(targets), progress) if progress else None,
    )
    if type(store) is TranscriptConversations or type(store) is SessionBundleConversations:
        try:
            return await call.streamed(store, Spool(max_spool_bytes, keeps_all=len(targets) > concurrency_count))
        except NotStreamableError:
            pass  # nothing was committed anywhere
    return await call.copied(store)


@dataclass(frozen=True, slots=True)
class _Relay:
    source: Sandbox
    conversation_id: str
    targets: Sequence[Sandbox | str]
    context: ConversationContext
    slots: asyncio.Semaphore
    target_seconds: float | None
    target_progress: Callable[[Sandbox | str, Progress], None] | None
    tally: DeliveryTally | None

    async def streamed(self, store: TranscriptConversations | SessionBundleConversations, spool: Spool) -> RelayResult:
        """Restore from a spool what a capture writes to it at the same time.

        Raises:
            NotStreamableError: that cannot be done with this conversation.
            OutpostError: those of the capture.
        """
        async with _private_folder(self.context) as context:
            readers = [spool.reader() for _ in self.targets]
            async with task_group() as group:
                deliveries = [
                    group.create_task(self._deliver(number, self._restore_of(store, reader), context, reader))
                    for number, reader in enumerate(readers)
                ]
                capturing = replace(context, sandbox=self.source, durability="none")
                if isinstance(store, SessionBundleConversations):
                    record = await store.capture_spooled(self.conversation_id, capturing, spool)
                else:
                    record = (
                        await transcript_capture.captured(store.layout, self.conversation_id, capturing, spool)
                    ).record
                spool.finish(record)
            return RelayResult(record, tuple(delivery.result() for delivery in deliveries))

    def _restore_of(self, store: TranscriptConversations | SessionBundleConversations, reader: SpoolReader) -> Restore:
        if isinstance(store, SessionBundleConversations):
            return partial(restore_spooled_bundle, store, self.conversation_id, reader)
        return partial(restore_spooled, store.layout, self.conversation_id, reader)

    async def copied(self, store: ConversationStore) -> RelayResult:
        """Capture everything, then restore the copy."""
        async with _private_folder(self.context) as context:
            capturing = replace(context, sandbox=self.source, durability="none")
            record = await store.capture(self.conversation_id, capturing)
            async with task_group() as group:
                deliveries = [
                    group.create_task(self._deliver(number, partial(store.restore, record), context))
                    for number in range(len(self.targets))
                ]
            return RelayResult(record, tuple(delivery.result() for delivery in deliveries))

    async def _deliver(
        self, number: int, restore: Restore, context: ConversationContext, reader: SpoolReader | None = None
    ) -> Delivery:
        delivery = await self._attempt(number, restore, context, reader)
        if self.tally is not None:
            self.tally.end(number, delivery)
        return delivery

    async def _attempt(
        self, number: int, restore: Restore, context: ConversationContext, reader: SpoolReader | None
    ) -> Delivery:
        """Restore one target, and let whatever happens there be its outcome."""
        target = self.targets[number]
        error: OutpostError
        try:
            async with self.slots, asyncio.timeout(self.target_seconds) as limit:
                with reader.within(limit) if reader else nullcontext():
                    telling = replace(context, progress=self._teller(number))
                    return Delivery(target, await self._restore(target, restore, telling))
        except TimeoutError:
            late = DeadlineError("deadline", f"{target} took longer than {self.target_seconds} s")
            error = reader.failure or late if reader else late
        except OutpostError as failure:
            error = failure
        finally:
            if reader is not None:
                reader.leave()
        return Delivery(target, error=error)

    async def _restore(self, target: Sandbox | str, restore: Restore, context: ConversationContext) -> RestoreOutcome:
        if isinstance(target, Sandbox):
            return await restore(replace(context, sandbox=target))
        async with connect(target, limits=context.limits) as sandbox:
            return await restore(replace(context, sandbox=sandbox))

    def _teller(self, number: int) -> Callable[[Progress], None] | None:
        """Return what tells everybody how far a target is."""
        one, all_ = self.target_progress, self.tally.watch(number) if self.tally else None
        if one is None:
            return all_

        def tell(progress: Progress) -> None:
            one(self.targets[number], progress)
            if all_ is not None:
                all_(progress)

        return tell


@asynccontextmanager
async def _private_folder(context: ConversationContext) -> AsyncIterator[ConversationContext]:
    """Make a folder that only this call knows, for as long as it lasts, and keep conversations in it."""
    async with opened_in_thread(tempfile.TemporaryDirectory, prefix="outpost-relay-") as directory:
        yield replace(context, repository=None, conversation_home=Path(directory))
