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
from host_client.sandbox.process_run import Run
from host_client.sandbox.processes import GRACE_SECONDS, HOLD_SECONDS, PATIENCE_SECONDS, Processes
from host_client.sandbox.target import LocalTarget, parse_target
from host_client.sandbox.task import in_thread
from host_client.sandbox.transcript import Transcripts
from sandbox_api.limits import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path, PurePosixPath

    from host_client.sandbox.daemon import Finding, Info, ResolvedHome
    from host_client.sandbox.process_request import Word
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
        processes: Processes that live on their own; `run` is for those that do not.
        variables: Variables of every process that is run here.
    """

    def __init__(
        self,
        connection: Connection,
        info: Info,
        limits: Limits,
        resources: AsyncExitStack,
        *,
        is_local: bool,
        variables: Mapping[str, str],
    ) -> None:
        self._connection = connection
        self._resources = resources
        self.root: PurePosixPath = info.workspace
        self.home: PurePosixPath = info.home
        self.limits = limits
        self.is_local = is_local
        self.bundles = Bundles(connection, limits, info.limits, info.capabilities)
        self.files = Files(connection)
        self.transcripts = Transcripts(connection, info.capabilities)
        self.variables = variables
        self.processes = Processes(connection, variables, info.instance_id)

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

    def run(
        self,
        argv: Sequence[Word],
        *,
        cwd: PurePosixPath | str | None = None,
        variables: Mapping[str, str] | None = None,
        input: bytes = b"",  # noqa: A002 - what subprocess calls it
        open_input: bool = False,
        terminal: tuple[int, int] | None = None,
        deadline_seconds: float = 0,
        idle_seconds: float = 0,
        grace_seconds: float = GRACE_SECONDS,
        max_output_bytes: int | None = None,
        keep_bytes: int = 0,
        hold_seconds: float = HOLD_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        process_id: str = "",
    ) -> Run:
        """Run a command: `await` gives a `Completed` with its output, `async with` a `Process` while it runs.

        An awaited run takes input of any size, and its output is bounded: by 16 MiB unless `max_output_bytes` is given.
        Its process is ended when it prints more. A bad end is no exception before `Completed.check` makes it one.

        See `Processes.start` for parameters and errors.
        """
        return Run(
            self.processes,
            argv,
            cwd=cwd,
            variables=variables,
            input=input,
            open_input=open_input,
            terminal=terminal,
            deadline_seconds=deadline_seconds,
            idle_seconds=idle_seconds,
            grace_seconds=grace_seconds,
            max_output_bytes=max_output_bytes,
            keep_bytes=keep_bytes,
            hold_seconds=hold_seconds,
            patience_seconds=patience_seconds,
            process_id=process_id,
        )

    async def close(self) -> None:
        """End the connection, and the daemon when it was started for it. May be repeated.

        Calls that are not over fail with `unavailable`/`cancelled`.
        """
        await self._resources.aclose()


@asynccontextmanager
async def connect(
    target: str | Target,
    *,
    limits: Limits | None = None,
    stall_seconds: float = STALL_SECONDS,
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[Sandbox]:
    """Connect to a daemon, or start a private one for `local:`; leaving the context closes the sandbox.

    Args:
        target: `unix:/path`, `host:port`, `local:HOME[,WORKSPACE]`, or one of these parsed.
        limits: Limits of bundle calls and transfers that name none; None: the default ones.
        stall_seconds: Longest silence of the daemon in a call, in seconds.
        variables: Variables of every process that is run there; weaker than those of a run.

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
        yield Sandbox(
            connection, info, limits or Limits(), resources, is_local=is_local, variables=dict(variables or {})
        )
