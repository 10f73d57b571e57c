"""Names in hostile answers to a capture of transcripts: the host keeps what it had, byte for byte."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.agents import codex
from host_client.stores.layout import Conversation, Related
from support.hostile_host import (
    HOME,
    ID,
    KEY,
    LINE,
    MAIN,
    OTHER,
    Host,
    capture,
    claude_home,
    codex_home,
    meta,
    rollout,
    tree,
)
from support.lying_home import LyingHome
from support.transcript_format import IN_BUCKETS, WITH_SIDECARS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Give the host."""
    return Host(tmp_path)


async def test_honest_home_is_captured(host: Host) -> None:
    """The daemon of these tests is believed when it does not lie, and nothing but the conversation is written."""
    before = tree(host.root)
    assert await capture(host, claude_home()) == ""
    after = tree(host.root)
    assert {name: after[name] for name in before} == before
    new = {name for name in after if name not in before and not (host.root / name).is_dir()}
    assert new == {f"host/{host.key}/{ID}.jsonl", f"host/{host.key}/{ID}/subagents/agent-a.jsonl"}


def planting(directory: str, *paths: bytes) -> Callable[[str, str], list[bytes]]:
    """Return what finds these paths below a directory of the home."""
    return lambda asked, _pattern: [
        b"%b/%b/%b" % (HOME, directory.encode(), path) for path in paths if asked == directory
    ]


BESIDE = f"{KEY}/{ID}"
PLANTED: dict[str, tuple[str, bytes, str]] = {
    "a step up": (BESIDE, b"../x.txt", "session/protocol"),
    "a git directory": (BESIDE, b".git/config", "session/unsafe_name"),
    "a NUL": (BESIDE, b"a\0b", "session/protocol"),
    "not UTF-8": (BESIDE, b"\xff.txt", "session/unsafe_name"),
    "a backslash": (BESIDE, b"a\\b", "session/unsafe_name"),
    "deep": (BESIDE, b"/".join([b"d"] * 200), "session/unsafe_name"),
    "a long name": (BESIDE, b"n" * 300, "session/unsafe_name"),
    "the todo list of another": ("todos", f"{OTHER}-agent.json".encode(), "session/protocol"),
    "a transcript of another name": (f"{BESIDE}/subagents", b"settings.json", "session/protocol"),
}


@pytest.mark.parametrize("case", PLANTED)
async def test_impossible_names_are_refused(host: Host, case: str) -> None:
    """A file that the daemon finds under a name that it was not asked for, or that cannot be, changes nothing."""
    assert await capture(host, claude_home()) == ""
    before = tree(host.root)
    directory, path, reason = PLANTED[case]
    lies = claude_home(**{os.fsdecode(b"%b/%b" % (directory.encode(), path)): b"evil"})
    lies.files[MAIN] += LINE
    lies.planted = planting(directory, path)
    assert await capture(host, lies) == reason
    assert tree(host.root) == before


NAMES = [b"a\nb", b".outpost-session-x/a.txt", b".outpost-recovery/a.txt", b"x.txt"]


async def test_odd_names_stay_beside_the_transcript(host: Host) -> None:
    """A newline is a name like any other, staging and recovery are passed over, and twice the same file is one."""
    before = tree(host.root)
    lies = claude_home()
    lies.files |= {f"{BESIDE}/{os.fsdecode(name)}": b"told" for name in NAMES}
    lies.planted = planting(BESIDE, *NAMES, *NAMES)
    assert await capture(host, lies) == ""
    after = tree(host.root)
    new = {name for name in after if name not in before and not (host.root / name).is_dir()}
    folder = f"host/{host.key}/{ID}"
    assert new == {f"{folder}.jsonl", f"{folder}/subagents/agent-a.jsonl", f"{folder}/a\nb", f"{folder}/x.txt"}


@pytest.mark.parametrize("home", [b"/", b"/etc", b"/home/agent/.claude/projects"])
async def test_home_anywhere_writes_nothing_else(host: Host, home: bytes) -> None:
    """Wherever the daemon says that the home is, the host's files go where the host keeps them."""
    before = tree(host.root)
    lies = claude_home()
    lies.home = home
    lies.files[f"{KEY}/{ID}/settings.json"] = b"evil"
    assert await capture(host, lies) == ""
    after = tree(host.root)
    assert {name: after[name] for name in before} == before
    folder = f"host/{host.key}/{ID}"
    assert all(name.startswith((folder, "host/.outpost")) for name in after if name not in before)


@pytest.mark.parametrize("slug", ["../settings", "/etc/passwd", "..", "a/b", "*", "other-plan\n"])
async def test_slug_that_is_a_path_names_no_plan(host: Host, slug: str) -> None:
    """Only a plain name of a plan is believed."""
    before = tree(host.root)
    lies = claude_home(**{"plans/other-plan.md": b"evil", "settings.json.md": b"evil"})
    lies.files[MAIN] = json.dumps({"type": "user", "cwd": "/workspace", "slug": slug}).encode() + b"\n"
    assert await capture(host, lies) == ""
    after = tree(host.root)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("base", ["../../x", "*", "[a]", f"{OTHER}*", "", "/etc/passwd", f"{OTHER}\n", "\ud800"])
async def test_parent_that_is_a_path_or_a_pattern_is_missing(host: Host, base: str) -> None:
    """A first line that names what is no id finds nothing."""
    before = tree(host.root)
    first = meta(ID, {"thread_id": base, "end_byte_offset": 1})
    lies = codex_home(first, {rollout(OTHER): meta(OTHER), "x": b"evil"})
    assert await capture(host, lies, codex.LAYOUT) == "session/missing_required"
    assert tree(host.root) == before


async def test_parent_of_another_name_is_refused(host: Host) -> None:
    """Asked for one thread, a daemon cannot hand out another file in its place."""
    before = tree(host.root)
    parent = "f1000000-0000-4000-8000-000000000003"
    lies = codex_home(
        meta(ID, {"thread_id": parent, "end_byte_offset": 1}),
        {"sessions/auth.json": b"evil", rollout(OTHER): b"evil\n"},
    )
    for planted in ("sessions/auth.json", rollout(OTHER)):
        found = lies.home + b"/" + planted.encode()
        lies.planted = lambda asked, pattern, found=found: [found] if asked == "sessions" and parent in pattern else []
        assert await capture(host, lies, codex.LAYOUT) == "session/protocol"
    assert tree(host.root) == before


async def test_lines_of_others_are_not_taken(host: Host) -> None:
    """Of the shared index only lines of the conversation come."""
    index = host.home / ".codex/session_index.jsonl"
    before = index.read_bytes()
    told = [{"id": OTHER, "name": "evil"}, {"id": ID, "name": "own"}, {"id": [ID]}, [ID], ID, {"x": {"id": ID}}]
    lies = codex_home(files={"session_index.jsonl": b"".join(json.dumps(line).encode() + b"\n" for line in told)})
    lies.files["session_index.jsonl"] += b"[" * 100_000 + b"\n" + b'{"id":' + b"9" * 5000 + b"}\n\xff\n"
    assert await capture(host, lies, codex.LAYOUT) == ""
    assert index.read_bytes() == before + json.dumps(told[1]).encode() + b"\n"


PLANTED_CHILDREN = [b"../x.jsonl", b".git/x.jsonl", b"\xff.jsonl", b"a\0.jsonl", b"evil.json", b"../../S2.jsonl"]


async def test_companion_in_the_place_of_the_transcript_is_refused(host: Host) -> None:
    """Of a user's own layout: a sandbox cannot have a second file go where the host's main transcript does."""
    place = PurePosixPath("sessions/repo", f"{ID}.jsonl")
    host.write(".mycli/settings.json", b"{}")

    async def related(conversation: Conversation) -> list[Related]:
        return [Related(path) for path in await conversation.files.find(PurePosixPath("sessions/repo"))]

    lies = LyingHome({f"sessions/workspace/{ID}.jsonl": LINE, f"{place}/a": b"evil"}, b"/home/agent/.mycli")
    layout = replace(
        IN_BUCKETS, related=related, conversation_id=lambda path: ID if "workspace" in path.parts else None
    )
    before = tree(host.root)
    for path in (f"{place}/a", str(place)):
        lies.files = {f"sessions/workspace/{ID}.jsonl": LINE, path: b"evil"}
        assert await capture(host, lies, layout) == "configuration/invalid_argument"
        assert tree(host.root) == before


@pytest.mark.parametrize("case", PLANTED_CHILDREN)
async def test_children_of_a_users_own_layout_are_checked(host: Host, case: bytes) -> None:
    """What a daemon finds as transcripts of children is checked for any layout."""
    home = b"/home/agent"
    folder = f".mycli/sessions/{ID}/subagents"
    lies = LyingHome({f".mycli/sessions/{ID}.jsonl": LINE, f"{folder}/a.jsonl": LINE}, home)
    before = tree(host.root)
    lies.planted = lambda directory, _: [b"%b/%b/%b" % (home, folder.encode(), case)] if directory == folder else []
    assert await capture(host, lies, WITH_SIDECARS) in ("session/protocol", "session/unsafe_name")
    assert tree(host.root) == before
