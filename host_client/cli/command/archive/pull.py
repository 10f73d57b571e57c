"""`outpost archive pull`: a snapshot of an archive into a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from host_client.agents.registry import resume_command
from host_client.cli.archive_document import archived_document
from host_client.cli.archive_options import archive_options, cache_option, snapshot_option
from host_client.cli.options import (
    durability_option,
    json_option,
    limit_options,
    limits,
    place_options,
    restore_id_option,
    restore_options,
)
from host_client.cli.output import Output
from host_client.cli.progress import shown_progress
from host_client.cli.record import notice_notes, outcome_document, outcome_lines
from host_client.sandbox.sandbox import connect
from host_client.stores.context import ConversationContext
from sandbox_api.names import check_restore_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from host_client.cli.archive_options import ArchivePlace


@click.command(short_help="Put a snapshot of an archive in place at TARGET.")
@click.argument("target")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="ID")
@archive_options
@snapshot_option
@cache_option
@place_options
@limit_options
@durability_option
@restore_options
@restore_id_option
@json_option
async def pull(
    target: str,
    format_name: str,
    conversation_id: str,
    *,
    place: ArchivePlace,
    snapshot: str,
    cache: Path | None,
    variables: Sequence[tuple[str, str]],
    follow_root_link: bool,
    max_bytes: int | None,
    max_files: int | None,
    durability: Literal["full", "none"],
    force: bool,
    allow_empty: bool,
    owner: tuple[int, int] | None,
    restore_id: str,
    as_json: bool,
) -> None:
    """Put the archived conversation ID of FORMAT in place at TARGET."""
    store = place.conversations(format_name, cache=cache)
    output = Output(as_json)
    with shown_progress(f"restoring {conversation_id}", as_json=as_json) as progress:
        async with connect(target, limits=limits(max_bytes, max_files, format_name)) as sandbox:
            context = ConversationContext(
                sandbox=sandbox,
                variables=dict(variables),
                follow_root_link=follow_root_link,
                limits=limits(max_bytes, max_files, format_name),
                durability=durability,
                owner=owner,
                force=force,
                allow_empty=allow_empty,
                progress=progress,
                restore_id=check_restore_id(restore_id),
            )
            record = await store.locate(conversation_id, context, snapshot=snapshot)
            outcome = await store.restore(record, context)
            workspace = sandbox.root
    resume = resume_command(format_name, outcome.conversation_id, workspace)
    for note in notice_notes([*record.notices, *(item for item in outcome.notices if item not in record.notices)]):
        output.note(note)
    archived = archived_document(record)
    output.result(
        {**outcome_document(outcome, resume), **archived},
        outcome_lines(outcome, resume, workspace, snapshot=str(archived["snapshot"])),
    )
