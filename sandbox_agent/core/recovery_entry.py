"""One entry of a recovery folder: what was set aside, and beside it a small file that tells its place.

`<CLI home>/.outpost-recovery/<id>-<uuid>` is the tree, `<id>-<uuid>.json` says where it belongs. An entry without
that file was made by another implementation. The tree is a session directory, or else some files of the home at their
paths below it; then further lines of the small file name all files that the restore put in place, and those that the
tree has not were missing before.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING
from uuid import uuid4

from sandbox_agent.core.copy import write_all
from sandbox_agent.core.owner import give
from sandbox_agent.core.paths import LinkError
from sandbox_agent.core.removal import remove_tree
from sandbox_api.names import RECOVERY_DIRECTORY, name_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory
    from sandbox_api.profile import Profile

FOLDER = RECOVERY_DIRECTORY.encode()
_VERSION = 1
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAME = re.compile(rf"([A-Za-z0-9_-]{{1,128}})-{_UUID}", re.ASCII)
_MAX_HEAD_BYTES = 16 << 10
_FILE_SET = "files"


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What stands beside an entry.

    Attributes:
        format: Name of the format.
        session: Path of the session directory below the CLI home; empty when the tree is none.
        is_file_set: Whether the tree is files of the home.
    """

    format: str
    session: bytes
    is_file_set: bool = False


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


def write_sidecar(
    folder: Directory, name: str, sidecar: Sidecar, owner: Owner | None, *, durable: bool, files: Iterable[bytes] = ()
) -> None:
    """Write the file beside an entry, which must not have one.

    Args:
        folder: The recovery folder.
        name: Name of the entry.
        sidecar: What it says.
        owner: User and group id of the file.
        durable: Whether it must survive a power loss when this returns.
        files: Paths of the files of a file set.
    """
    fd = folder.file(_sidecar_name(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        give(fd, owner)
        os.fchmod(fd, 0o600)
        told: dict[str, object] = {"version": _VERSION, "format": sidecar.format}
        told |= {"kind": _FILE_SET} if sidecar.is_file_set else {"session": os.fsdecode(sidecar.session)}
        lines = chain([told], ({"file": path.decode()} for path in files))
        write_all(fd, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
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
        told = json.loads(read_beside(folder, name, _MAX_HEAD_BYTES).partition(b"\n")[0])
        if not isinstance(told, dict) or told.get("version") != _VERSION or not isinstance(told["format"], str):
            return None
        if told.get("kind") == _FILE_SET:
            return Sidecar(told["format"], b"", is_file_set=True)
        return Sidecar(told["format"], os.fsencode(told["session"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def read_beside(folder: Directory, name: str, max_bytes: int) -> bytes:
    """Return the beginning of the file beside an entry; nothing when there is no such file."""
    try:
        fd = folder.file(_sidecar_name(name))
    except (FileNotFoundError, LinkError):
        return b""
    data = bytearray()
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            while piece := os.read(fd, max_bytes - len(data)):
                data += piece
    finally:
        os.close(fd)
    return bytes(data)


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
