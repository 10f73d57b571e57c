"""`outpost inspect`: what a transcript file holds, and what is unusual about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from host_client.cli.options import json_option
from host_client.cli.output import Output, size
from host_client.session.inspect import inspect_transcript

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from host_client.session.inspect import Inspection

_SHOWN_COUNT = 20
"""Lines of one list that people are shown; the document has all that is listed."""


@click.command(short_help="Tell what a transcript FILE holds.")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def inspect(file: Path, *, as_json: bool) -> None:
    """Tell what a transcript FILE of Claude Code or Codex holds, and what is unusual about it.

    Nothing is changed. A finding is no failure: the CLIs resume most of what looks damaged.
    """
    found = inspect_transcript(file)
    document = {
        "path": str(found.host_path),
        "bytes": found.bytes_count,
        "lines": found.lines_count,
        "types": found.types,
        "directories": found.directories,
        "session_ids": found.session_ids,
        "origin": found.origin,
        "torn_at": found.torn_at,
        "ends_with_newline": found.ends_with_newline,
        "findings": [
            {"finding": item.word, "line": item.line_number, "offset": item.offset} for item in found.findings
        ],
        "finding_counts": found.finding_counts,
    }
    Output(as_json).result(document, list(_lines(found)))


def _lines(found: Inspection) -> Iterator[str]:
    yield f"{found.host_path}: {found.lines_count} lines, {size(found.bytes_count)}"
    for title, counts in (
        ("types", found.types),
        ("directories", found.directories),
        ("session ids", found.session_ids),
    ):
        if counts:
            yield f"{title}:"
            yield from _counts(counts)
    if not found.findings:
        yield "findings: none"
    for item in found.findings[:_SHOWN_COUNT]:
        where = "" if item.line_number is None else f": line {item.line_number}, byte {item.offset}"
        yield f"finding: {item.word}{where}"
    if (more := sum(found.finding_counts.values()) - _SHOWN_COUNT) > 0:
        yield f"findings: {more} more"


def _counts(counts: Mapping[str, int]) -> Iterator[str]:
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    for name, count in shown[:_SHOWN_COUNT]:
        yield f"  {count} {name}"
    if len(shown) > _SHOWN_COUNT:
        yield f"  and {len(shown) - _SHOWN_COUNT} more"
