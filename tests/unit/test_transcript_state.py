"""What a capture keeps for the next one: there and back, and worthless when anything about it is odd."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from host_client.session.folder import Folder
from host_client.session.transcript_state import SavedConversation, SavedFile, SavedScan, load, save

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = SavedFile(
    place="projects/-repo/S1.jsonl",
    size=20,
    sha256=bytes(range(32)),
    identity=(1, 2, 20, 3, 4),
    parts=((10, bytes(32)), (5, bytes(32))),
    line_bytes=18,
    line_sha256=bytes(32),
    cuts={7: 9},
    reference=("other.jsonl", 3, 4),
)
SAVED = SavedConversation(
    source="/home/x/.claude/projects/-ws/S1.jsonl",
    home="/home/x/.claude",
    main="projects/-ws/S1.jsonl",
    origin="/ws",
    destination="/repo",
    files={"projects/-ws/S1.jsonl": FILE, "a": SavedFile("a", 0, bytes(32))},
    scan=SavedScan("/repo", 4, has_record=True, collected={"slug": frozenset({"a", "b"})}),
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A folder for states."""
    with Folder.open(tmp_path, (), create=False) as held:
        yield held


@pytest.mark.parametrize(
    "saved", [SAVED, replace(SAVED, origin=None, files={}, scan=SavedScan(None, None, has_record=False, collected={}))]
)
def test_there_and_back(folder: Folder, saved: SavedConversation) -> None:
    """What was saved is loaded, from a private file, and nothing else is left."""
    save(folder, "S1", saved, durable=True)
    assert load(folder, "S1") == saved
    assert [path.name for path in folder.host_path.iterdir()] == ["S1.json"]
    assert (folder.host_path / "S1.json").stat().st_mode & 0o777 == 0o600
    assert load(folder, "S2") is None


def test_sizes_of_parts_add_up() -> None:
    """The parts are what was taken of the sandbox's file."""
    assert FILE.parts_bytes == 15


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"source": None},
        {"origin": 5},
        {"files": {"x": None}},
        {"files": []},
        {"scan": {}},
        {"files": {"x": {"place": "x", "size": -1}}},
    ],
)
def test_odd_states_are_none(folder: Folder, change: dict[str, Any]) -> None:
    """A state that we did not write so is as good as none."""
    save(folder, "S1", SAVED, durable=False)
    path = folder.host_path / "S1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert load(folder, "S1") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"null"])
def test_what_is_no_state_is_none(folder: Folder, content: bytes) -> None:
    """Neither damage nor depth of a state is an error."""
    (folder.host_path / "S1.json").write_bytes(content)
    assert load(folder, "S1") is None


def test_links_are_not_followed(folder: Folder, tmp_path: Path) -> None:
    """A link in place of a state is none."""
    save(folder, "S1", SAVED, durable=False)
    (tmp_path / "S2.json").symlink_to(tmp_path / "S1.json")
    assert load(folder, "S2") is None
