"""One entry of a recovery folder: a session that was set aside, and beside it a small file that tells its place.

`<CLI home>/.outpost-recovery/<id>-<uuid>` is the tree, `<id>-<uuid>.json` says where it belongs. An entry without
that file was made by another implementation.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from sandbox_agent.core.copy import write_all
from sandbox_agent.core.owner import give
from sandbox_agent.core.paths import LinkError
from sandbox_agent.core.removal import remove_tree
from sandbox_api.names import RECOVERY_DIRECTORY, name_problem

if TYPE_CHECKING:
    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory
    from sandbox_api.profile import Profile

FOLDER = RECOVERY_DIRECTORY.encode()
_VERSION = 1
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAME = re.compile(rf"([A-Za-z0-9_-]{{1,128}})-{_UUID}", re.ASCII)
_MAX_SIDECAR_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What stands beside an entry: its format and the session's path below the CLI home."""

    format: str
    session: bytes


def new_entry_name(conversation_id: str) -> str:
    """Return a name that no entry has."""
    return f"{conversation_id}-{uuid4()}"


def entry_id(name: str) -> str | None:
    """Return the conversation of an entry's name, or None when it is no such name."""
    matched = _NAME.fullmatch(name)
    return matched[1] if matched else None


def is_entry_name(name: str, conversation_id: str) -> bool:
    """Tell whether a name is one of an entry of that conversation."""
    return entry_id(name) == conversation_id


def make_folder(cli_home: Directory, owner: Owner | None) -> tuple[Directory, bool]:
    """Open the recovery folder and tell whether it was made now."""
    with suppress(FileNotFoundError):
        return cli_home.directory(FOLDER), False
    with suppress(FileExistsError):
        return cli_home.make_directory(FOLDER, owner=owner), True
    return cli_home.directory(FOLDER), False


def write_sidecar(folder: Directory, name: str, sidecar: Sidecar, owner: Owner | None, *, durable: bool) -> None:
    """Write the file beside an entry, which must not have one."""
    fd = folder.file(_sidecar_name(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        give(fd, owner)
        os.fchmod(fd, 0o600)
        told = {"version": _VERSION, "format": sidecar.format, "session": os.fsdecode(sidecar.session)}
        write_all(fd, json.dumps(told).encode() + b"\n")
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def read_sidecar(folder: Directory, name: str) -> Sidecar | None:
    """Return what the file beside an entry says; None when there is none or it is not one of ours.

    Raises:
        OSError: it cannot be read.
    """
    try:
        fd = folder.file(_sidecar_name(name))
    except (FileNotFoundError, LinkError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        told = json.loads(os.read(fd, _MAX_SIDECAR_BYTES))
        if not isinstance(told, dict) or told.get("version") != _VERSION:
            return None
        format_name, session = told["format"], told["session"]
        return Sidecar(format_name, os.fsencode(session)) if isinstance(format_name, str) else None
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    finally:
        os.close(fd)


def remove_sidecar(folder: Directory, name: str) -> None:
    """Remove what is beside an entry, if anything is."""
    remove_tree(folder, _sidecar_name(name))


def is_place(session: bytes, profile: Profile, conversation_id: str) -> bool:
    """Tell whether a path below the CLI home is one where the format keeps that session.

    Sidecars lie in the sandbox's reach: what they say is used only when it could be true.
    """
    folder = profile.sessions.encode() + b"/"
    rest = session.removeprefix(folder).split(b"/")
    if not session.startswith(folder) or rest.pop() != conversation_id.encode():
        return False
    return len(rest) == profile.buckets and all(name_problem(bucket) is None for bucket in rest)


def _sidecar_name(name: str) -> bytes:
    return f"{name}.json".encode()
