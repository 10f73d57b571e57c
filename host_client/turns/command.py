"""Commands of an adapter, run in a turn's sandbox with the turn's environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from host_client.agents.adapter import Command, CommandResult
from host_client.errors import ConfigurationError
from host_client.turns.install import ensure

if TYPE_CHECKING:
    from host_client.agents.harness import Agent
    from host_client.sandbox.sandbox import Sandbox

HOOK_SECONDS = 60.0
"""Longest time a command of a hook may take."""

MAX_HOOK_OUTPUT_BYTES = 64 << 20


class Commands:
    """Runs short commands and completes long ones.

    Args:
        agent: The agent; its tool is installed when a program is missing.
        sandbox: Where to run.
        variables: Environment of every command.
    """

    def __init__(self, agent: Agent, sandbox: Sandbox, variables: Mapping[str, str]) -> None:
        self._agent = agent
        self._sandbox = sandbox
        self._variables = variables
        self._programs: dict[str, str] = {}

    def environment(self, command: Command | None) -> dict[str, str]:
        """Return the whole environment of a command; None: of any."""
        return {**self._variables, **(command.variables if command else {})}

    async def argv(self, command: Command) -> list[str]:
        """Return the words that run a command whose program is the agent's; it is installed when it is missing.

        Raises:
            ProcessError: `no_such_program`, `not_executable`, `install_failed`.
        """
        name = command.executable
        tool = self._agent.features.bootstrap
        if name not in self._programs:
            self._programs[name] = name if tool is None else await self._ensured(command, tool)
        return [self._programs[name], *command.arguments]

    async def run(self, command: Command) -> CommandResult:
        """Run a command of the agent's program to its end.

        Raises:
            ConfigurationError: `invalid_argument`: it is no command.
            ProcessError: it cannot be started.
            DeadlineError: `deadline`: it took longer than `HOOK_SECONDS`.
            LimitError: `max_output_bytes`.
        """
        command = checked_command(command, self._agent.name)
        return await self._completed(command, await self.argv(command))

    async def look(self, command: Command) -> CommandResult:
        """Run a command that may be of any program, of which nothing is installed; as `run` else."""
        command = checked_command(command, self._agent.name)
        program = self._programs.get(command.executable, command.executable)
        return await self._completed(command, [program, *command.arguments])

    async def _ensured(self, command: Command, tool: str) -> str:
        return await ensure(
            self._sandbox,
            command.executable,
            tool,
            variables=self.environment(command),
            catalogue=self._agent.catalogue,
        )

    async def _completed(self, command: Command, argv: list[str]) -> CommandResult:
        done = await self._sandbox.run(
            argv,
            cwd=self._sandbox.root,
            variables=self.environment(command),
            input=as_bytes(command.stdin),
            deadline_seconds=HOOK_SECONDS,
            max_output_bytes=MAX_HOOK_OUTPUT_BYTES,
        )
        failure = done.exit.failure(self._agent.name)
        if failure is not None and failure.code != "process":
            raise failure
        status = -done.exit.signal if done.exit.signal else done.exit.status
        return CommandResult(status, done.stdout, done.stderr)


def checked_command(command: object, agent_name: str) -> Command:
    """Return what an adapter gave for a command when it is one; adapters are written by users.

    Raises:
        ConfigurationError: `invalid_argument`. Neither words nor values are told, which may be secrets.
    """
    if not isinstance(command, Command):
        raise _refusal(agent_name, f"{type(command).__name__} for a command")
    words: object = command.arguments
    if isinstance(words, (str, bytes)) or not isinstance(words, Sequence):
        raise _refusal(agent_name, "a command whose arguments are no sequence of words")
    variables: object = command.variables
    if not isinstance(variables, Mapping):
        raise _refusal(agent_name, "a command whose variables are no mapping")
    if not all(isinstance(word, str) for word in (command.executable, *words, *variables, *variables.values())):
        raise _refusal(agent_name, "a command with a word, or a variable, that is no text")
    if not isinstance(command.stdin, (str, bytes)):
        raise _refusal(agent_name, "a command whose input is neither text nor bytes")
    try:
        as_bytes(command.stdin)
    except UnicodeEncodeError:
        raise _refusal(agent_name, "a command whose input cannot be written as UTF-8") from None
    return command


def _refusal(agent_name: str, what: str) -> ConfigurationError:
    return ConfigurationError("invalid_argument", f"the adapter of {agent_name} gave {what}")


def as_bytes(text: str | bytes) -> bytes:
    """Return what a command reads as bytes."""
    return text.encode() if isinstance(text, str) else text
