"""`outpost archive push`: a conversation out of a sandbox into an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from host_client.cli.archive_document import archived_document
from host_client.cli.archive_options import archive_options, cache_option
from host_client.cli.options import (
    capture_options,
    durability_option,
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

    from host_client.cli.archive_options import ArchivePlace
    from host_client.session.redaction import Redaction


@click.command(short_help="Archive a conversation of TARGET as a new snapshot.")
@click.argument("target")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="ID")
@archive_options
@cache_option
@click.option("--force", is_flag=True, help="Archive also what does not go on from the newest snapshot.")
@click.option("--no-compress", is_flag=True, help="Store contents as they are.")
@place_options
@limit_options
@durability_option
@redaction_options
@capture_options
@json_option
async def push(
    target: str,
    format_name: str,
    conversation_id: str,
    *,
    place: ArchivePlace,
    cache: Path | None,
    force: bool,
    no_compress: bool,
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
    """Capture conversation ID of FORMAT out of TARGET and archive it, as a snapshot in front of the newest one.

    What the archive has already is neither sent nor stored again. A conversation that the newest snapshot goes beyond,
    or that went on differently, is refused.
    """
    store = place.conversations(format_name, cache=cache, compress=not no_compress, force=force)
    output = Output(as_json)
    with shown_progress(f"archiving {conversation_id}", as_json=as_json) as progress:
        async with connect(target, limits=limits(max_bytes, max_files, format_name)) as sandbox:
            record = await store.capture(
                conversation_id,
                ConversationContext(
                    sandbox=sandbox,
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
    archived = archived_document(record)
    output.result(
        {**record_document(record), **archived},
        [
            f"archived {record.files_count} files, {size(record.bytes_count)}"
            + (" (unchanged)" if record.unchanged else ""),
            f"moved    {size(record.received_bytes)} in {record.duration_seconds:.2f} s",
            *redaction_lines(record),
            f"snapshot {archived['snapshot']}",
            f"store    {archived['store']}, namespace {archived['namespace']}",
        ],
    )
