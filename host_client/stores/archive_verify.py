"""Whether everything that the snapshots of a namespace name is there, undamaged and what it was when it was archived.

The one rule: all that is wrong is told, with who is hurt by it; what others write or prune meanwhile is never told as
damage. Nothing is changed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from host_client.errors import LimitError, OutpostError, SessionError
from host_client.sandbox.task import in_thread, task_group
from host_client.stores.archive_batch import VerifiedObject, batches, other_files, read_batch
from host_client.stores.archive_schedule import Schedule, Wanted, parts
from host_client.stores.archive_survey import ConversationName, SnapshotName
from host_client.stores.in_order import each, in_order
from sandbox_api.manifest import bundle_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from host_client.stores.archive_index import Index, Snapshot
    from host_client.stores.archive_manifest import FileReference, Manifest
    from host_client.stores.archive_schedule import Part
    from host_client.stores.archive_survey import Listed, Survey

_EMPTY: Final = hashlib.sha256().hexdigest()
_AT_ONCE_COUNT: Final = 500
"""Files and chunks of a snapshot that are planned within a millisecond: less than a step in a thread may take."""


@dataclass(frozen=True, slots=True)
class ArchiveFinding:
    """Something that is wrong with an archive.

    Attributes:
        reason: `missing_object`, `digest_mismatch`, `corrupt`, `incomplete`, `tampered`, `wrong_key` or, of what a
            newer version wrote, `not_supported`; as in the table of errors.
        key: The object.
        message: One sentence for people, without a final stop.
        snapshots: Those that cannot be restored because of it; of an index that cannot be read none is named.
        hint: What to do about it; may be empty.
    """

    reason: str
    key: str
    message: str
    snapshots: Sequence[SnapshotName] = ()
    hint: str = ""


@dataclass(frozen=True, slots=True)
class VerifiedConversation:
    """What was found out about a conversation.

    Attributes:
        name: The conversation.
        snapshots_count: Its snapshots; 0: its index cannot be read.
        hurt: Ids of those that cannot be restored, oldest first.
    """

    name: ConversationName
    snapshots_count: int
    hurt: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all of its snapshots can be restored."""
        return self.snapshots_count > 0 and not self.hurt


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What `verify` found.

    Attributes:
        conversations: Those that were looked at, by name.
        snapshots_count: Their snapshots.
        objects_count: Data objects that the snapshots name.
        bytes_count: Content of the data objects that was read and hashed.
        stored_bytes: What they took in the store.
        findings: Everything that is wrong, by key.
        unreferenced_count: Data objects that no readable snapshot names: what a push that failed, or that is under way,
            has left, and what prune has not removed yet; None when only some conversations were looked at.
        unindexed: Conversations with manifests and without an index: a first push that failed or is under way. If that
            cannot be, the index was lost.
    """

    conversations: Sequence[VerifiedConversation]
    snapshots_count: int
    objects_count: int
    bytes_count: int
    stored_bytes: int
    findings: Sequence[ArchiveFinding]
    unreferenced_count: int | None
    unindexed: Sequence[ConversationName]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


@dataclass(slots=True)
class _Finding:
    reason: str
    message: str
    hint: str
    snapshots: set[SnapshotName] = field(default_factory=set)


class Verification:
    """One run over a namespace.

    Args:
        survey: Reads it.
        concurrency_count: Reads that are under way at a time.
    """

    def __init__(self, survey: Survey, *, concurrency_count: int) -> None:
        self._survey = survey
        self._concurrency_count = concurrency_count
        self._findings: dict[tuple[str, str], _Finding] = {}
        self._schedule: Schedule[SnapshotName] = Schedule()
        self._indexes: dict[ConversationName, Index] = {}
        self._unreadable: set[ConversationName] = set()
        self._named: set[Wanted] = set()
        self._bytes_count = 0
        self._stored_bytes = 0

    async def run(
        self, listed: dict[ConversationName, Listed], *, read_data: bool, count_unreferenced: bool
    ) -> VerifyReport:
        """Verify conversations that were listed."""
        indexed = [name for name, found in listed.items() if found.index]
        await each(indexed, self._read_index, concurrency_count=self._concurrency_count)
        snapshots = ((index, snapshot) for index in self._indexes.values() for snapshot in index.entries)
        await in_order(snapshots, self._read_manifest, self._take, concurrency_count=self._concurrency_count)
        async with task_group() as group:
            # Listed after what names them was read, so that what is named is either there or missing.
            listing = group.create_task(self._survey.data()) if count_unreferenced or not read_data else None
            if read_data:
                planned = batches(self._schedule.order(), self._survey)
                await in_order(planned, self._read_batch, self._hash, concurrency_count=self._concurrency_count)
        data = listing.result() if listing else {}
        if not read_data:
            for wanted in self._named:
                if wanted.name not in data:
                    self._miss(wanted)
        await self._settle()
        names = {wanted.name for wanted in self._named}
        findings = sorted(self._findings.items())
        return VerifyReport(
            conversations=[self._verified(name) for name in indexed if self._is_known(name)],
            snapshots_count=sum(len(index.entries) for index in self._indexes.values()),
            objects_count=len(names),
            bytes_count=self._bytes_count,
            stored_bytes=self._stored_bytes,
            findings=[
                ArchiveFinding(found.reason, key, found.message, sorted(found.snapshots), found.hint)
                for (key, _), found in findings
            ],
            unreferenced_count=len(data.keys() - names) if count_unreferenced else None,
            unindexed=[name for name, found in listed.items() if not found.index],
        )

    async def _read_index(self, name: ConversationName) -> None:
        try:
            read = await self._survey.index(name)
        except OutpostError as error:
            self._note(error, self._survey.layout.index_key(*name), ())
            self._unreadable.add(name)
        else:
            if read is not None:  # else it was removed meanwhile
                self._indexes[name] = read.index

    async def _read_manifest(self, named: tuple[Index, Snapshot]) -> tuple[SnapshotName, Manifest] | None:
        index, snapshot = named
        name = SnapshotName(index.format, index.id, snapshot.snapshot_id)
        key = self._survey.layout.snapshot_key(*name)
        try:
            manifest = await self._survey.manifest(index, snapshot)
        except OutpostError as error:
            self._note(error, key, (name,))
            return None
        return name, manifest

    async def _take(self, read: tuple[SnapshotName, Manifest] | None) -> None:
        if read is None:
            return
        name, manifest = read
        if sum(len(stream.files) + len(stream.chunks) for stream in manifest.streams) <= _AT_ONCE_COUNT:
            self._plan(name, manifest)
        else:
            await in_thread(self._plan, name, manifest)

    def _plan(self, name: SnapshotName, manifest: Manifest) -> None:
        """Add the files of a snapshot to what is to be hashed. One snapshot at a time."""
        if bundle_digest(file.entry for file in manifest.files).hex() != manifest.digest:
            self._add(
                "digest_mismatch",
                self._survey.layout.snapshot_key(*name),
                "the files of a snapshot do not have the digest of the whole",
                (name,),
            )
        for stream in manifest.streams:
            chunks = [Wanted(chunk.name, chunk.size) for chunk in stream.chunks]
            self._named.update(chunks)
            found = parts((file.size for file in stream.files), chunks)
            for file, pieces in zip(stream.files, found, strict=True):
                self._plan_file(name, file, pieces)

    def _plan_file(self, name: SnapshotName, file: FileReference, pieces: Sequence[Part]) -> None:
        if pieces:
            self._schedule.add(pieces, file.sha256, name)
        elif file.sha256 != _EMPTY:
            self._differs(file.sha256, (name,))

    async def _read_batch(self, batch: list[VerifiedObject[SnapshotName]]) -> list[VerifiedObject[SnapshotName]]:
        for item in await read_batch(batch, self._survey):
            if item.error is not None:
                self._note(item.error, item.key, self._schedule.hurt(item.wanted))
            elif item.stored is None or item.content is None:
                self._miss(item.wanted)
            else:
                self._bytes_count += len(item.content)
                self._stored_bytes += len(item.stored)
        return batch

    async def _hash(self, batch: Sequence[VerifiedObject[SnapshotName]]) -> None:
        for sha256, owners in await in_thread(other_files, batch):
            self._differs(sha256, owners)

    def _differs(self, sha256: str, owners: Iterable[SnapshotName]) -> None:
        for name in owners:
            key = self._survey.layout.snapshot_key(*name)
            self._add("digest_mismatch", key, f"a file of a snapshot does not have the SHA-256 {sha256}", (name,))

    def _miss(self, wanted: Wanted) -> None:
        key = self._survey.layout.data_key(wanted.name)
        self._add("missing_object", key, "data that a snapshot names is not in the store", self._schedule.hurt(wanted))

    def _note(self, error: OutpostError, key: str, snapshots: Iterable[SnapshotName]) -> None:
        """Note what is wrong with an object, or raise what is wrong with the store."""
        reason = error.reason
        if isinstance(error, LimitError) and reason == "max_bytes":
            reason = "corrupt"  # larger than what it is said to be
        elif not isinstance(error, SessionError) and reason not in ("wrong_key", "not_supported"):
            raise error
        self._add(reason, key, error.message, snapshots, hint=error.hint)

    def _add(self, reason: str, key: str, message: str, snapshots: Iterable[SnapshotName], *, hint: str = "") -> None:
        self._findings.setdefault((key, reason), _Finding(reason, message, hint)).snapshots.update(snapshots)

    async def _settle(self) -> None:
        """Drop what is missing only because it was pruned after its index was read."""
        missing = {key: found for key, found in self._findings.items() if found.reason == "missing_object"}
        again: dict[ConversationName, Index | None] = {}
        for name in sorted({snapshot.conversation for found in missing.values() for snapshot in found.snapshots}):
            try:
                read = await self._survey.index(name)
            except OutpostError as error:
                self._note(error, self._survey.layout.index_key(*name), ())
                again[name] = self._indexes[name]
            else:
                again[name] = read.index if read else None
        still = {
            SnapshotName(*name, entry.snapshot_id) for name, index in again.items() if index for entry in index.entries
        }
        for key, found in missing.items():
            found.snapshots &= still
            if not found.snapshots:
                del self._findings[key]

    def _is_known(self, name: ConversationName) -> bool:
        return name in self._indexes or name in self._unreadable

    def _verified(self, name: ConversationName) -> VerifiedConversation:
        index = self._indexes.get(name)
        if index is None:
            return VerifiedConversation(name, 0)
        broken = {snapshot for found in self._findings.values() for snapshot in found.snapshots}
        hurt = [entry.snapshot_id for entry in index.entries if SnapshotName(*name, entry.snapshot_id) in broken]
        return VerifiedConversation(name, len(index.entries), hurt)
