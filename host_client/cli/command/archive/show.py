"""`outpost archive show`: what was said in an archived conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from host_client.agents.message_reading import read_messages
from host_client.cli.archive_document import archived_document
from host_client.cli.archive_options import archive_options, cache_option, snapshot_option
from host_client.cli.conversation import Selection
from host_client.cli.options import json_option, limit_options, limits, shown_options
from host_client.cli.output import Output
from host_client.cli.record import notice_notes
from host_client.cli.showing import Wanted
from host_client.cli.showing import show as show_messages
from host_client.stores.context import ConversationContext

if TYPE_CHECKING:
    from pathlib import Path

    from host_client.cli.archive_options import ArchivePlace


@click.command(short_help="Print what was said in an archived conversation.")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="ID")
@archive_options
@snapshot_option
@cache_option
@shown_options
@limit_options
@json_option
async def show(
    format_name: str,
    conversation_id: str,
    *,
    place: ArchivePlace,
    snapshot: str,
    cache: Path | None,
    last_count: int | None,
    has_tools: bool,
    has_reasoning: bool,
    page: str,
    max_bytes: int | None,
    max_files: int | None,
    as_json: bool,
) -> None:
    """Print what was said in the archived conversation ID of FORMAT, up to a snapshot. Nothing is changed."""
    output = Output(as_json)
    wanted = Wanted(selection=Selection(has_tools, has_reasoning), last_count=last_count, page=page)
    context = ConversationContext(limits=limits(max_bytes, max_files, format_name), allow_empty=True)
    store = place.conversations(format_name, cache=cache)
    async with store.opened(conversation_id, context, snapshot=snapshot) as record:
        for note in notice_notes(record.notices):
            output.note(note)
        archived = {name: str(value) for name, value in archived_document(record).items()}
        facts = {"format": format_name, "id": record.conversation_id, "path": str(record.path), **archived}
        await show_messages(read_messages(record), facts, wanted, output)
