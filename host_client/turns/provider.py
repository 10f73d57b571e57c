"""Where turns get their sandboxes from.

The one rule: what `acquire` returned is given to `release`, once, whatever came between.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from host_client.errors import ConfigurationError
from host_client.sandbox.sandbox import Sandbox, connect
from host_client.sandbox.target import LocalTarget
from host_client.sandbox.task import in_thread
from host_client.session.failure import host_failures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from host_client.sandbox.target import Target
    from sandbox_api.limits import Limits


@dataclass(frozen=True, kw_only=True, slots=True)
class AcquireContext:
    """What a sandbox is wanted for.

    Attributes:
        agent: Name of the agent that is to run in it.
        repository: Repository on the host that the turn belongs to; None: to none.
        conversation_id: Conversation that is to go on in it; empty: a new one.
    """

    agent: str
    repository: Path | None = None
    conversation_id: str = ""


class SandboxProvider(Protocol):
    """Gives sandboxes and takes them back. Turns that run at the same time call it at the same time.

    Variables that a provider wants every command to have are those of the sandbox it returns, `Sandbox.variables`.
    """

    async def acquire(self, context: AcquireContext) -> Sandbox:
        """Return a connected sandbox. On failure or cancel nothing is left of it."""

    async def release(self, sandbox: Sandbox) -> None:
        """Take back what `acquire` returned; nothing runs in it any more."""


class _Connections:
    """Connections that a provider has made, by the sandbox that they lead to."""

    def __init__(self) -> None:
        self._resources: dict[int, AsyncExitStack] = {}

    async def open(
        self,
        target: str | Target,
        variables: Mapping[str, str] | None,
        limits: Limits | None,
        resources: AsyncExitStack | None = None,
    ) -> Sandbox:
        """Connect. The resources are closed with the connection, or now when it fails."""
        async with resources or AsyncExitStack() as stack:
            sandbox = await stack.enter_async_context(connect(target, limits=limits, variables=variables))
            self._resources[id(sandbox)] = stack.pop_all()
        return sandbox

    async def close(self, sandbox: Sandbox) -> None:
        """Close the connection of a sandbox that was opened here; others are left alone."""
        resources = self._resources.pop(id(sandbox), None)
        if resources is not None:
            await resources.aclose()


class LocalSandboxes:
    """Private homes on this machine, one for each turn, each with a daemon of its own.

    They keep turns apart by their files, not from this machine: commands run as the user who runs this.

    Args:
        root: Directory that the homes are made in; created when it is missing.
        workspace: Directory that the agents work in, the same for all; None: each has an empty one of its own.
        variables: Environment of every command.
        keep: Leave the homes when they are released; the workspace of such a home is beside it.
        limits: Limits of bundle calls and transfers.
    """

    def __init__(
        self,
        root: Path,
        *,
        workspace: Path | None = None,
        variables: Mapping[str, str] | None = None,
        keep: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self._root = root.absolute()
        self._workspace = workspace.absolute() if workspace else None
        self._variables = variables
        self._keep = keep
        self._limits = limits
        self._connections = _Connections()

    async def acquire(self, context: AcquireContext) -> Sandbox:
        """Make a home, 0700, and start a daemon for it.

        Raises:
            ConfigurationError: `invalid_target`: the workspace is no directory.
            WorkspaceError: `access`, `not_found`, `unsafe_path`: the homes cannot be made there.
            LimitError: `disk_full`, `read_only`.
            UnavailableError: `unreachable`: the daemon did not start.
        """
        del context
        directory = self._root / secrets.token_hex(8)
        resources = AsyncExitStack()
        if not self._keep:
            resources.push_async_callback(in_thread, _remove, directory)
        async with resources:
            await in_thread(self._make, directory)
            target = LocalTarget(directory / "home", self._workspace or directory / "workspace")
            return await self._connections.open(target, self._variables, self._limits, resources.pop_all())

    async def release(self, sandbox: Sandbox) -> None:
        """End the daemon and, unless it is to be kept, remove the home."""
        await self._connections.close(sandbox)

    def _make(self, directory: Path) -> None:
        with host_failures(self._root):
            with suppress(FileExistsError):  # where that is no directory, the next step says so
                self._root.mkdir(mode=0o700, parents=True)
            directory.mkdir(mode=0o700)
            (directory / "home").mkdir(mode=0o700)
            if self._workspace is None:
                (directory / "workspace").mkdir(mode=0o700)


def _remove(directory: Path) -> None:
    """Remove a home with all that is in it, directories that nobody may read or write to included."""
    if not os.path.lexists(directory):
        return  # it was never made, and why says more than that it is not there
    with host_failures(directory):
        for path, names, _ in os.walk(directory):
            for inner in (Path(path, name) for name in names):
                if not inner.is_symlink():
                    inner.chmod(0o700)  # before it is gone through
        shutil.rmtree(directory)


class ConnectedSandbox:
    """A daemon that runs already, the same for every turn; releasing leaves it and its files as they are.

    Args:
        target: What is connected to for each turn, or a sandbox that is connected already and stays so.
        variables: Environment of every command.
        limits: Limits of bundle calls and transfers.

    Raises:
        ConfigurationError: `invalid_argument`: variables or limits for a sandbox that has its own.
    """

    def __init__(
        self,
        target: str | Target | Sandbox,
        *,
        variables: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        if isinstance(target, Sandbox) and (variables is not None or limits is not None):
            raise ConfigurationError(
                "invalid_argument",
                "a connected sandbox has its variables and limits already",
                hint="give them to connect(), or give the target instead of the sandbox",
            )
        self._target = target
        self._variables = variables
        self._limits = limits
        self._connections = _Connections()

    async def acquire(self, context: AcquireContext) -> Sandbox:
        """Return the connected sandbox, or connect.

        Raises:
            ConfigurationError: `invalid_target`.
            UnavailableError: `unreachable`, `unsupported`.
        """
        del context
        if isinstance(self._target, Sandbox):
            return self._target
        return await self._connections.open(self._target, self._variables, self._limits)

    async def release(self, sandbox: Sandbox) -> None:
        """Close the connection that `acquire` made."""
        await self._connections.close(sandbox)
