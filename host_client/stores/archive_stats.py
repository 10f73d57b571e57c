"""What the snapshots of a namespace hold, and what they take in the store.

The one rule: no data is read; sizes are what indexes, manifests and listings say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.stores.in_order import each

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from host_client.stores.archive_index import Index, Snapshot
    from host_client.stores.archive_survey import ConversationName, Listed, Survey
    from host_client.transports.contract import ObjectInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationStats:
    """Sizes of one archived conversation.

    Attributes:
        name: The conversation.
        snapshots_count: Its snapshots.
        logical_bytes: Sum of the files of all snapshots, each counted whole.
        newest_bytes: Files of the newest snapshot.
        stored_bytes: What its index, its manifests and the data they name take in the store. Data that conversations
            share counts for each of them.
    """

    name: ConversationName
    snapshots_count: int
    logical_bytes: int
    newest_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveStats:
    """Sizes of a namespace.

    Attributes:
        conversations: Each conversation, by name.
        snapshots_count: All snapshots.
        objects_count: All data objects.
        logical_bytes: Sum of the files of all snapshots, each counted whole.
        newest_bytes: Files of the newest snapshot of each conversation.
        stored_bytes: All that the namespace takes in the store: data, indexes, manifests and marks.
        referenced_bytes: What the data that snapshots name takes.
        unreferenced_bytes: What other data takes; prune removes it in time.
        marked_bytes: What of the unreferenced data has been marked by prune.
    """

    conversations: Sequence[ConversationStats]
    snapshots_count: int
    objects_count: int
    logical_bytes: int
    newest_bytes: int
    stored_bytes: int
    referenced_bytes: int
    unreferenced_bytes: int
    marked_bytes: int

    @property
    def ratio(self) -> float:
        """How many bytes of snapshots one stored byte holds; 0 when nothing is stored."""
        return self.logical_bytes / self.stored_bytes if self.stored_bytes else 0.0


async def measure(survey: Survey) -> ArchiveStats:
    """Measure a namespace."""
    listed = await survey.conversations()
    indexes: dict[ConversationName, Index] = {}

    async def read_index(name: ConversationName) -> None:
        if listed[name].index and (read := await survey.index(name)):
            indexes[name] = read.index

    await each(listed, read_index)
    names = await _data_names(survey, indexes)
    data = await survey.data()
    marks = await survey.marks()
    conversations = [_of(name, indexes[name], listed[name], names[name], data) for name in listed if name in indexes]
    referenced = set().union(*names.values())
    everything = [info for found in listed.values() for info in (found.index, *found.manifests.values()) if info]
    return ArchiveStats(
        conversations=conversations,
        snapshots_count=sum(found.snapshots_count for found in conversations),
        objects_count=len(data),
        logical_bytes=sum(found.logical_bytes for found in conversations),
        newest_bytes=sum(found.newest_bytes for found in conversations),
        stored_bytes=_stored((*everything, *data.values(), *marks.values())),
        referenced_bytes=_stored(info for name, info in data.items() if name in referenced),
        unreferenced_bytes=_stored(info for name, info in data.items() if name not in referenced),
        marked_bytes=_stored(info for name, info in data.items() if name in marks and name not in referenced),
    )


async def _data_names(survey: Survey, indexes: dict[ConversationName, Index]) -> dict[ConversationName, set[str]]:
    """Return which data each conversation needs."""
    names: dict[ConversationName, set[str]] = {name: set() for name in indexes}

    async def read_manifest(item: tuple[ConversationName, Index, Snapshot]) -> None:
        name, index, snapshot = item
        manifest = await survey.current_manifest(index, snapshot)
        if manifest is not None:
            names[name].update(chunk.name for chunk in manifest.chunks)

    snapshots = ((name, index, snapshot) for name, index in indexes.items() for snapshot in index.entries)
    await each(snapshots, read_manifest)
    return names


def _of(
    name: ConversationName, index: Index, listed: Listed, names: set[str], data: dict[str, ObjectInfo]
) -> ConversationStats:
    manifests = (listed.manifests.get(entry.snapshot_id) for entry in index.entries)
    infos = (listed.index, *manifests, *map(data.get, names))
    return ConversationStats(
        name=name,
        snapshots_count=len(index.entries),
        logical_bytes=sum(entry.bytes_count for entry in index.entries),
        newest_bytes=index.head.bytes_count,
        stored_bytes=_stored(info for info in infos if info),
    )


def _stored(infos: Iterable[ObjectInfo]) -> int:
    return sum(info.stored_bytes for info in infos)
