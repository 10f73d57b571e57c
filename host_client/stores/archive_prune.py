"""Removing old snapshots, and what no snapshot needs any more, while others write.

The one rule: nothing is removed that an index names, or that a writer who looked less than the grace period ago may be
about to name. That is why data goes in two steps: it is marked, which tells writers not to count on it, and removed
when the mark is older than the grace period and every index, read after that, still does not name it.

Times are compared with each other only when they are the store's. What cannot be read stops prune before anything goes;
what is not exactly a key of this namespace is not touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from host_client.errors import ConfigurationError, ConflictError, UnavailableError
from host_client.sandbox.task import in_thread
from host_client.stores.archive_index import encode_index
from host_client.stores.archive_survey import ConversationName, SnapshotName
from host_client.stores.in_order import each, in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from host_client.stores.archive_index import Index, Snapshot
    from host_client.stores.archive_read import StoredIndex
    from host_client.stores.archive_retention import PruneRules
    from host_client.stores.archive_survey import Listed, Survey
    from host_client.transports.contract import ObjectInfo

GRACE_SECONDS: Final = 24 * 60 * 60
"""How long what nobody names is left alone, unless the caller says otherwise."""

_MAX_PROBE_SECONDS: Final = 60 * 60
_CLOCK_STEP: Final = timedelta(seconds=1)
"""What two times of one store may differ by although one came first: some tell only seconds."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """What prune did, or would do.

    Attributes:
        removed: Snapshots that are in their index no more, by name.
        kept_count: Snapshots that stay.
        skipped: Conversations that somebody wrote to meanwhile: they are as they were.
        marked_count: Data objects that were marked, and go in a later run.
        marked_bytes: What they take in the store.
        removed_count: Data objects and manifests that were removed.
        removed_bytes: What they took in the store.
        is_dry_run: Nothing was done.
    """

    removed: Sequence[SnapshotName]
    kept_count: int
    skipped: Sequence[ConversationName]
    marked_count: int
    marked_bytes: int
    removed_count: int
    removed_bytes: int
    is_dry_run: bool


@dataclass(slots=True)
class _Sum:
    count: int = 0
    bytes: int = 0

    def add(self, info: ObjectInfo) -> None:
        self.count += 1
        self.bytes += info.stored_bytes


@dataclass(slots=True)
class _Plan:
    """What one index becomes."""

    name: ConversationName
    read: StoredIndex
    removed: list[str] = field(default_factory=list)


class Pruning:
    """One run over a namespace.

    Args:
        survey: Reads it.
        rules: Which snapshots stay.
        grace_seconds: Longer than a push takes, or more than ten minutes; 0: nobody writes.
        dry_run: Whether only to tell what would be done.

    Raises:
        ConfigurationError: `invalid_argument`: a grace period below 0.
    """

    def __init__(self, survey: Survey, rules: PruneRules, *, grace_seconds: float, dry_run: bool) -> None:
        if not grace_seconds >= 0:
            raise ConfigurationError("invalid_argument", "grace_seconds is less than 0")
        self._survey = survey
        self._transport = survey.transport
        self._layout = survey.layout
        self._rules = rules
        self._grace_seconds = grace_seconds
        self._is_dry_run = dry_run
        self._needed: set[str] = set()  # names of data
        self._known: set[SnapshotName] = set()  # whose data is among them
        self._named_before: set[SnapshotName] = set()
        self._gone: set[SnapshotName] = set()
        self._skipped: list[ConversationName] = []
        self._marked, self._removed = _Sum(), _Sum()

    async def run(self) -> PruneReport:
        """Do it."""
        now = await self._store_time()
        plans = await self._plan(now)
        kept = [(plan.read.index, entry) for plan in plans for entry in _kept(plan)]
        # Before the first change: what cannot be read must not lose what is needed to repair it.
        await self._read_manifests(kept)
        for plan in plans:
            if plan.removed:
                await self._shorten(plan)
        await self._collect(now)
        if self._grace_seconds == 0 and not self._is_dry_run:
            self._marked = _Sum()  # what was marked goes now, and is counted as removed
            await self._collect(now)
        return PruneReport(
            removed=sorted(self._gone),
            kept_count=sum(len(plan.read.index.entries) for plan in plans) - len(self._gone),
            skipped=self._skipped,
            marked_count=self._marked.count,
            marked_bytes=self._marked.bytes,
            removed_count=self._removed.count,
            removed_bytes=self._removed.bytes,
            is_dry_run=self._is_dry_run,
        )

    async def _store_time(self) -> datetime:
        """Return what time it is by the clock of the store, or a moment earlier."""
        key = self._layout.probe_key()
        await self._transport.write(key, b"", if_revision=None)
        info = await self._transport.stat(key)
        await self._transport.remove(key)
        if info is None:
            raise UnavailableError("store_unreachable", f"the object {key}, which was just written, is not there")
        return info.modified

    async def _plan(self, now: datetime) -> list[_Plan]:
        plans: list[_Plan] = []
        for name, read, listed in await self._indexes():
            self._named_before |= {SnapshotName(*name, entry.snapshot_id) for entry in read.index.entries}
            plans.append(_Plan(name, read, self._rules.removed(read.index, listed, now)))
        return plans

    async def _indexes(self) -> list[tuple[ConversationName, StoredIndex, Listed]]:
        """List all conversations and read their indexes."""
        found: list[tuple[ConversationName, StoredIndex, Listed]] = []

        async def read(item: tuple[ConversationName, Listed]) -> None:
            name, listed = item
            index = await self._survey.index(name) if listed.index else None
            if index is not None:
                found.append((name, index, listed))

        await each((await self._survey.conversations()).items(), read)
        return sorted(found, key=lambda item: item[0])

    async def _read_manifests(self, snapshots: Iterable[tuple[Index, Snapshot]]) -> None:
        """Remember which data some snapshots need."""

        async def read(item: tuple[Index, Snapshot]) -> None:
            index, snapshot = item
            name = SnapshotName(index.format, index.id, snapshot.snapshot_id)
            if name in self._known:
                return
            manifest = await self._survey.current_manifest(index, snapshot)
            if manifest is not None:
                self._needed.update(chunk.name for chunk in manifest.chunks)
                self._known.add(name)

        await each(snapshots, read)

    async def _shorten(self, plan: _Plan) -> None:
        """Take snapshots out of an index."""
        gone = {SnapshotName(*plan.name, snapshot_id) for snapshot_id in plan.removed}
        if not self._is_dry_run:
            key = self._layout.index_key(*plan.name)
            index = plan.read.index.without(plan.removed)
            data = await in_thread(encode_index, index, self._survey.codec, about=key)
            try:
                await self._transport.write(key, data, if_revision=plan.read.revision)
            except ConflictError as error:
                if error.reason != "stale_revision":
                    raise
                self._skipped.append(plan.name)
                return
        self._gone |= gone

    async def _collect(self, now: datetime) -> None:
        """Mark what nobody needs, and remove what was marked long enough ago."""
        # All that may go is listed before the indexes are read: what is named by then is safe from what follows.
        data = await self._survey.data()
        marks = await self._survey.marks()
        listed = await self._survey.conversations()
        named = await self._read_again(listed)
        unneeded = {name: info for name, info in data.items() if name not in self._needed}
        judged = ((mark, unneeded.get(name)) for name, mark in marks.items())
        await each(((mark, info, now) for mark, info in judged), self._follow_up)
        old = ((name, info) for name, info in unneeded.items() if name not in marks and self._is_past(info, now))
        await each(old, self._mark)
        manifests = (
            info
            for conversation, found in listed.items()
            for snapshot_id, info in found.manifests.items()
            if self._may_go(SnapshotName(*conversation, snapshot_id), named) and self._is_past(info, now)
        )
        await each(manifests, self._remove_counted)
        await self._remove_probes(now)

    async def _read_again(self, listed: dict[ConversationName, Listed]) -> set[SnapshotName]:
        """Read all indexes, and the manifests that are new; return the snapshots that are named."""
        names = [name for name, found in listed.items() if found.index]
        entries: list[tuple[Index, Snapshot]] = []

        async def use(read: StoredIndex | None) -> None:
            if read is not None:
                entries.extend((read.index, entry) for entry in read.index.entries)

        await in_order(names, self._survey.index, use)
        current = {
            name: (index, entry)
            for index, entry in entries
            # In a dry run they are still there.
            if (name := SnapshotName(index.format, index.id, entry.snapshot_id)) not in self._gone
        }
        await self._read_manifests(current.values())
        return set(current)

    def _is_past(self, info: ObjectInfo, now: datetime) -> bool:
        return self._grace_seconds == 0 or (now - info.modified).total_seconds() >= self._grace_seconds

    def _may_go(self, snapshot: SnapshotName, named: set[SnapshotName]) -> bool:
        """Tell whether the manifest of a snapshot may go.

        One that was named when this run began stays until the next, for those who have read the index and are about to
        read it.
        """
        return snapshot not in named and (self._grace_seconds == 0 or snapshot not in self._named_before)

    async def _mark(self, unneeded: tuple[str, ObjectInfo]) -> None:
        """Mark a data object; without a grace period a dry run has no second pass that would remove it."""
        name, info = unneeded
        if self._is_dry_run and self._grace_seconds == 0:
            self._removed.add(info)
            return
        self._marked.add(info)
        if self._is_dry_run:
            return
        try:
            await self._transport.write(self._layout.mark_key(name), b"", if_revision=None)
        except ConflictError as error:
            if error.reason != "stale_revision":  # else another prune has marked it
                raise

    async def _follow_up(self, marked: tuple[ObjectInfo, ObjectInfo | None, datetime]) -> None:
        """Do what a mark is for: remove its object, or the mark if the object is needed again or gone."""
        mark, info, now = marked
        if info is None:
            await self._remove(mark)
        elif self._is_past(mark, now):
            found = await self._transport.stat(info.key)
            # One younger than its mark is not what was marked: another prune removed that, and it was written again.
            is_marked_one = found is not None and (
                self._grace_seconds == 0 or found.modified + _CLOCK_STEP < mark.modified
            )
            if is_marked_one and await self._transport.stat(mark.key) is None:
                return  # another prune found it named; who began since then counts on it
            if found is not None and is_marked_one:
                await self._remove_counted(found)
            await self._remove(mark)

    async def _remove_counted(self, info: ObjectInfo) -> None:
        await self._remove(info)
        self._removed.add(info)

    async def _remove(self, info: ObjectInfo) -> None:
        if not self._is_dry_run:
            await self._transport.remove(info.key)

    async def _remove_probes(self, now: datetime) -> None:
        """Remove what runs that were killed have left of finding out what time it is."""
        prefix = f"probe/{self._layout.namespace}"
        async for info in self._transport.list(prefix):
            age_seconds = (now - info.modified).total_seconds()
            if _UUID.fullmatch(info.key, len(prefix) + 1) and age_seconds >= _MAX_PROBE_SECONDS:
                await self._remove(info)


def _kept(plan: _Plan) -> list[Snapshot]:
    removed = set(plan.removed)
    return [entry for entry in plan.read.index.entries if entry.snapshot_id not in removed]
