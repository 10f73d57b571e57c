"""`outpost archive keygen`: a new key for an encrypted namespace."""

from __future__ import annotations

import os
from pathlib import Path

import click

from host_client.cli.options import json_option
from host_client.cli.output import Output
from host_client.errors import ConflictError, printable
from host_client.session.failure import host_failure, host_failures
from host_client.stores.archive_key import ArchiveKey


@click.command(short_help="Make a key for encrypted archives.")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def keygen(file: Path, *, as_json: bool) -> None:
    """Write a new key to FILE, which must not exist. Nobody but you may read it.

    What is archived with a key is lost with it: keep a copy in a safe place.
    """
    key = ArchiveKey.generate()
    with host_failures(file):
        try:
            fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError as error:
            raise host_failure(error, file.parent) from None
        except FileExistsError:
            raise ConflictError(
                "exists",
                f"{printable(str(file))} exists",
                hint="give another name: what was archived with an overwritten key would be lost",
            ) from None
    try:
        with host_failures(file), open(fd, "w", encoding="ascii") as opened:  # noqa: PTH123 - pathlib opens no descriptor
            opened.write(f"{key.text}\n")
            opened.flush()
            os.fsync(opened.fileno())
    except BaseException:
        file.unlink()
        raise
    key_id = key.key_id.hex()
    Output(as_json).result({"path": str(file), "key_id": key_id}, [f"wrote {file}, key {key_id}"])
