"""`outpost show`: what was said in a conversation that is kept on this host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from host_client.agents.message_reading import read_message_file, read_messages
from host_client.agents.registry import builtin_format
from host_client.cli.conversation import Selection
from host_client.cli.options import host_options, json_option, limit_options, limits, shown_options
from host_client.cli.output import Output
from host_client.cli.record import notice_notes
from host_client.cli.showing import Wanted
from host_client.cli.showing import show as show_messages
from host_client.sandbox.task import in_thread
from host_client.stores.context import ConversationContext

if TYPE_CHECKING:
    from host_client.agents.message_reading import Messages


@click.command(short_help="Print what was said in a conversation.")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="[ID]", required=False)
@click.option("--file", "host_path", type=click.Path(path_type=Path), help="Show this file instead of a kept copy.")
@shown_options
@host_options
@limit_options
@click.option("--follow-root-link", is_flag=True, help="Accept a CLI home that is itself a symbolic link.")
@json_option
async def show(
    format_name: str,
    conversation_id: str | None,
    *,
    host_path: Path | None,
    last_count: int | None,
    has_tools: bool,
    has_reasoning: bool,
    page: str,
    repository: Path,
    home: Path | None,
    max_bytes: int | None,
    max_files: int | None,
    follow_root_link: bool,
    as_json: bool,
) -> None:
    """Print what was said in the kept conversation ID of FORMAT, or in a FILE.

    A FILE that ends with .jsonl or .jsonl.zst is a transcript as the CLI writes it; any other is a bundle that a
    capture made. Nothing is changed in either.
    """
    output = Output(as_json)
    wanted = Wanted(selection=Selection(has_tools, has_reasoning), last_count=last_count, page=page)
    if (host_path is None) == (conversation_id is None):
        raise click.UsageError("give either the ID of a conversation, or --file")
    messages: Messages
    if host_path is not None:
        messages = await in_thread(read_message_file, format_name, host_path)
        facts = {"format": format_name, "id": "", "path": str(host_path)}
    else:
        context = ConversationContext(
            repository=repository,
            conversation_home=home,
            follow_root_link=follow_root_link,
            limits=limits(max_bytes, max_files, format_name),
            allow_empty=True,
        )
        record = await builtin_format(format_name).locate(conversation_id or "", context)
        for note in notice_notes(record.notices):
            output.note(note)
        messages = read_messages(record)
        facts = {"format": format_name, "id": record.conversation_id, "path": str(record.path)}
    await show_messages(messages, facts, wanted, output)
