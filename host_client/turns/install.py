"""Make sure that an agent's program is in a sandbox: what is there already, or a tool of the catalogue.

The one rule: what is half installed is never used. A program is looked for where only whole installations are, and each
installation is made in a place of its own until one atomic step shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from host_client.agents.catalogue import CATALOGUE, NpmPackage, check_tool, pinned_name
from host_client.errors import ProcessError, printable
from host_client.turns.install_npm import NpmInstallation
from host_client.turns.install_queue import turn_to_install

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import PurePosixPath

    from host_client.agents.catalogue import Tool
    from host_client.sandbox.sandbox import Sandbox
    from host_client.turns.install_queue import Turn

TOOLS = ".outpost-tools"
"""Folder of all installed tools, below the agent home."""

_SHOWN_CHARACTERS_COUNT = 140


class Installation(Protocol):
    """One tool of one version in one sandbox."""

    async def find(self) -> PurePosixPath | None:
        """Return the program when it is installed as a whole."""

    async def make(self, turn: Turn) -> None:
        """Install it, from the start; what an interrupted installation left goes first."""


async def ensure(
    sandbox: Sandbox,
    command_executable: str,
    tool_name: str | None,
    *,
    variables: Mapping[str, str] | None = None,
    catalogue: Mapping[str, Tool] = CATALOGUE,
) -> str:
    """Return the program to run: the one that is in the sandbox, or else a tool of the catalogue.

    Clients that want to install in the same sandbox at the same time do so one after the other, and whoever comes later
    uses what is there then. On failure or cancel nothing is left that would be used; what is left on the disk goes with
    the next installation of that tool.

    Args:
        sandbox: Where it is needed.
        command_executable: Name that is looked for in PATH, or a path; a path stands for itself alone, and nothing is
            installed in its place.
        tool_name: What is installed when the name is not in PATH; None: nothing.
        variables: Environment of the command: its PATH is searched, for npm too. An installation gets of it what npm
            needs and not the rest.
        catalogue: Tools by name.

    Returns:
        An absolute path in the sandbox.

    Raises:
        ProcessError: `no_such_program`: it is not there, or npm would be needed and is not; `not_executable`;
            `install_failed`.
        ConfigurationError: `unknown_agent`, `invalid_argument`.
        LimitError: `disk_full` for what the client writes, in the sandbox or on this host; `max_processes`.
        UnavailableError: the daemon is away, was restarted meanwhile, or is too old to run processes.
    """
    tool = None if tool_name is None else check_tool(tool_name, catalogue)
    found = await sandbox.processes.find_program(command_executable, variables=variables)
    if found is not None:
        return str(found)
    if tool is None or tool_name is None or "/" in command_executable:
        raise ProcessError(
            "no_such_program",
            f"no program '{printable(command_executable)[:_SHOWN_CHARACTERS_COUNT]}' is in the sandbox",
            hint="install it in the sandbox, or name where it is in PATH",
        )
    installation = await _installation(sandbox, tool_name, tool, variables or {})
    program = await installation.find()
    if program is None:
        async with turn_to_install(sandbox) as turn:
            program = await installation.find()
            if program is None:
                await installation.make(turn)
                program = await installation.find()
    if program is None:
        raise ProcessError("install_failed", f"{tool_name} {tool.version} was installed and is not there any more")
    return str(program)


async def _installation(sandbox: Sandbox, name: str, tool: Tool, variables: Mapping[str, str]) -> Installation:
    info = await sandbox.info()
    folder = sandbox.home / TOOLS / pinned_name(name, tool)
    if isinstance(tool, NpmPackage):
        return NpmInstallation(sandbox, folder, tool, (info.machine, info.c_library), variables)
    # Only now: whoever installs no archive does not pay for HTTP and the formats of archives.
    from host_client.turns.install_archive import ArchiveInstallation  # noqa: PLC0415

    return ArchiveInstallation(sandbox, folder, tool, (info.machine, info.c_library))
