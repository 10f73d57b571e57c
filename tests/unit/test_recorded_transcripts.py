"""Relocation and inspection of transcripts as Claude Code and Codex wrote them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from host_client.session.compression import decompressed
from host_client.session.inspect import inspect_transcript
from host_client.session.relocate import Relocator
from support.recorded import DATA
from support.transcript_text import relocated

if TYPE_CHECKING:
    from pathlib import Path

WORKSPACE = "/home/dev/demo-app"
TRANSCRIPTS = sorted(
    path
    for pattern in ("claude/**/projects/**/*.jsonl", "codex/**/rollout-*.jsonl", "codex/**/rollout-*.zst")
    for path in DATA.glob(pattern)
)


def content(path: Path) -> bytes:
    """Return a transcript, decompressed."""
    data = path.read_bytes()
    return b"".join(decompressed([data])) if path.suffix == ".zst" else data


def run(relocator: Relocator, data: bytes) -> bytes:
    """Return the transcript relocated."""
    return b"".join([*relocator.feed(data), *relocator.finish()])


def test_there_are_transcripts_of_both() -> None:
    """The tests below have something to look at."""
    assert {path.relative_to(DATA).parts[0] for path in TRANSCRIPTS} == {"claude", "codex"}
    assert any(path.suffix == ".zst" for path in TRANSCRIPTS)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: "-".join(path.relative_to(DATA).parts[:3]))
def test_a_recorded_transcript_moves_there_and_back(path: Path) -> None:
    """Each directory changes, as a parser finds them, and the way back gives the bytes of the CLI."""
    data = content(path)
    there, back = Relocator("/srv/work/other app/é"), Relocator(WORKSPACE)
    moved = run(there, data)
    assert (there.origin, there.torn_at, there.ends_with_newline) == (WORKSPACE, None, True)
    assert there.changed_count == data.count(f'"cwd":"{WORKSPACE}"'.encode()) > 0
    assert moved == relocated(data, "/srv/work/other app/é")
    assert run(back, moved) == data


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: "-".join(path.relative_to(DATA).parts[:3]))
def test_a_recorded_transcript_has_no_finding(path: Path) -> None:
    """What the CLIs write is nothing unusual."""
    found = inspect_transcript(path)
    assert (found.origin, found.findings, found.bytes_count) == (WORKSPACE, [], len(content(path)))
    assert any(session_id in path.name or path.parent.parent.name == session_id for session_id in found.session_ids)


def test_the_place_where_a_fork_begins_moves_with_its_parent() -> None:
    """Codex 0.171.0 notes the byte of the parent rollout where a fork begins; its lines end there after a move too."""
    rollouts = [path for path in TRANSCRIPTS if path.relative_to(DATA).parts[:3] == ("codex", "0.171.0", "fork")]
    heads = {path: json.loads(path.read_bytes().split(b"\n")[0])["payload"] for path in rollouts}
    (base,) = (head["history_base"] for head in heads.values() if head.get("history_base"))
    (parent,) = (path for path, head in heads.items() if head["id"] == base["thread_id"])
    data, cut = parent.read_bytes(), base["end_byte_offset"]
    for destination in ("/w", "/srv/a/much/longer/workspace/of/another/sandbox"):
        relocator = Relocator(destination, cuts=[cut])
        moved = run(relocator, data)
        assert moved[: relocator.cut_positions[cut]] == relocated(data[:cut], destination)
