"""A small made-up CLI for tests of stores: its format, and sessions of it on disk."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from host_client.stores.bundle import SessionBundleConversations
from host_client.stores.profile import BundleRoot, SessionBundleProfile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ID = "S1"
EXTRA: Mapping[str, bytes] = {"files/a.bin": bytes(range(256)), "files/deep/empty": b""}


def profile(name: str = "mycli", *, buckets: bool = False) -> SessionBundleProfile:
    """Return the format: `session.json` names id and working directory, `files` has the rest."""
    return SessionBundleProfile(
        format=name,
        root=BundleRoot(directory=".mycli", variable="MYCLI_HOME"),
        sessions="sessions",
        buckets=buckets,
        bucket=(lambda cwd, helpers: "wd-" + helpers.sha256(cwd)[:8]) if buckets else None,
        include=re.compile(r"^(?:session\.json$|files(?:/|$))"),
        required=("session.json",),
        relocated=("session.json",),
        validate=lambda files, name: (
            None if json.loads(files.text("session.json"))["id"] == name else "this is another session"
        ),
        relocate=lambda _path, text, context: json.dumps({**json.loads(text), "cwd": context.cwd}),
        lock=re.compile(r"^inuse\.(?P<pid>\d+)\.lock$"),
    )


def store(name: str = "mycli", *, buckets: bool = False) -> SessionBundleConversations:
    """Return a store of the format."""
    return SessionBundleConversations(profile(name, buckets=buckets))


def make_session(
    cli_home: Path,
    extra: Mapping[str, bytes] = EXTRA,
    *,
    conversation_id: str = ID,
    bucket: str = "",
    recorded_id: str | None = None,
) -> Path:
    """Write a session below a CLI home and return its directory."""
    session = cli_home / "sessions" / bucket / conversation_id
    identity = json.dumps({"id": recorded_id or conversation_id, "cwd": "/old"}).encode()
    for path, data in {"session.json": identity, **extra}.items():
        place = session / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return session


def files_below(directory: Path) -> dict[str, bytes]:
    """Return the contents of all files below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def has_files(directory: Path, wanted: Mapping[str, bytes]) -> bool:
    """Tell whether exactly those files are below a directory, out of which somebody may be taking others just now."""
    try:
        return files_below(directory) == wanted
    except FileNotFoundError:
        return False
