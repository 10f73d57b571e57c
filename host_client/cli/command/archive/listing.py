"""`outpost archive list` and `stats`: what a namespace holds, and what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from host_client.cli.archive_document import snapshot_document
from host_client.cli.archive_options import archive_options
from host_client.cli.local_time import local_time
from host_client.cli.options import json_option
from host_client.cli.output import Output, size

if TYPE_CHECKING:
    from host_client.cli.archive_options import ArchivePlace


@click.command("list")
@archive_options
@json_option
async def list_conversations(*, place: ArchivePlace, as_json: bool) -> None:
    """List the conversations of a namespace."""
    found = [one async for one in place.archive().conversations()]
    document: dict[str, object] = {
        "conversations": [
            {
                "format": one.format,
                "id": one.id,
                "native_id": one.native_id,
                "snapshot_count": one.snapshots_count,
                "newest": snapshot_document(one.newest),
            }
            for one in found
        ]
    }
    lines = [
        "  ".join(
            [
                one.format.ljust(8),
                one.id,
                local_time(one.newest.created_at),
                f"{one.snapshots_count} snapshot(s)",
                size(one.newest.bytes_count),
                *([f"is {one.native_id}"] if one.native_id != one.id else []),
            ]
        )
        for one in found
    ]
    Output(as_json).result(document, lines or ["no conversations"])


@click.command()
@archive_options
@json_option
async def stats(*, place: ArchivePlace, as_json: bool) -> None:
    """Tell what the snapshots of a namespace hold, and what they take in the store."""
    found = await place.archive().stats()
    document = {
        "snapshot_count": found.snapshots_count,
        "object_count": found.objects_count,
        "logical_bytes": found.logical_bytes,
        "newest_bytes": found.newest_bytes,
        "stored_bytes": found.stored_bytes,
        "referenced_bytes": found.referenced_bytes,
        "unreferenced_bytes": found.unreferenced_bytes,
        "marked_bytes": found.marked_bytes,
        "ratio": round(found.ratio, 3),
        "conversations": [
            {
                "format": one.name.format,
                "id": one.name.id,
                "snapshot_count": one.snapshots_count,
                "logical_bytes": one.logical_bytes,
                "newest_bytes": one.newest_bytes,
                "stored_bytes": one.stored_bytes,
            }
            for one in found.conversations
        ],
    }
    Output(as_json).result(
        document,
        [
            f"conversations {len(found.conversations)}",
            f"snapshots     {found.snapshots_count}",
            f"objects       {found.objects_count}",
            f"held          {size(found.logical_bytes)} in all snapshots, {size(found.newest_bytes)} in the newest",
            f"stored        {size(found.stored_bytes)}, ratio {found.ratio:.1f}",
            f"unreferenced  {size(found.unreferenced_bytes)}, of which {size(found.marked_bytes)} are marked",
        ],
    )
