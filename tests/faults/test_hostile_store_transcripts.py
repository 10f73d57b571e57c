"""Hostile answers to a capture of transcripts: the host keeps what it had, byte for byte, and says a typed error."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents import claude, codex
from host_client.errors import OutpostError
from host_client.stores.context import ConversationContext
from host_client.stores.transcript import TranscriptConversations
from support.lie import HANG_SECONDS
from support.lying_home import LyingHome, lying_home

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from host_client.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.anyio

ID = "f1000000-0000-4000-8000-000000000001"
OTHER = "f1000000-0000-4000-8000-000000000002"
KEY = "projects/-workspace"
MAIN = f"{KEY}/{ID}.jsonl"
HOME = b"/home/agent/.claude"
LINE = json.dumps({"type": "user", "cwd": "/workspace", "slug": "my-plan"}).encode() + b"\n"
DAY = "sessions/2026/01/02"


def rollout(thread_id: str) -> str:
    """Return where a thread's rollout lies."""
    return f"{DAY}/rollout-2026-01-02T00-00-00-{thread_id}.jsonl"


def meta(thread_id: str, base: object = None, **more: Any) -> bytes:
    """Return the lines of a rollout that was forked from another one, or not."""
    payload = {"id": thread_id, "cwd": "/workspace", "history_base": base, **more}
    lines = [{"type": "session_meta", "payload": payload}, {"type": "event_msg", "payload": {}}]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def tree(root: Path) -> Mapping[str, tuple[int, bytes]]:
    """Return everything below a directory: modes and contents. The folder of states has nothing but states."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not name.startswith("host/.outpost/conversations"):
            content = (
                os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            )
            found[name] = (path.lstat().st_mode, content)
    return found


class Host:
    """A host with an earlier copy of the conversation, with a companion, and with others'."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path
        self.home, self.repository = tmp_path / "host", tmp_path / "repo"
        self.repository.mkdir()
        self.key = f".claude/projects/{claude.project_key(str(self.repository))}"
        for path, content in {
            f"{self.key}/{OTHER}.jsonl": LINE,
            f"{self.key}/{OTHER}/tool-results/a.txt": b"the other's",
            f".claude/todos/{OTHER}-agent.json": b"[]",
            ".claude/plans/other-plan.md": b"# Other",
            ".claude/settings.json": b"{}",
            ".claude/.credentials.json": b"secret",
            f".codex/{rollout(OTHER)}": meta(OTHER),
            ".codex/session_index.jsonl": json.dumps({"id": OTHER, "name": "mine"}).encode() + b"\n",
            ".codex/auth.json": b"secret",
            ".ssh/authorized_keys": b"mine",
        }.items():
            self.write(path, content)

    def write(self, path: str, content: bytes) -> None:
        """Write a file below the user's home."""
        (self.home / path).parent.mkdir(parents=True, exist_ok=True)
        (self.home / path).write_bytes(content)

    def context(self, sandbox: Sandbox, **more: Any) -> ConversationContext:
        """Return the context of captures."""
        return ConversationContext(
            sandbox=sandbox, conversation_home=self.home, repository=self.repository, durability="none", **more
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Give the host."""
    return Host(tmp_path)


def claude_home(**more: bytes) -> LyingHome:
    """Return a sandbox with a conversation of Claude Code."""
    return LyingHome({MAIN: LINE * 3, f"{KEY}/{ID}/subagents/agent-a.jsonl": LINE, **more}, HOME)


def codex_home(first: bytes | None = None, files: Mapping[str, bytes] | None = None) -> LyingHome:
    """Return a sandbox with a conversation of Codex."""
    return LyingHome({rollout(ID): meta(ID) if first is None else first, **(files or {})}, b"/home/agent/.codex")


async def capture(host: Host, lies: LyingHome, layout: Any = claude.LAYOUT, **more: Any) -> str:
    """Capture; return the reason of the failure, or nothing."""
    async with asyncio.timeout(HANG_SECONDS), lying_home(lies) as sandbox:
        try:
            await TranscriptConversations(layout).capture(ID, host.context(sandbox, **more))
        except OutpostError as error:
            return f"{error.code}/{error.reason}"
    return ""


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
    assert tree(host.root) == {**before, **{k: v for k, v in tree(host.root).items() if k.startswith("host/.outpost")}}


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
    assert tree(host.root) == before | {k: v for k, v in tree(host.root).items() if k.startswith("host/.outpost")}


async def test_lines_of_others_are_not_taken(host: Host) -> None:
    """Of the shared index only lines of the conversation come."""
    index = host.home / ".codex/session_index.jsonl"
    before = index.read_bytes()
    told = [{"id": OTHER, "name": "evil"}, {"id": ID, "name": "own"}, {"id": [ID]}, [ID], ID, {"x": {"id": ID}}]
    lies = codex_home(files={"session_index.jsonl": b"".join(json.dumps(line).encode() + b"\n" for line in told)})
    lies.files["session_index.jsonl"] += b"[" * 100_000 + b"\n" + b'{"id":' + b"9" * 5000 + b"}\n\xff\n"
    assert await capture(host, lies, codex.LAYOUT) == ""
    assert index.read_bytes() == before + json.dumps(told[1]).encode() + b"\n"
