"""Turns in sandboxes that have not got the agent's program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from host_client.agents.adapter import Command
from host_client.agents.event import TextEvent
from host_client.agents.harness import CliHarness, create_agent
from host_client.errors import ConfigurationError, ProcessError
from host_client.turns.provider import ConnectedSandbox
from host_client.turns.runner import TurnRunner
from support.archive_server import archive_server
from support.install_scene import archived, install_scene
from support.scripted_agent import ScriptedAdapter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from host_client.agents.adapter import TurnInput
    from host_client.agents.tool import Tool
    from support.archive_server import ArchiveServer
    from support.install_scene import InstallScene

pytestmark = pytest.mark.anyio

PROGRAM = b'#!/bin/sh\ncat > /dev/null\nprintf \'{"text": "%s"}\\n\' "$0"\n'


class ToolAdapter(ScriptedAdapter):
    """An agent whose program is installed when it is missing."""

    bootstrap = "tool"

    def request(self, turn: TurnInput) -> Command:
        """Run it."""
        return Command("tool", (), turn.text)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[InstallScene]:
    """A daemon that finds no such program."""
    with install_scene(tmp_path) as made:
        yield made


@pytest.fixture
def server() -> Iterator[ArchiveServer]:
    """Where archives come from."""
    with archive_server() as made:
        yield made


def runner(scene: InstallScene, catalogue: Mapping[str, Tool], home: Path) -> TurnRunner:
    """Return a runner of the agent with that catalogue."""
    agent = create_agent(CliHarness(ToolAdapter), catalogue=catalogue)
    return TurnRunner(agent, ConnectedSandbox(scene.daemon.target), conversation_home=home)


async def test_a_missing_program_is_installed_for_the_turn(
    scene: InstallScene, server: ArchiveServer, tmp_path: Path
) -> None:
    """The turn runs what was installed, and a second one does not install again."""
    made = runner(scene, archived(server, PROGRAM), tmp_path)
    texts = [(await made.run("hello")).text for _ in range(2)]
    assert texts[0] == texts[1]
    assert texts[0].startswith(str(scene.tools))
    assert server.asked == ["/tool"]


async def test_a_program_that_is_there_is_used(scene: InstallScene, server: ArchiveServer, tmp_path: Path) -> None:
    """What the sandbox has in its PATH wins over the catalogue."""
    there = scene.program("tool", PROGRAM.decode().partition("\n")[2])
    result = await runner(scene, archived(server, PROGRAM), tmp_path).run("hello")
    assert result.events == (TextEvent(str(there)),)
    assert server.asked == []


async def test_a_failed_installation_runs_nothing(scene: InstallScene, server: ArchiveServer, tmp_path: Path) -> None:
    """What is not the archive that was pinned never gets to the sandbox, and the turn says so."""
    made = runner(scene, archived(server, PROGRAM, sha512="00" * 64), tmp_path)
    with pytest.raises(ProcessError) as caught:
        await made.run("hello")
    assert caught.value.reason == "install_failed"
    assert not scene.tools.exists() or not [path for path in scene.tools.rglob("*") if path.is_file()]


def test_an_agent_names_a_tool_of_its_catalogue(server: ArchiveServer) -> None:
    """Another name is refused when the agent is made."""
    assert create_agent(CliHarness(ToolAdapter), catalogue=archived(server, PROGRAM)).features.bootstrap == "tool"
    with pytest.raises(ConfigurationError) as caught:
        create_agent(CliHarness(ToolAdapter))
    assert caught.value.reason == "unknown_agent"
