"""`outpost archive verify`: whether everything that is archived is there and undamaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from host_client.cli.archive_document import name_documents, snapshot_name_documents
from host_client.cli.archive_options import archive_options
from host_client.cli.options import json_option
from host_client.cli.output import Output, size
from host_client.errors import SessionError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from host_client.cli.archive_options import ArchivePlace
    from host_client.stores.archive_verify import VerifyReport


@click.command(short_help="Check that what is archived is there and undamaged.")
@click.argument("format_name", metavar="[FORMAT]", required=False)
@click.argument("conversation_id", metavar="[ID]", required=False)
@archive_options
@json_option
async def verify(format_name: str | None, conversation_id: str | None, *, place: ArchivePlace, as_json: bool) -> int:
    """Read all that is archived in a namespace, of FORMAT or of conversation ID, and tell everything that is wrong.

    Nothing is changed. The exit status is 10 when anything is wrong.
    """
    ids = None if conversation_id is None else [conversation_id]
    report = await place.archive().verify(format_name, ids)
    if format_name is not None and not report.conversations and not report.unindexed:
        raise SessionError(
            "not_found",
            f"the archive has no conversations of the format {printable(format_name)}",
            hint="see which ones it has with `outpost archive list`",
        )
    Output(as_json).result(_document(report), list(_lines(report)))
    return 0 if report.is_whole else SessionError.exit_status


def _document(report: VerifyReport) -> dict[str, object]:
    return {
        "whole": report.is_whole,
        "snapshot_count": report.snapshots_count,
        "object_count": report.objects_count,
        "bytes": report.bytes_count,
        "stored_bytes": report.stored_bytes,
        "unreferenced_count": report.unreferenced_count,
        "unindexed": name_documents(report.unindexed),
        "findings": [
            {
                "finding": finding.reason,
                "key": finding.key,
                "message": finding.message,
                "hint": finding.hint,
                "snapshots": snapshot_name_documents(finding.snapshots),
            }
            for finding in report.findings
        ],
        "conversations": [
            {
                "format": one.name.format,
                "id": one.name.id,
                "snapshot_count": one.snapshots_count,
                "whole": one.is_whole,
                "hurt": list(one.hurt),
            }
            for one in report.conversations
        ],
    }


def _lines(report: VerifyReport) -> Iterator[str]:
    for finding in report.findings:
        where = "" if finding.key in finding.message else f" ({finding.key})"
        yield f"finding: {finding.reason}: {finding.message}{where}"
        for name in finding.snapshots:
            yield f"  hurts {name.format} {name.id}, snapshot {name.snapshot_id}"
    for hint in dict.fromkeys(finding.hint for finding in report.findings if finding.hint):
        yield f"hint: {hint}"
    for lost in report.unindexed:
        yield (
            f"unindexed: {lost.format} {lost.id} has snapshots and no index: a first push is under way, or failed; "
            "or the index was lost"
        )
    yield (
        f"checked {report.snapshots_count} snapshot(s) of {len(report.conversations)} conversation(s): "
        f"{report.objects_count} objects, {size(report.bytes_count)}, {size(report.stored_bytes)} stored"
    )
    if not report.is_whole:
        yield f"findings: {len(report.findings)}"
    elif report.unindexed:
        yield "whole: nothing else is wrong"
    elif report.conversations:
        yield "whole: nothing is wrong"
    else:
        yield "nothing is archived here: is it the right store and namespace?"
