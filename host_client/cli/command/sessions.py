"""`outpost sessions`: what a sandbox has of one format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from host_client.agents.registry import builtin_format
from host_client.cli.local_time import local_time
from host_client.cli.options import json_option, place_options
from host_client.cli.output import Output, size
from host_client.sandbox.sandbox import connect
from host_client.stores.context import ConversationContext

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@click.argument("target")
@click.argument("format_name", metavar="FORMAT")
@place_options
@json_option
async def sessions(
    target: str, format_name: str, *, variables: Sequence[tuple[str, str]], follow_root_link: bool, as_json: bool
) -> None:
    """List the sessions of FORMAT at TARGET."""
    store = builtin_format(format_name)
    async with connect(target) as sandbox:
        context = ConversationContext(sandbox=sandbox, variables=dict(variables), follow_root_link=follow_root_link)
        found = [item async for item in store.list_sessions(context)]
    document: dict[str, object] = {
        "sessions": [
            {
                "id": item.conversation_id,
                "path": str(item.path),
                "modified": item.modified.isoformat() if item.modified else None,
                "complete": item.complete,
                "in_use_pid": item.in_use_pid,
                "bytes": item.bytes_count,
            }
            for item in found
        ]
    }
    lines = []
    for item in found:
        modified = local_time(item.modified, "%Y-%m-%d %H:%M") if item.modified else "-".ljust(16)
        marks = [
            *([size(item.bytes_count)] if item.bytes_count is not None else []),
            *([] if item.complete else ["incomplete"]),
            *([f"in use by {item.in_use_pid}"] if item.in_use_pid else []),
        ]
        lines.append("  ".join([item.conversation_id, modified, str(item.path), *marks]))
    Output(as_json).result(document, lines or [f"no sessions of {format_name}"])
