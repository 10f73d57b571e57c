"""A small made-up CLI that keeps a transcript per conversation, for tests of stores."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from host_client.stores.layout import TranscriptFunctions
from host_client.stores.profile import BundleRoot

if TYPE_CHECKING:
    from pathlib import Path

ID = "S1"
OLD = "/old"

LAYOUT = TranscriptFunctions(
    format="mycli",
    sidecars=False,
    search_root=lambda home: home / ".mycli/sessions",
    matches=lambda file, wanted: file.name == f"{wanted}.jsonl",
    directory=lambda _repository, home: home / ".mycli/sessions",
    capture_path=lambda wanted, _repository, home, _original: home / ".mycli/sessions" / f"{wanted}.jsonl",
    remote_search_root=lambda home: home / ".mycli/sessions",
    pattern=lambda wanted: f"{wanted}.jsonl",
    remote_path=lambda wanted, sandbox, _original: sandbox.home / ".mycli/sessions" / f"{wanted}.jsonl",
)
"""The format as small as it can be written."""

WITH_SIDECARS = replace(LAYOUT, sidecars=True)

IN_BUCKETS = replace(
    LAYOUT,
    sidecars=True,
    root=BundleRoot(directory=".mycli", variable="MYCLI_HOME"),
    search_root=lambda home: home / "sessions",
    remote_search_root=lambda home: home / "sessions",
    directory=lambda repository, home: home / "sessions" / repository.name,
    preferred_path=lambda wanted, repository, home: home / "sessions" / repository.name / f"{wanted}.jsonl",
    capture_path=lambda wanted, repository, home, _: home / "sessions" / repository.name / f"{wanted}.jsonl",
    remote_path=lambda wanted, sandbox, _: sandbox.home / "sessions" / sandbox.root.name / f"{wanted}.jsonl",
)
"""A format with a CLI home of its own and a folder for each working directory, named after its last step."""


def lines(cwd: str = OLD, count: int = 2) -> bytes:
    """Return a transcript recorded in a directory."""
    told = [{"type": "mode"}, *({"type": "user", "cwd": cwd, "n": number} for number in range(count))]
    return b"".join(json.dumps(line).encode() + b"\n" for line in told)


def write_transcript(folder: Path, content: bytes | None = None, *, conversation_id: str = ID) -> Path:
    """Write a transcript with a child, and return its path."""
    path = folder / f"{conversation_id}.jsonl"
    child = folder / conversation_id / "subagents/agent-x.jsonl"
    child.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines() if content is None else content)
    child.write_bytes(lines(count=1))
    return path
