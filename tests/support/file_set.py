"""Files of a conversation among those of others, for tests: restored, killed, looked at."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_agent.core.file_set import FileSet, FileSetPlace
from support.restoring import picture
from support.sandbox import write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sandbox_agent.core.file_set import FileSetResult
    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.sandbox import Sandbox
    from sandbox_api.lock import LockSign

ID = "S1"
FORMAT = "demo"
MAIN = "projects/-ws/S1.jsonl"
SHARED = "history.jsonl"

OLD = {
    "projects/-ws/S1/subagents/a.jsonl": b'{"old": "a"}\n',
    "todos/S1.json": b"same",
    "plans/S1.md": b"old plan",
    MAIN: b'{"old": 1}\n',
}
NEW = {
    "projects/-ws/S1/subagents/a.jsonl": b'{"new": "a"}\n{"more": 1}\n',
    "todos/S1.json": b"same",
    "plans/S1.md": b"new plan",
    "projects/-ws/S1/tool-results/deep/r.txt": b"added",
    MAIN: b'{"new": 1}\n' * 500,
}
"""In the order in which they are sent: the main transcript last."""

OTHERS = {"projects/-ws/S2.jsonl": b"another's", SHARED: b'{"s": 2}\n'}
"""What a restore of the conversation leaves as it is, or adds lines to."""

LINES = b'{"s": 1}\n{"s": 1, "n": 2}\n'


def home_of(agent_home: Path) -> Path:
    """Return the home of the format."""
    return agent_home / ".demo"


def make_home(agent_home: Path, files: Mapping[str, bytes] = OLD) -> Path:
    """Write a home with the conversation and others; return it."""
    home = home_of(agent_home)
    write(home, {**OTHERS, **files})
    return home


def place(
    agent_home: Path, *, conversation_id: str = ID, signs: Iterable[LockSign] = (), force: bool = False
) -> FileSetPlace:
    """Name the conversation."""
    return FileSetPlace(os.fsencode(home_of(agent_home)), FORMAT, conversation_id, tuple(signs), force=force)


def open_set(
    held: Sandbox,
    where: FileSetPlace | None = None,
    *,
    full_durability: bool = False,
    owner: Owner | None = None,
    expected_bytes: int = 0,
    restore_id: str = "",
) -> FileSet:
    """Return a restore, not entered."""
    return FileSet(
        held,
        where or place(Path(os.fsdecode(held.home))),
        full_durability=full_durability,
        owner=owner,
        expected_bytes=expected_bytes,
        restore_id=restore_id,
    )


def send(one: FileSet, files: Mapping[str, bytes], *, lines: Mapping[str, bytes] | None = None) -> tuple[int, int]:
    """Send files, and lines to append; return the numbers of the commit."""
    lines = lines or {}
    for path, data in (*files.items(), *lines.items()):
        one.begin_file(path.encode(), 0, append_lines=path in lines)
        for start in range(0, len(data), 1000):
            one.feed(data[start : start + 1000])
        one.end_file(hashlib.sha256(data).digest())
    return len(files) + len(lines), sum(map(len, (*files.values(), *lines.values())))


def restore_set(
    held: Sandbox,
    files: Mapping[str, bytes],
    where: FileSetPlace | None = None,
    *,
    lines: Mapping[str, bytes] | None = None,
    full_durability: bool = False,
    owner: Owner | None = None,
) -> FileSetResult:
    """Restore files in memory, from the first step to the last."""
    with open_set(held, where, full_durability=full_durability, owner=owner) as one:
        return one.commit(*send(one, files, lines=lines))


def conversation(agent_home: Path) -> dict[str, bytes]:
    """Return the regular files of the home that are neither others' nor recovery's."""
    found = picture(home_of(agent_home))
    return {
        path: data
        for path, data in found.items()
        if isinstance(data, bytes) and not path.startswith(".outpost-") and path not in OTHERS
    }
