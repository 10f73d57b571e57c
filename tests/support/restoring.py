"""Restores for tests: a sandbox with a journal, bundles in memory, and pictures of what is on disk."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_agent.core.journal import Journal
from sandbox_agent.core.restore import Restore
from sandbox_api.manifest import Entry, bundle_digest
from support.sandbox import place, sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.restore import Result
    from sandbox_agent.core.sandbox import Place, Sandbox

OLD = {"state.json": b"old", "log/a.txt": b"same", "log/gone.txt": b"only in the old one"}
NEW = {"state.json": b"new state", "log/a.txt": b"same", "log/deep/b.txt": b"", "z": b"z" * 5000}


@contextmanager
def restoring_sandbox(home: Path, *roots: Path) -> Iterator[Sandbox]:
    """Hold a sandbox whose journal lies in its home."""
    home.mkdir(exist_ok=True)
    state = home / ".outpost-agent"
    state.mkdir(mode=0o700, exist_ok=True)
    with sandbox(home, *roots) as plain, plain.roots.directory(os.fsencode(state)) as directory:
        yield replace(plain, journal=Journal(directory))


def entries_of(files: Mapping[str, bytes]) -> list[Entry]:
    """Return the manifest of files in memory."""
    return sorted(
        (Entry(path.encode(), len(data), hashlib.sha256(data).digest()) for path, data in files.items()),
        key=lambda entry: entry.path,
    )


def open_restore(
    held: Sandbox,
    files: Mapping[str, bytes],
    where: Place | None = None,
    *,
    full_durability: bool = False,
    owner: Owner | None = None,
    force: bool = False,
    restore_id: str = "",
) -> Restore:
    """Return a restore of files in memory, not begun."""
    entries = entries_of(files)
    return Restore(
        held,
        where or place(),
        entries,
        bundle_digest(entries),
        limits=held.limits,
        full_durability=full_durability,
        owner=owner,
        force=force,
        restore_id=restore_id,
    )


def send(restore: Restore, files: Mapping[str, bytes], lacking: list[bool], *, piece_bytes: int = 1 << 20) -> None:
    """Feed the lacking contents of a restore that has begun."""
    payload = b"".join(
        files[entry.path.decode()] for entry, is_lacking in zip(entries_of(files), lacking, strict=True) if is_lacking
    )
    for start in range(0, len(payload), piece_bytes):
        restore.feed(payload[start : start + piece_bytes])


def restore_files(
    held: Sandbox,
    files: Mapping[str, bytes],
    where: Place | None = None,
    *,
    full_durability: bool = False,
    owner: Owner | None = None,
    force: bool = False,
) -> Result:
    """Restore files in memory, from the first step to the last."""
    with open_restore(held, files, where, full_durability=full_durability, owner=owner, force=force) as restore:
        send(restore, files, restore.begin())
        return restore.commit()


def picture(directory: Path) -> dict[str, bytes | str]:
    """Return all that is below a directory: content of files, target of links, `dir` and others by their kind."""
    found: dict[str, bytes | str] = {}
    for parent, folders, files in os.walk(directory):
        for name in folders + files:
            path = os.path.join(parent, name)  # noqa: PTH118 -- os.walk speaks text
            mode = os.lstat(path).st_mode
            key = os.path.relpath(path, directory)
            if stat.S_ISLNK(mode):
                found[key] = "-> " + os.readlink(path)  # noqa: PTH115
            elif stat.S_ISREG(mode):
                with open(path, "rb") as file:  # noqa: PTH123
                    found[key] = file.read()
            else:
                found[key] = "dir" if stat.S_ISDIR(mode) else "special"
    return found


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the contents of all regular files below a directory."""
    return {path: data for path, data in picture(directory).items() if isinstance(data, bytes)}


def staged(home: Path) -> list[str]:
    """Return everything below a home that a restore must not leave, also while it goes."""
    paths = [
        os.path.relpath(os.path.join(parent, name), home)  # noqa: PTH118 -- os.walk speaks text
        for parent, folders, files in os.walk(home)
        for name in folders + files
    ]
    return [path for path in paths if ".outpost-session-" in path or path.startswith(".outpost-agent/")]
