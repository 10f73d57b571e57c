"""`outpost restore`: a kept session into a sandbox."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import click

from host_client.agents.registry import builtin_format, resume_command
from host_client.cli.options import (
    durability_option,
    host_options,
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


@click.command(short_help="Put a kept session in place at TARGET.")
@click.argument("target")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="ID")
@host_options
@place_options
@limit_options
@durability_option
@restore_options
@restore_id_option
@json_option
async def restore(
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
    force: bool,
    allow_empty: bool,
    owner: tuple[int, int] | None,
    restore_id: str,
    as_json: bool,
) -> None:
    """Put the kept session ID of FORMAT in place at TARGET."""
    store = builtin_format(format_name)
    output = Output(as_json)
    with shown_progress(f"restoring {conversation_id}", as_json=as_json) as progress:
        async with connect(target, limits=limits(max_bytes, max_files, format_name)) as sandbox:
            context = ConversationContext(
                sandbox=sandbox,
                repository=repository,
                conversation_home=home,
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
            # The variables are those of the sandbox; a session of the user's own is found by the user's.
            record = await store.locate(conversation_id, replace(context, variables={}))
            outcome = await store.restore(record, context)
            workspace = sandbox.root
    resume = resume_command(format_name, conversation_id, workspace)
    for note in notice_notes([*record.notices, *(item for item in outcome.notices if item not in record.notices)]):
        output.note(note)
    if outcome.not_atomic:
        output.note("note: the file system cannot exchange directories; for a moment no session was in place")
    output.result(
        outcome_document(outcome, resume),
        outcome_lines(outcome, resume, workspace),
    )
