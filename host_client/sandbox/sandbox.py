"""One connected sandbox: what a caller holds."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from host_client.errors import DeadlineError, UnavailableError
from host_client.sandbox import daemon, transfer
from host_client.sandbox.bundle import Bundles
from host_client.sandbox.connection import STALL_SECONDS, Connection
from host_client.sandbox.file import Files
from host_client.sandbox.local import local_daemon
from host_client.sandbox.target import LocalTarget, parse_target
from host_client.sandbox.task import in_thread
from host_client.sandbox.transcript import Transcripts
from sandbox_api.limits import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path, PurePosixPath

    from host_client.sandbox.daemon import Finding, Info, ResolvedHome
    from host_client.sandbox.progress import Progress
    from host_client.sandbox.target import Target
    from sandbox_api.profile import Profile

CONNECT_SECONDS = 10.0
"""Longest time a daemon may take to say who it is."""

_HINT = "see that `sandbox-agent serve` runs in the sandbox and listens there"


class Sandbox:
    """A sandbox with its daemon, made by `connect`.

    Calls may run at the same time, all in the event loop that connected.

    Attributes:
        root: The workspace, links resolved.
        home: The agent home.
        limits: Limits of bundle calls and transfers that name none.
        is_local: Its daemon is a private one on this machine, so its files are this machine's.
        bundles: Session directories.
        files: Single files.
        transcripts: Conversations that are files among those of others.
    """

    def __init__(
        self, connection: Connection, info: Info, limits: Limits, resources: AsyncExitStack, *, is_local: bool
    ) -> None:
        self._connection = connection
        self._resources = resources
        self.root: PurePosixPath = info.workspace
        self.home: PurePosixPath = info.home
        self.limits = limits
        self.is_local = is_local
        self.bundles = Bundles(connection, limits, info.limits)
        self.files = Files(connection)
        self.transcripts = Transcripts(connection)

    def __repr__(self) -> str:
        return f"<Sandbox {self.target}>"

    @property
    def target(self) -> str:
        """What was connected to, as text."""
        return self._connection.target

    async def info(self) -> Info:
        """Ask the daemon what it is and what it can do.

        Raises:
            UnavailableError: any reason.
        """
        return await daemon.info(self._connection)

    async def diagnose(
        self, profiles: Sequence[Profile] = (), variables: Mapping[str, str] | None = None
    ) -> Sequence[Finding]:
        """Ask the daemon what would make later calls fail, for itself and for these formats.

        Raises:
            ConfigurationError: `invalid_profile`.
            UnavailableError: any reason.
        """
        return await daemon.diagnose(self._connection, profiles, variables)

    async def resolve_home(
        self,
        variable: str | None,
        directory: str,
        *,
        variables: Mapping[str, str] | None = None,
        follow_root_link: bool = False,
    ) -> ResolvedHome:
        """Ask the daemon where a CLI has its home: by a variable when that is set and not empty, else by its directory.

        Args:
            variable: Environment variable that moves the home; None: there is none.
            directory: Home below the agent home; empty: the agent home itself.
            variables: The CLI's environment where it differs from the daemon's.
            follow_root_link: Whether a home that is itself a link is accepted.

        Raises:
            ConfigurationError: `invalid_argument`.
            SessionError: `root_symlink`, `symlink`; `protocol`.
            WorkspaceError: `outside_roots`, `unsafe_path`.
            UnavailableError: any reason; `unsupported`: the daemon is too old.
        """
        return await daemon.resolve_home(
            self._connection, variable, directory, variables, follow_root_link=follow_root_link
        )

    async def upload(
        self,
        host_path: Path,
        sandbox_path: PurePosixPath,
        *,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Copy a file, or all files of a directory, into the sandbox; see `transfer.upload`."""
        await transfer.upload(self.files, host_path, sandbox_path, progress=progress)

    async def download(
        self,
        sandbox_path: PurePosixPath,
        host_path: Path,
        *,
        limits: Limits | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Copy a file, or all files of a directory, out of the sandbox; see `transfer.download`."""
        await transfer.download(self.files, sandbox_path, host_path, limits=limits or self.limits, progress=progress)

    async def close(self) -> None:
        """End the connection, and the daemon when it was started for it. May be repeated.

        Calls that are not over fail with `unavailable`/`cancelled`.
        """
        await self._resources.aclose()


@asynccontextmanager
async def connect(
    target: str | Target, *, limits: Limits | None = None, stall_seconds: float = STALL_SECONDS
) -> AsyncIterator[Sandbox]:
    """Connect to a daemon, or start a private one for `local:`; leaving the context closes the sandbox.

    Args:
        target: `unix:/path`, `host:port`, `local:HOME[,WORKSPACE]`, or one of these parsed.
        limits: Limits of bundle calls and transfers that name none; None: the default ones.
        stall_seconds: Longest silence of the daemon in a call, in seconds.

    Raises:
        ConfigurationError: `invalid_target`.
        UnavailableError: `unreachable`: nobody answered within `CONNECT_SECONDS`, or a local daemon did not start;
            `unsupported`: not a daemon of our contract.
    """
    where = await in_thread(parse_target, target) if isinstance(target, str) else target
    async with AsyncExitStack() as resources:
        named = str(where)
        is_local = isinstance(where, LocalTarget)
        if isinstance(where, LocalTarget):
            where = await resources.enter_async_context(local_daemon(where, limits or Limits()))
        connection = Connection(where.address, named, stall_seconds=stall_seconds)
        resources.push_async_callback(connection.close)
        try:
            info = await daemon.info(connection, seconds=CONNECT_SECONDS)
        except DeadlineError as error:
            message = f"{named} did not answer within {CONNECT_SECONDS:.0f} s"
            raise UnavailableError("unreachable", message, hint=_HINT) from error
        except UnavailableError as error:
            error.hint = error.hint or _HINT
            raise
        yield Sandbox(connection, info, limits or Limits(), resources, is_local=is_local)
