"""A sandbox on disk for tests of the daemon's core: a home with sessions of a small made-up format."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from sandbox_agent.core.paths import Directory, Roots
from sandbox_agent.core.sandbox import Place, Sandbox
from sandbox_agent.core.walk import walk
from sandbox_api.limits import Limits
from sandbox_api.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from sandbox_agent.core.journal import Journal
    from sandbox_agent.core.tree import Tree

ID = "id-1"

FLAT = Profile(
    format="demo",
    root_variable="DEMO_HOME",
    root_directory=".demo",
    sessions="sessions",
    buckets=False,
    include=re.compile(r"."),
    exclude=re.compile(r"(^|/)(logs|.*\.lock)$"),
    required=("state.json",),
    relocated=(),
    validate="",
    bucket="",
    relocate="",
    lock=re.compile(r"^inuse\.(?P<pid>\d+)\.lock$"),
)

BUCKETED = replace(FLAT, buckets=True, bucket="lambda cwd, helpers: 'b'")


def place(profile: Profile = FLAT, conversation_id: str = ID, **changes: Any) -> Place:
    """Name a session of the made-up format."""
    return Place(profile, conversation_id, **{"variables": {}, **changes})


@contextmanager
def sandbox(home: Path, *roots: Path, environment: Mapping[str, str] | None = None) -> Iterator[Sandbox]:
    """Hold a sandbox whose home exists; without a journal, which only a restore has a use for."""
    held = Roots([os.fsencode(path) for path in (home, *roots)])
    try:
        path = os.fsencode(home)
        yield Sandbox(held, path, path, environment or {}, Limits(), cast("Journal", None))
    finally:
        held.close()


def make_session(home: Path, files: Mapping[str, bytes], *, bucket: str = "", conversation_id: str = ID) -> Path:
    """Write a session's files below the home's CLI home; return its directory."""
    session = home / ".demo" / "sessions" / bucket / conversation_id
    session.mkdir(parents=True)
    write(session, files)
    return session


def write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a directory, with the directories they need."""
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)


@contextmanager
def walked(
    path: Path, profile: Profile = FLAT, *, limits: Limits | None = None, skip_links: bool = False
) -> Iterator[Tree]:
    """Walk a directory and hold its tree."""
    with Directory(os.open(path, os.O_RDONLY), os.fsencode(path)) as session:
        tree = walk(session, profile, limits or Limits(), skip_links=skip_links)
    with tree:
        yield tree
