"""`outpost capture`: a session out of a sandbox, onto this host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from host_client.agents.registry import builtin_format
from host_client.cli.options import (
    capture_options,
    durability_option,
    host_options,
    json_option,
    limit_options,
    limits,
    place_options,
)
from host_client.cli.output import Output, size
from host_client.cli.progress import shown_progress
from host_client.cli.record import capture_notes, record_document, redaction_lines
from host_client.cli.redaction import redaction_options
from host_client.sandbox.sandbox import connect
from host_client.stores.context import ConversationContext

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from host_client.session.redaction import Redaction


@click.command(short_help="Copy a session out of TARGET to this host.")
@click.argument("target")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="ID")
@host_options
@place_options
@limit_options
@durability_option
@redaction_options
@capture_options
@json_option
async def capture(
    target: str,
    format_name: str,
    conversation_id: str,
    *,
    repository: Path,
    home: Path | None,
    variables: Sequence[tuple[str, str]],
    follow_root_link: bool,
    max_bytes: int | None,
    max_files: int | None,
    durability: Literal["full", "none"],
    redaction: Redaction | None,
    skip_links: bool,
    retries: int,
    allow_empty: bool,
    as_json: bool,
) -> None:
    """Copy session ID of FORMAT out of TARGET and keep it on this host."""
    store = builtin_format(format_name)
    output = Output(as_json)
    with shown_progress(f"capturing {conversation_id}", as_json=as_json) as progress:
        async with connect(target, limits=limits(max_bytes, max_files, format_name)) as sandbox:
            record = await store.capture(
                conversation_id,
                ConversationContext(
                    sandbox=sandbox,
                    repository=repository,
                    conversation_home=home,
                    variables=dict(variables),
                    follow_root_link=follow_root_link,
                    limits=limits(max_bytes, max_files, format_name),
                    durability=durability,
                    redaction=redaction,
                    skip_links=skip_links,
                    retries=retries,
                    allow_empty=allow_empty,
                    progress=progress,
                ),
            )
    for note in capture_notes(record):
        output.note(note)
    output.result(
        record_document(record),
        [
            f"captured {record.files_count} files, {size(record.bytes_count)}",
            f"moved  {size(record.received_bytes)} in {record.duration_seconds:.2f} s",
            f"digest {record.digest}",
            *redaction_lines(record),
            f"kept   {record.path}" + (" (unchanged)" if record.unchanged else ""),
        ],
    )
