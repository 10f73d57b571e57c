"""What archives hold, as plain data and as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.cli.local_time import local_time
from host_client.cli.output import size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from host_client.stores.archive_index import Snapshot
    from host_client.stores.archive_survey import ConversationName, SnapshotName
    from host_client.stores.contract import ConversationRecord


def snapshot_document(snapshot: Snapshot) -> dict[str, object]:
    """Return a snapshot as plain data."""
    origin = snapshot.origin
    return {
        "snapshot": snapshot.snapshot_id,
        "parent": snapshot.parent or None,
        "created": snapshot.created_at.isoformat(),
        "digest": snapshot.digest,
        "files": snapshot.files_count,
        "bytes": snapshot.bytes_count,
        "added_bytes": snapshot.added_bytes,
        "diverged": snapshot.diverged,
        "origin": {"id": origin.archive_id, "snapshot": origin.snapshot_id} if origin else None,
    }


def snapshot_line(snapshot: Snapshot) -> str:
    """Tell a snapshot in one line."""
    marks = [
        *(["diverged"] if snapshot.diverged else []),
        *([f"forked from {snapshot.origin.archive_id}"] if snapshot.origin else []),
    ]
    told = [
        snapshot.snapshot_id,
        local_time(snapshot.created_at),
        size(snapshot.bytes_count),
        f"+{size(snapshot.added_bytes)}",
    ]
    return "  ".join([*told, f"after {snapshot.parent[:12]}" if snapshot.parent else "first", *marks])


def archived_document(record: ConversationRecord) -> dict[str, object]:
    """Return where a record is archived as plain data."""
    reference = record.reference
    return {
        "archive_id": getattr(reference, "archive_id", None),
        "snapshot": getattr(reference, "snapshot_id", None),
        "store": getattr(reference, "transport_name", None),
        "namespace": getattr(reference, "namespace", None),
    }


def name_documents(names: Iterable[ConversationName]) -> list[dict[str, str]]:
    """Return names of conversations as plain data."""
    return [{"format": name.format, "id": name.id} for name in names]


def snapshot_name_documents(names: Iterable[SnapshotName]) -> list[dict[str, str]]:
    """Return names of snapshots as plain data."""
    return [{"format": name.format, "id": name.id, "snapshot": name.snapshot_id} for name in names]
