"""A host with a repository and a home for conversations, and runners of turns of the made-up CLI."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host_client.turns.provider import ConnectedSandbox, LocalSandboxes
from host_client.turns.runner import TurnRunner
from support.scripted_agent import ScriptedAdapter, agent_of
from support.wait import wait_until

if TYPE_CHECKING:
    from host_client.agents.adapter import AgentAdapter
    from host_client.sandbox.sandbox import Sandbox
    from host_client.turns.provider import AcquireContext, SandboxProvider


class WatchedProvider:
    """A provider that notes what is acquired and released."""

    def __init__(self, provider: SandboxProvider) -> None:
        self._provider = provider
        self.wanted: list[AcquireContext] = []
        self.acquired: list[Sandbox] = []
        self.released: list[Sandbox] = []

    async def acquire(self, context: AcquireContext) -> Sandbox:
        """Acquire."""
        self.wanted.append(context)
        sandbox = await self._provider.acquire(context)
        self.acquired.append(sandbox)
        return sandbox

    async def release(self, sandbox: Sandbox) -> None:
        """Release."""
        self.released.append(sandbox)
        await self._provider.release(sandbox)


class Scene:
    """A host.

    Args:
        tmp_path: Private folder.
        target: Daemon that all turns run at; empty: each has a new sandbox.

    Attributes:
        repository: The repository.
        home: Home that keeps the conversations.
        provider: Notes what is acquired and released.
    """

    def __init__(self, tmp_path: Path, target: str = "") -> None:
        self.repository, self.home, self.boxes = tmp_path / "repository", tmp_path / "kept", tmp_path / "boxes"
        for directory in (self.repository, self.home):
            directory.mkdir(exist_ok=True)
        self._target = target
        self.provider = self.watched()

    def watched(self, **options: Any) -> WatchedProvider:
        """Return a provider of the scene's kind."""
        made = ConnectedSandbox(self._target, **options) if self._target else LocalSandboxes(self.boxes, **options)
        return WatchedProvider(made)

    def runner(
        self,
        adapter: type[AgentAdapter] = ScriptedAdapter,
        *,
        features: dict[str, Any] | None = None,
        **options: Any,
    ) -> TurnRunner:
        """Return a runner of an agent with these features."""
        given = {"repository": self.repository, "conversation_home": self.home, "durability": "none", **options}
        return TurnRunner(agent_of(adapter, **(features or {})), self.provider, **given)

    def kept(self, conversation_id: str) -> Path:
        """Return where a conversation is kept."""
        return self.home / ".mycli/sessions" / f"{conversation_id}.jsonl"

    def said(self, conversation_id: str) -> str:
        """Return all that is kept of a conversation."""
        return self.kept(conversation_id).read_text()


def is_running(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pid: int) -> None:
    """Wait for the end of a process; end it by its number when it does not."""
    try:
        wait_until(lambda: not is_running(pid), f"the end of process {pid}")
    finally:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)
