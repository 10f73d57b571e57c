"""What a worker does: one restore, by its own connection. It may be any thread of any process of any host.

The one rule: whatever happens comes back as an outcome of the target; nothing is raised.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anyio.from_thread import BlockingPortalProvider

from host_client.agents.registry import builtin_format
from host_client.errors import OutpostError, UnavailableError
from host_client.fleet.restore import deliver
from host_client.fleet.retry import Attempts
from host_client.sandbox.task import in_thread
from host_client.stores.delivery import Delivery
from host_client.transports.url import open_transport

if TYPE_CHECKING:
    from host_client.fleet.job import RestoreJob
    from host_client.fleet.retry import Retry
    from host_client.stores.contract import ConversationRecord, ConversationStore
    from host_client.transports.contract import Transport

_MAX_SOURCES_COUNT = 32
"""Conversations whose records a process remembers; what is older is located again."""

_MAX_TRANSPORTS_COUNT = 8
"""Stores whose connections a process keeps."""


@dataclass(frozen=True, slots=True)
class Run:
    """One call of `restore_through`, as all its workers know it.

    Attributes:
        run_id: Its name: within one run a process looks up a conversation once, and all its targets get the same state.
        retry: Which failures are tried again.
        target_seconds: Longest time for one target.
    """

    run_id: str
    retry: Retry
    target_seconds: float | None


@dataclass(slots=True)
class _Source:
    """A conversation of one run. Whoever comes first looks it up, the others wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    store: ConversationStore | None = None
    record: ConversationRecord | None = None
    error: OutpostError | None = None


class _Process:
    """What the workers of one process share: one event loop while any of them works, and what they have looked up."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.portal = BlockingPortalProvider("asyncio")
        self._lock = threading.Lock()
        self._sources: OrderedDict[object, _Source] = OrderedDict()
        self._transports: OrderedDict[str, Transport] = OrderedDict()

    def source(self, key: object) -> _Source:
        """Return what is known of a source, which may be nothing yet."""
        with self._lock:
            found = self._sources.setdefault(key, _Source())
            self._sources.move_to_end(key)
            while len(self._sources) > _MAX_SOURCES_COUNT:
                self._sources.popitem(last=False)
            return found

    def transport(self, url: str) -> Transport:
        """Return the transport of a store, opened once; blocks."""
        with self._lock:
            if url not in self._transports:
                self._transports[url] = open_transport(url)
            self._transports.move_to_end(url)
            while len(self._transports) > _MAX_TRANSPORTS_COUNT:
                self._transports.popitem(last=False)
            return self._transports[url]


_process = _Process()


def perform(job: RestoreJob, run: Run) -> Delivery:
    """Do a job and return what came of it. Blocks."""
    process = _this_process()
    try:
        with process.portal as portal:
            source = process.source(
                (run.run_id, job.format, job.conversation_id, job.archive, job.snapshot, repr(job.context))
            )
            with source.lock:
                if source.record is None and source.error is None:
                    portal.call(_look_up, process, source, job, run)
            if source.record is None or source.store is None:
                return Delivery(job.target, error=source.error, attempts_count=0)
            restore = partial(deliver, job.target, source.record, source.store, job.context)
            return portal.call(partial(restore, retry=run.retry, target_seconds=run.target_seconds))
    except Exception as error:  # noqa: BLE001 - a fault is the outcome of this target alone
        return Delivery(job.target, error=fault(error), attempts_count=0)


def fault(error: Exception) -> UnavailableError:
    """Return what an error that nobody foresaw is told as: its type and where it was raised, not its own text."""
    frames = traceback.extract_tb(error.__traceback__)
    return UnavailableError(
        "internal",
        f"the worker met an unforeseen error: {type(error).__name__}",
        facts={
            "type": type(error).__name__,
            "where": " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames),
        },
    )


def _this_process() -> _Process:
    """Return what is of this process: a forked one has nothing that its parent had."""
    global _process  # noqa: PLW0603 - one for a process, by its nature
    if _process.process_id != os.getpid():
        _process = _Process()
    return _process


async def _look_up(process: _Process, source: _Source, job: RestoreJob, run: Run) -> None:
    """Find the conversation; its failure is that of all targets of this run."""
    # The variables are those of the sandbox; a conversation of the user's own is found by the user's.
    own = replace(job.context, variables={})
    try:
        store = await in_thread(_base, job)
        find = partial(store.locate, job.conversation_id, own)
        if job.archive is not None:
            transport = await in_thread(process.transport, job.archive.url)
            store = archived = await in_thread(job.archive.conversations, store, transport)
            find = partial(archived.locate, job.conversation_id, own, snapshot=job.snapshot)
        source.record = await Attempts(run.retry).run(find)
        source.store = store
    except OutpostError as error:
        source.error = error


def _base(job: RestoreJob) -> ConversationStore:
    """Return the store of the job's format; somebody's function may block."""
    return builtin_format(job.format) if isinstance(job.format, str) else job.format()
