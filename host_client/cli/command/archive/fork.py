"""`outpost archive fork`: another line of an archived conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from host_client.cli.archive_document import snapshot_document
from host_client.cli.archive_options import archive_options, snapshot_option
from host_client.cli.options import json_option
from host_client.cli.output import Output

if TYPE_CHECKING:
    from host_client.cli.archive_options import ArchivePlace


@click.command(short_help="Begin another line of an archived conversation.")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="ID")
@click.argument("new_id", metavar="NEW_ID")
@archive_options
@snapshot_option
@json_option
async def fork(
    format_name: str, conversation_id: str, new_id: str, *, place: ArchivePlace, snapshot: str, as_json: bool
) -> None:
    """Begin another line of the archived conversation ID of FORMAT, as NEW_ID.

    Both share what is stored. The conversation keeps its own id for the CLI: pulled, it is resumed by that.
    """
    made = await place.conversations(format_name).fork(conversation_id, new_id, snapshot=snapshot)
    document = {"format": format_name, "id": new_id, **snapshot_document(made)}
    origin = made.origin.snapshot_id if made.origin else ""
    Output(as_json).result(document, [f"forked {conversation_id} at {origin} as {new_id}"])
