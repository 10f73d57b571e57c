"""`outpost relay`: one session into many sandboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from host_client.agents.registry import builtin_format
from host_client.cli.delivery import check_once, delivery_document, delivery_lines, exit_status
from host_client.cli.options import durability_option, json_option, limit_options, limits, place_options
from host_client.cli.output import Output
from host_client.cli.progress import shown_targets
from host_client.cli.record import capture_notes, notice_documents, redaction_lines
from host_client.cli.redaction import redaction_options
from host_client.sandbox.sandbox import connect
from host_client.stores.context import ConversationContext
from host_client.stores.relay import relay as relay_session
from host_client.stores.relay_spool import DEFAULT_MAX_SPOOL_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from host_client.session.redaction import Redaction


@click.command(short_help="Copy a session to many TARGETs at once.")
@click.argument("source")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="ID")
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@place_options
@limit_options
@durability_option
@redaction_options
@click.option(
    "--max-spool-bytes",
    type=click.IntRange(1),
    default=DEFAULT_MAX_SPOOL_BYTES,
    help="How far the slowest target may be behind (default 1 GiB).",
)
@click.option("--force", is_flag=True, help="Replace sessions even when a running process has them open.")
@click.option("--allow-empty", is_flag=True, help="Copy a transcript in which nothing was said yet.")
@json_option
async def relay(
    source: str,
    format_name: str,
    conversation_id: str,
    targets: tuple[str, ...],
    *,
    variables: Sequence[tuple[str, str]],
    follow_root_link: bool,
    max_bytes: int | None,
    max_files: int | None,
    durability: Literal["full", "none"],
    redaction: Redaction | None,
    max_spool_bytes: int,
    force: bool,
    allow_empty: bool,
    as_json: bool,
) -> int:
    """Capture session ID of FORMAT at SOURCE once and restore it at every TARGET.

    Every target is tried. The exit status is that of the first target that failed, in the order given.
    """
    store = builtin_format(format_name)
    check_once(targets)
    with shown_targets(f"relaying {conversation_id}", as_json=as_json) as progress:
        async with connect(source, limits=limits(max_bytes, max_files, format_name)) as sandbox:
            result = await relay_session(
                sandbox,
                conversation_id,
                targets,
                store,
                ConversationContext(
                    variables=dict(variables),
                    follow_root_link=follow_root_link,
                    limits=limits(max_bytes, max_files, format_name),
                    durability=durability,
                    redaction=redaction,
                    force=force,
                    allow_empty=allow_empty,
                ),
                max_spool_bytes=max_spool_bytes,
                progress=progress,
            )
    output = Output(as_json)
    for note in capture_notes(result.record):
        output.note(note)
    lines = list(redaction_lines(result.record))
    for ended in result.outcomes:
        lines += delivery_lines(ended)
    document = {
        "id": conversation_id,
        "digest": result.digest,
        "notices": notice_documents(result.record.notices),
        "redactions": dict(result.record.redactions),
        "targets": [delivery_document(ended) for ended in result.outcomes],
    }
    output.result(document, lines)
    return exit_status(result.outcomes)
