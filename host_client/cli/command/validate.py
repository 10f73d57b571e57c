"""`outpost validate`: is a kept bundle whole and usable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from host_client.agents.registry import validate_file
from host_client.cli.options import FILE, json_option, limit_options, limits
from host_client.cli.output import Output, size

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="Check a kept bundle FILE.")
@click.argument("file", type=FILE)
@limit_options
@json_option
async def validate(file: Path, *, max_bytes: int | None, max_files: int | None, as_json: bool) -> None:
    """Check a kept bundle FILE: shape, names, digests, required files and the format's own rules."""
    record = await validate_file(file, limits=limits(max_bytes, max_files))
    Output(as_json).result(
        {
            "format": record.format,
            "id": record.conversation_id,
            "files": record.files_count,
            "bytes": record.bytes_count,
            "digest": record.digest,
        },
        [f"valid: {record.format} {record.conversation_id}, {record.files_count} files, {size(record.bytes_count)}"],
    )
