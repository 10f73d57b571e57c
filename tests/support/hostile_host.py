"""A host with conversations of its own, and sandboxes that lie to it while it captures one."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

from host_client.agents import claude
from host_client.errors import OutpostError
from host_client.stores.context import ConversationContext
from host_client.stores.transcript import TranscriptConversations
from support.lie import HANG_SECONDS
from support.lying_home import LyingHome, lying_home

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from host_client.sandbox.sandbox import Sandbox

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
        if name != "host/.outpost" and not name.startswith("host/.outpost/conversations"):
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
