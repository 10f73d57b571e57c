"""`outpost archive log`: the snapshots of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from host_client.cli.archive_document import snapshot_document, snapshot_line
from host_client.cli.archive_options import archive_options
from host_client.cli.options import json_option
from host_client.cli.output import Output

if TYPE_CHECKING:
    from host_client.cli.archive_options import ArchivePlace


@click.command(short_help="List the snapshots of a conversation.")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="ID")
@archive_options
@json_option
async def log(format_name: str, conversation_id: str, *, place: ArchivePlace, as_json: bool) -> None:
    """List the snapshots of the archived conversation ID of FORMAT, newest first."""
    found = list(reversed(await place.conversations(format_name).history(conversation_id)))
    document = {
        "format": format_name,
        "id": conversation_id,
        "snapshots": [snapshot_document(snapshot) for snapshot in found],
    }
    Output(as_json).result(document, [snapshot_line(snapshot) for snapshot in found])
