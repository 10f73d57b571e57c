"""A connected sandbox and what it has, blocking."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from host_client.sandbox import bundle as _bundle
from host_client.sandbox import file as _file
from host_client.sandbox import process as _process
from host_client.sandbox import processes as _processes
from host_client.sandbox import sandbox as _sandbox
from host_client.sandbox import transcript as _transcript
from host_client.sandbox.connection import STALL_SECONDS
from host_client.stores.context import ConversationContext
from host_client.sync.blocking import PORTAL, Blocking, call, each, every, wait_for

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from pathlib import PurePosixPath

    from host_client.sandbox.process_exit import Exit, Output
    from host_client.sandbox.process_request import Word
    from host_client.sandbox.target import Target
    from sandbox_api.limits import Limits


class Bundles(Blocking[_bundle.Bundles]):
    """Session directories of one sandbox; see `host_client.sandbox.bundle.Bundles`.

    There is no `restore_stream`: what it sends comes from the event loop.
    """

    list = every(_bundle.Bundles.list)
    capture = call(_bundle.Bundles.capture)
    restore = call(_bundle.Bundles.restore)
    validate = call(_bundle.Bundles.validate)
    list_recovery = every(_bundle.Bundles.list_recovery)
    undo_restore = call(_bundle.Bundles.undo_restore)
    prune_recovery = call(_bundle.Bundles.prune_recovery)


class Files(Blocking[_file.Files]):
    """Single files of one sandbox; see `host_client.sandbox.file.Files`."""

    find = every(_file.Files.find)
    stat = call(_file.Files.stat)
    read = call(_file.Files.read)
    head = call(_file.Files.head)
    write = call(_file.Files.write)
    remove = call(_file.Files.remove)


class Transcripts(Blocking[_transcript.Transcripts]):
    """Conversations that are files; see `host_client.sandbox.transcript.Transcripts`.

    There is no `follow`: it has no end that could be waited for.
    """

    restore = call(_transcript.Transcripts.restore)
    find_holders = call(_transcript.Transcripts.find_holders)
    list_recovery = every(_transcript.Transcripts.list_recovery)
    undo_restore = call(_transcript.Transcripts.undo_restore)
    prune_recovery = call(_transcript.Transcripts.prune_recovery)


class Process(Blocking[_process.Process]):
    """One process in a sandbox; see `host_client.sandbox.process.Process`.

    Attributes:
        id: Its id, by which any client of the daemon can attach to it.
        pid: Its number in the sandbox, for people; 0 when it was attached to.
    """

    def __init__(self, asynchronous: _process.Process) -> None:
        super().__init__(asynchronous)
        self.id: str = asynchronous.id
        self.pid: int = asynchronous.pid

    write = call(_process.Process.write)
    close_input = call(_process.Process.close_input)
    resize = call(_process.Process.resize)
    signal = call(_process.Process.signal)
    end = call(_process.Process.end)
    wait = call(_process.Process.wait)

    def output(self) -> Generator[Output, None, None]:
        """Yield its output as it comes; each piece is waited for. See `host_client.sandbox.process.Process.output`."""
        return each(self.asynchronous.output())

    def detach(self) -> None:
        """Let go of the process, which goes on. What comes next here attaches again."""

        async def detach() -> None:
            self.asynchronous.detach()

        wait_for(detach)

    @property
    def exit(self) -> Exit | None:
        """How it ended; None as long as nobody here has learned that it did."""
        return self.asynchronous.exit


class Processes(Blocking[_processes.Processes]):
    """Processes that live on their own; see `host_client.sandbox.processes.Processes`."""

    list = call(_processes.Processes.list)
    release = call(_processes.Processes.release)
    find_program = call(_processes.Processes.find_program)

    @wraps(_processes.Processes.start)
    def start(self, argv: Sequence[Word], **options: Any) -> Process:
        """Start a process that lives on its own."""
        return Process(wait_for(partial(self.asynchronous.start, argv, **options)))

    @wraps(_processes.Processes.attach)
    def attach(self, process_id: str, **options: Any) -> Process:
        """Return a process by its id."""
        return Process(self.asynchronous.attach(process_id, **options))


class Sandbox(Blocking[_sandbox.Sandbox]):
    """A connected sandbox; see `host_client.sandbox.sandbox.Sandbox`.

    Attributes:
        asynchronous: The sandbox as the asynchronous parts of the library know it.
        root: The workspace, links resolved.
        home: The agent home.
        target: What was connected to.
        is_local: Its daemon is a private one on this machine, so its files are this machine's.
        bundles: Session directories.
        files: Single files.
        transcripts: Conversations that are files among those of others.
        processes: Processes that live on their own; `run` and `running` are for those that do not.
        variables: Variables of every process that is run here.
    """

    def __init__(self, asynchronous: _sandbox.Sandbox) -> None:
        super().__init__(asynchronous)
        self.root: PurePosixPath = asynchronous.root
        self.home: PurePosixPath = asynchronous.home
        self.target: str = asynchronous.target
        self.is_local: bool = asynchronous.is_local
        self.bundles = Bundles(asynchronous.bundles)
        self.files = Files(asynchronous.files)
        self.transcripts = Transcripts(asynchronous.transcripts)
        self.processes = Processes(asynchronous.processes)
        self.variables: Mapping[str, str] = asynchronous.variables

    def __repr__(self) -> str:
        return repr(self.asynchronous)

    info = call(_sandbox.Sandbox.info)
    diagnose = call(_sandbox.Sandbox.diagnose)
    resolve_home = call(_sandbox.Sandbox.resolve_home)
    upload = call(_sandbox.Sandbox.upload)
    download = call(_sandbox.Sandbox.download)
    run = call(_sandbox.Sandbox.run)
    close = call(_sandbox.Sandbox.close)

    @contextmanager
    def running(self, argv: Sequence[Word], **options: Any) -> Iterator[Process]:
        """Run a command for the time of a block: at its end the process is ended when it runs, and is forgotten.

        Args:
            argv: The command.
            options: The further parameters of `run`.
        """
        run = self.asynchronous.run(argv, **options)
        with PORTAL as portal, portal.wrap_async_context_manager(run) as process:
            yield Process(process)

    def context(self, **fields: Any) -> ConversationContext:
        """Return a `ConversationContext` for this sandbox with these fields."""
        return ConversationContext(sandbox=self.asynchronous, **fields)


@contextmanager
def connect(
    target: str | Target,
    *,
    limits: Limits | None = None,
    stall_seconds: float = STALL_SECONDS,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Sandbox]:
    """Connect to a daemon, or start a private one for `local:`; leaving the context closes the sandbox.

    See `host_client.sandbox.sandbox.connect` for parameters and errors.
    """
    connecting = _sandbox.connect(target, limits=limits, stall_seconds=stall_seconds, variables=variables)
    with PORTAL as portal, portal.wrap_async_context_manager(connecting) as sandbox:
        yield Sandbox(sandbox)
