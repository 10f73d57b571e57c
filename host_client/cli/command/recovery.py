"""`outpost recovery`: what restores have set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from host_client.agents.registry import builtin_format
from host_client.cli.local_time import local_time
from host_client.cli.options import json_option, place_options
from host_client.cli.output import Output
from host_client.sandbox.sandbox import connect
from host_client.stores.context import ConversationContext

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.group()
def recovery() -> None:
    """List, undo or prune what restores have set aside."""


@recovery.command("list")
@click.argument("target")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="[ID]", default="")
@place_options
@json_option
async def list_entries(
    target: str,
    format_name: str,
    conversation_id: str,
    *,
    variables: Sequence[tuple[str, str]],
    follow_root_link: bool,
    as_json: bool,
) -> None:
    """List set-aside sessions of FORMAT at TARGET, newest first."""
    store = builtin_format(format_name)
    async with connect(target) as sandbox:
        context = ConversationContext(sandbox=sandbox, variables=dict(variables), follow_root_link=follow_root_link)
        entries = [entry async for entry in store.list_recovery(context, conversation_id)]
    document: dict[str, object] = {
        "entries": [
            {
                "name": entry.name,
                "id": entry.conversation_id,
                "session": str(entry.session_path) if entry.session_path else None,
                "set_aside": entry.set_aside.isoformat(),
            }
            for entry in entries
        ]
    }
    lines = [f"{entry.name}  {local_time(entry.set_aside)}  {entry.session_path or '-'}" for entry in entries]
    Output(as_json).result(document, lines or ["nothing was set aside"])


@recovery.command(short_help="Put a set-aside session back.")
@click.argument("target")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="ID")
@click.option("--entry", default="", help="Name of the entry; default: the newest of the conversation.")
@click.option("--force", is_flag=True, help="Replace the session even when a running process has it open.")
@place_options
@json_option
async def undo(
    target: str,
    format_name: str,
    conversation_id: str,
    *,
    entry: str,
    force: bool,
    variables: Sequence[tuple[str, str]],
    follow_root_link: bool,
    as_json: bool,
) -> None:
    """Put a set-aside session back; what is there now is set aside in its place."""
    store = builtin_format(format_name)
    async with connect(target) as sandbox:
        context = ConversationContext(
            sandbox=sandbox, variables=dict(variables), follow_root_link=follow_root_link, force=force
        )
        undone = await store.undo_restore(conversation_id, context, entry)
    Output(as_json).result(
        {"target": str(undone.target), "recovery": undone.recovery or None},
        [f"put back  {undone.target}", *([f"set aside {undone.recovery}"] if undone.recovery else [])],
    )


@recovery.command()
@click.argument("target")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="[ID]", default="")
@click.option("--keep", type=click.IntRange(0), help="Keep that many of the newest of each conversation.")
@click.option("--older-than-days", type=click.IntRange(0, 36_500), help="Remove what was set aside longer ago.")
@place_options
@json_option
async def prune(
    target: str,
    format_name: str,
    conversation_id: str,
    *,
    keep: int | None,
    older_than_days: int | None,
    variables: Sequence[tuple[str, str]],
    follow_root_link: bool,
    as_json: bool,
) -> None:
    """Remove set-aside sessions of FORMAT at TARGET, by number or by age."""
    if keep is None and older_than_days is None:
        raise click.UsageError("say --keep or --older-than-days")
    store = builtin_format(format_name)
    async with connect(target) as sandbox:
        removed = await store.prune_recovery(
            ConversationContext(sandbox=sandbox, variables=dict(variables), follow_root_link=follow_root_link),
            conversation_id,
            keep_count=keep,
            older_than_seconds=None if older_than_days is None else older_than_days * 86_400,
        )
    Output(as_json).result({"removed": list(removed)}, [f"removed {name}" for name in removed] or ["nothing to remove"])
