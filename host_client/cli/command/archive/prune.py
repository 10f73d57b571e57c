"""`outpost archive prune`: remove old snapshots, and in time what nobody needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from host_client.cli.archive_document import name_documents, snapshot_name_documents
from host_client.cli.archive_options import Duration, archive_options
from host_client.cli.options import json_option
from host_client.cli.output import Output, size
from host_client.stores.archive_prune import GRACE_SECONDS

if TYPE_CHECKING:
    from host_client.cli.archive_options import ArchivePlace


@click.command(short_help="Remove old snapshots, and what nobody needs.")
@archive_options
@click.option("--keep-last", type=click.IntRange(1), metavar="N", help="Keep the N newest of each conversation.")
@click.option("--younger-than", type=Duration(), help="Keep snapshots younger than that, such as 30d.")
@click.option("--garbage-only", is_flag=True, help="Keep all snapshots: remove only what none of them needs.")
@click.option(
    "--grace",
    type=Duration(),
    default=float(GRACE_SECONDS),
    show_default="24h",
    help="Longer than a push takes, or than ten minutes; 0: nobody is pushing.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be done.")
@json_option
async def prune(
    *,
    place: ArchivePlace,
    keep_last: int | None,
    younger_than: float | None,
    garbage_only: bool,
    grace: float,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove snapshots that no rule keeps from a namespace, and in a later run the data that nobody needs.

    The newest snapshot of a conversation always stays. Others may push meanwhile.
    """
    report = await place.archive().prune(
        keep_last=keep_last,
        younger_than_seconds=younger_than,
        garbage_only=garbage_only,
        grace_seconds=grace,
        dry_run=dry_run,
    )
    document = {
        "dry_run": report.is_dry_run,
        "removed": snapshot_name_documents(report.removed),
        "kept_count": report.kept_count,
        "skipped": name_documents(report.skipped),
        "marked_count": report.marked_count,
        "marked_bytes": report.marked_bytes,
        "removed_count": report.removed_count,
        "removed_bytes": report.removed_bytes,
    }
    would = "would be " if report.is_dry_run else ""
    Output(as_json).result(
        document,
        [
            *(f"{would}removed: {one.format} {one.id}, snapshot {one.snapshot_id}" for one in report.removed),
            *(f"skipped: {one.format} {one.id}: somebody wrote to it meanwhile" for one in report.skipped),
            f"snapshots {len(report.removed)} {would}removed, {report.kept_count} kept",
            f"objects   {report.removed_count} {would}removed, {size(report.removed_bytes)}",
            f"marked    {report.marked_count} for a later run, {size(report.marked_bytes)}",
        ],
    )
