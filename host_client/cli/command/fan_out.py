"""`outpost fan-out`: a kept conversation into many sandboxes."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from host_client.agents.kept_file import recognise_file
from host_client.cli.delivery import check_once, delivery_document, delivery_lines, exit_status
from host_client.cli.options import (
    FILE,
    durability_option,
    json_option,
    limit_options,
    limits,
    place_options,
    restore_options,
)
from host_client.cli.output import Output
from host_client.cli.progress import shown_targets
from host_client.cli.record import notice_documents, notice_notes
from host_client.errors import ConfigurationError
from host_client.fleet.restore import DEFAULT_CONCURRENCY_COUNT, restore_many
from host_client.fleet.retry import Retry
from host_client.sandbox.task import in_thread
from host_client.session.failure import host_failure
from host_client.stores.context import ConversationContext

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_LIST_CHARACTERS_COUNT = 1 << 24


@click.command("fan-out", short_help="Put a kept conversation in place at many TARGETs.")
@click.argument("file", type=FILE)
@click.option(
    "--targets",
    "listed",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="LIST",
    help="File with one TARGET a line; - reads standard input.",
)
@click.option("--target", "named", multiple=True, metavar="TARGET", help="A further TARGET. May be repeated.")
@click.option("--format", "format_name", default="", metavar="FORMAT", help="Refuse a FILE of another format.")
@click.option("--id", "conversation_id", default="", metavar="ID", help="Refuse a FILE of another conversation.")
@click.option(
    "--concurrency",
    "concurrency_count",
    type=click.IntRange(1),
    default=DEFAULT_CONCURRENCY_COUNT,
    show_default=True,
    help="Targets at a time.",
)
@click.option(
    "--retries",
    "retries_count",
    type=click.IntRange(0, 100),
    default=Retry().attempts_count - 1,
    show_default=True,
    help="How often to try a target again after a failure that may pass.",
)
@click.option(
    "--target-seconds",
    type=click.FloatRange(0, min_open=True),
    help="Longest time for one target, all attempts included.",
)
@place_options
@limit_options
@durability_option
@restore_options
@json_option
async def fan_out(
    file: Path,
    *,
    listed: str | None,
    named: Sequence[str],
    format_name: str,
    conversation_id: str,
    concurrency_count: int,
    retries_count: int,
    target_seconds: float | None,
    variables: Sequence[tuple[str, str]],
    follow_root_link: bool,
    max_bytes: int | None,
    max_files: int | None,
    durability: Literal["full", "none"],
    force: bool,
    allow_empty: bool,
    owner: tuple[int, int] | None,
    as_json: bool,
) -> int:
    """Put the conversation that FILE keeps in place at every TARGET of LIST.

    FILE is a bundle that a capture made, or a transcript below the home of its CLI on this host. Every target is tried.
    The exit status is that of the first target that failed, in the order given.
    """
    targets = await in_thread(_read_targets, listed, named)
    kept = await in_thread(partial(recognise_file, file, format_name=format_name, conversation_id=conversation_id))
    context = ConversationContext(
        variables=dict(variables),
        follow_root_link=follow_root_link,
        limits=limits(max_bytes, max_files, kept.store.format),
        durability=durability,
        owner=owner,
        force=force,
        allow_empty=allow_empty,
    )
    record, context = await kept.locate(context)
    with shown_targets(f"restoring {record.conversation_id}", as_json=as_json) as progress:
        ended = await restore_many(
            record,
            targets,
            kept.store,
            context,
            concurrency_count=concurrency_count,
            target_seconds=target_seconds,
            retry=Retry(attempts_count=retries_count + 1),
            progress=progress,
        )
    output = Output(as_json)
    for note in notice_notes(record.notices):
        output.note(note)
    document = {
        "format": record.format,
        "id": record.conversation_id,
        "digest": record.digest,
        "notices": notice_documents(record.notices),
        "targets": [{**delivery_document(one), "attempts": one.attempts_count} for one in ended],
    }
    output.result(document, [line for one in ended for line in delivery_lines(one)])
    return exit_status(ended)


def _read_targets(listed: str | None, named: Sequence[str]) -> Sequence[str]:
    """Return the targets of the command line, those of the list first; blocks.

    Raises:
        ConfigurationError: `invalid_argument`: none, one that is there twice, or a list that is no text.
        WorkspaceError: `access`: the list cannot be read.
    """
    try:
        with click.open_file(listed or os.devnull, encoding="utf-8") as file:
            text = file.read(_MAX_LIST_CHARACTERS_COUNT)
    except OSError as error:
        raise host_failure(error, Path(listed or "")) from None
    except UnicodeDecodeError:
        raise ConfigurationError("invalid_argument", "the list of targets is not UTF-8 text") from None
    lines = [line.strip() for line in text.splitlines()]
    targets = [*(line for line in lines if line and not line.startswith("#")), *named]
    if not targets:
        raise ConfigurationError(
            "invalid_argument",
            "there are no targets",
            hint="give --targets LIST, one target a line, or --target TARGET",
        )
    check_once(targets)
    return targets
