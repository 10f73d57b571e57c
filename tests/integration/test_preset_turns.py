"""Turns of built-in agents whose program is a script that does what the real one seldom does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from host_client import ConfigurationError, LocalSandboxes, ProcessError, TurnRunner, builtin_agent
from host_client.agents.kimi_agent import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from pathlib import Path

COPILOT = """#!/bin/sh
# Leaves a session that has but one of its files, as 1.0.102 does when it is killed at once.
while [ "$1" != --session-id ]; do shift; done
mkdir -p "$HOME/.copilot/session-state/$2"
echo "id: $2" > "$HOME/.copilot/session-state/$2/workspace.yaml"
echo '{"type":"session.info","data":{"message":"begun"}}'
exit 3
"""

KIMI = """#!/bin/sh
touch "$0.has-run"
"""


def runner(name: str, script: str, folder: Path) -> TurnRunner:
    """Return a runner of a built-in agent with that script as its program."""
    for directory in ("bin", "kept"):
        (folder / directory).mkdir()
    program = folder / "bin" / name
    program.write_text(script)
    program.chmod(0o755)
    provider = LocalSandboxes(folder / "boxes", variables={"PATH": f"{program.parent}:/usr/bin:/bin"})
    return TurnRunner(builtin_agent(name), provider, conversation_home=folder / "kept", durability="none")


def test_a_session_that_was_hardly_begun_is_no_second_failure(tmp_path: Path) -> None:
    """The turn fails by what its program did, and names no conversation that could be resumed."""
    with pytest.raises(ProcessError) as failed:
        asyncio.run(runner("copilot", COPILOT, tmp_path).run("hello"))
    assert failed.value.reason == "failed"
    assert failed.value.facts["status"] == "3"
    assert "conversation" not in failed.value.facts


def test_a_prompt_that_cannot_be_told_is_refused_and_the_sandbox_given_back(tmp_path: Path) -> None:
    """Kimi Code would get it as an argument; nothing runs, and no sandbox is left."""
    with pytest.raises(ConfigurationError) as refused:
        asyncio.run(runner("kimi", KIMI, tmp_path).run("x" * (MAX_TEXT_BYTES + 1)))
    assert refused.value.reason == "invalid_argument"
    assert not (tmp_path / "bin" / "kimi.has-run").exists()
    assert not list((tmp_path / "boxes").iterdir())
