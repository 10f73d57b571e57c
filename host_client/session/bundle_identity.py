"""What a bundle file says it is, read before it is known which format's rules it must keep."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.session.bundle_reader import open_file
from host_client.session.failure import host_failure
from host_client.session.scanner import JsonError, Scanner
from sandbox_api.errors import SessionError, printable

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Identity:
    """What a bundle file says it is; unchecked."""

    format: str
    conversation_id: str


def read_identity(host_path: Path) -> Identity:
    """Read only as far as format and id of a bundle file, to learn which profile it needs.

    Raises:
        SessionError: `not_found`, `corrupt`.
        WorkspaceError: `unsafe_path`, `access`.
    """
    fd = open_file(host_path)
    try:
        found: dict[str, str] = {}
        scanner = Scanner(fd, os.fstat(fd).st_size)
        for name in scanner.members():
            if name in ("format", "id"):
                found[name] = scanner.text()
                if len(found) == len(("format", "id")):
                    return Identity(found["format"], found["id"])
            else:
                scanner.skip()
        raise scanner.error("the bundle names no format or no id")
    except JsonError as error:
        raise SessionError(
            "corrupt",
            f"{printable(str(host_path))} is no bundle: {error.problem}, at byte {error.offset}",
            facts={"check": "json", "offset": str(error.offset), "path": printable(str(host_path))},
        ) from None
    except OSError as error:
        raise host_failure(error, host_path) from None
    finally:
        os.close(fd)
