"""`outpost relocate`: move a transcript file to another working directory."""

from __future__ import annotations

from pathlib import Path

import click

from host_client.cli.options import json_option
from host_client.cli.output import Output, size
from host_client.session.relocate_file import relocate_file


@click.command(short_help="Rewrite the working directory of a transcript FILE.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--to", "destination", required=True, metavar="DIRECTORY", help="Absolute path of the new one.")
@click.option("--output", type=click.Path(path_type=Path), help="Write here instead of replacing FILE.")
@json_option
def relocate(file: Path, *, destination: str, output: Path | None, as_json: bool) -> None:
    """Rewrite the recorded working directory in a transcript FILE of Claude Code or Codex, and nothing else.

    Each `cwd` that equals the first one recorded becomes DIRECTORY; every other byte stays. The file is replaced in
    one step.
    """
    done = relocate_file(file, destination, output=output)
    printer = Output(as_json)
    document = {
        "path": str(done.host_path),
        "origin": done.origin,
        "destination": done.destination,
        "changed": done.changed_count,
        "bytes": done.bytes_count,
        "torn_at": done.torn_at,
    }
    if done.origin is None:
        line = f"unchanged: {done.host_path} names no working directory"
    else:
        line = f"relocated: {done.host_path} from {done.origin} to {done.destination}, {done.changed_count} changed"
    printer.result(document, [f"{line}, {size(done.bytes_count)}"])
    if done.torn_at is not None:
        printer.note(f"note: torn_tail: the last line is cut off, at byte {done.torn_at}")
