"""The client for programs without an event loop: the same objects, with methods that block.

```python
with sync.connect("unix:/run/outpost/agent.sock") as sandbox:
    store = sync.Conversations(SessionBundleConversations(profile))
    record = store.capture(conversation_id, sandbox.context(repository=Path(".")))
```

Rules for threads:

- All calls run in one background thread with one event loop, which lives while a sandbox is connected or a call runs.
- Every object here may be used from any thread, by several at the same time; their calls run at the same time.
- Progress callbacks run in the background thread. They must not block and must not call a method of this module.
- An interrupt (Ctrl-C) cancels the call it meets; what a cancelled call leaves behind is what the method says.
- Do not call from a coroutine: that blocks its loop. Do not use a connected sandbox in a forked child.

Methods raise what their asynchronous originals raise, and have the same parameters. Streams of items become sequences,
those without an end iterators.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from anyio.from_thread import BlockingPortalProvider

from host_client.sandbox import bundle as _bundle
from host_client.sandbox import file as _file
from host_client.sandbox import process as _process
from host_client.sandbox import processes as _processes
from host_client.sandbox import sandbox as _sandbox
from host_client.sandbox import transcript as _transcript
from host_client.sandbox.connection import STALL_SECONDS
from host_client.stores import relay as _relay
from host_client.stores.context import ConversationContext
from host_client.stores.contract import ConversationStore

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Generator,
        Iterator,
        Mapping,
        Sequence,
    )
    from pathlib import PurePosixPath

    from host_client.sandbox.process_exit import Exit, Output
    from host_client.sandbox.process_request import Word
    from host_client.sandbox.target import Target
    from host_client.stores.contract import FollowUpdate
    from host_client.stores.relay import RelayResult
    from sandbox_api.limits import Limits

__all__ = [
    "Bundles",
    "Conversations",
    "Files",
    "Process",
    "Processes",
    "Sandbox",
    "Transcripts",
    "connect",
    "relay",
]

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")

_portal = BlockingPortalProvider("asyncio")


class _Call(Generic[T]):
    """A call in the background thread, which can be cancelled before whoever starts it has learned that it runs.

    Its methods run in that thread.
    """

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False

    async def run(self) -> T:
        self._task = asyncio.current_task()
        if self._is_cancelled:
            raise asyncio.CancelledError
        return await self._function()

    async def cancel(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()


def _wait(function: Callable[[], Awaitable[T]]) -> T:
    call = _Call(function)
    with _portal as portal:
        try:
            return portal.start_task_soon(call.run).result()
        except BaseException:
            portal.start_task_soon(call.cancel)  # does nothing unless we were interrupted
            raise


class _Blocking(Generic[A]):
    """An object with blocking methods in front of an asynchronous one."""

    def __init__(self, asynchronous: A) -> None:
        self.asynchronous = asynchronous


def _call(method: Callable[Concatenate[A, P], Awaitable[T]]) -> Callable[Concatenate[_Blocking[A], P], T]:
    """Return the method of the façade that waits for the result of the asynchronous one of that name."""

    @wraps(method)
    def call(self: _Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound: Callable[P, Awaitable[T]] = getattr(self.asynchronous, method.__name__)
        return _wait(partial(bound, *args, **kwargs))

    return call


def _all(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[_Blocking[A], P], Sequence[T]]:
    """Return the method of the façade that collects all items of the asynchronous iterator of that name."""

    @wraps(method)
    def collect(self: _Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> Sequence[T]:
        bound: Callable[P, AsyncIterator[T]] = getattr(self.asynchronous, method.__name__)

        async def collected() -> Sequence[T]:
            return [item async for item in bound(*args, **kwargs)]

        return _wait(collected)

    return collect


def _each(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Yield the items of an asynchronous generator as they come, and close it at the end."""

    async def next_item() -> T | None:
        return await anext(items, None)

    with _portal:  # between two calls, too, it is the same loop
        try:
            while (item := _wait(next_item)) is not None:
                yield item
        finally:
            _wait(items.aclose)


class Bundles(_Blocking[_bundle.Bundles]):
    """Session directories of one sandbox; see `host_client.sandbox.bundle.Bundles`."""

    list = _all(_bundle.Bundles.list)
    capture = _call(_bundle.Bundles.capture)
    restore = _call(_bundle.Bundles.restore)
    validate = _call(_bundle.Bundles.validate)
    list_recovery = _all(_bundle.Bundles.list_recovery)
    undo_restore = _call(_bundle.Bundles.undo_restore)
    prune_recovery = _call(_bundle.Bundles.prune_recovery)


class Files(_Blocking[_file.Files]):
    """Single files of one sandbox; see `host_client.sandbox.file.Files`."""

    find = _all(_file.Files.find)
    stat = _call(_file.Files.stat)
    read = _call(_file.Files.read)
    head = _call(_file.Files.head)
    write = _call(_file.Files.write)
    remove = _call(_file.Files.remove)


class Transcripts(_Blocking[_transcript.Transcripts]):
    """Conversations that are files; see `host_client.sandbox.transcript.Transcripts`.

    There is no `follow`: it has no end that could be waited for.
    """

    restore = _call(_transcript.Transcripts.restore)
    find_holders = _call(_transcript.Transcripts.find_holders)
    list_recovery = _all(_transcript.Transcripts.list_recovery)
    undo_restore = _call(_transcript.Transcripts.undo_restore)
    prune_recovery = _call(_transcript.Transcripts.prune_recovery)


class Process(_Blocking[_process.Process]):
    """One process in a sandbox; see `host_client.sandbox.process.Process`.

    Attributes:
        id: Its id, by which any client of the daemon can attach to it.
        pid: Its number in the sandbox, for people; 0 when it was attached to.
    """

    def __init__(self, asynchronous: _process.Process) -> None:
        super().__init__(asynchronous)
        self.id: str = asynchronous.id
        self.pid: int = asynchronous.pid

    write = _call(_process.Process.write)
    close_input = _call(_process.Process.close_input)
    resize = _call(_process.Process.resize)
    signal = _call(_process.Process.signal)
    end = _call(_process.Process.end)
    wait = _call(_process.Process.wait)

    def output(self) -> Generator[Output, None, None]:
        """Yield its output as it comes; each piece is waited for. See `host_client.sandbox.process.Process.output`."""
        return _each(self.asynchronous.output())

    def detach(self) -> None:
        """Let go of the process, which goes on. What comes next here attaches again."""

        async def detach() -> None:
            self.asynchronous.detach()

        _wait(detach)

    @property
    def exit(self) -> Exit | None:
        """How it ended; None as long as nobody here has learned that it did."""
        return self.asynchronous.exit


class Processes(_Blocking[_processes.Processes]):
    """Processes that live on their own; see `host_client.sandbox.processes.Processes`."""

    list = _call(_processes.Processes.list)
    release = _call(_processes.Processes.release)
    find_program = _call(_processes.Processes.find_program)

    @wraps(_processes.Processes.start)
    def start(self, argv: Sequence[Word], **options: Any) -> Process:
        """Start a process that lives on its own."""
        return Process(_wait(partial(self.asynchronous.start, argv, **options)))

    @wraps(_processes.Processes.attach)
    def attach(self, process_id: str, **options: Any) -> Process:
        """Return a process by its id."""
        return Process(self.asynchronous.attach(process_id, **options))


class Sandbox(_Blocking[_sandbox.Sandbox]):
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

    info = _call(_sandbox.Sandbox.info)
    diagnose = _call(_sandbox.Sandbox.diagnose)
    resolve_home = _call(_sandbox.Sandbox.resolve_home)
    upload = _call(_sandbox.Sandbox.upload)
    download = _call(_sandbox.Sandbox.download)
    run = _call(_sandbox.Sandbox.run)
    close = _call(_sandbox.Sandbox.close)

    @contextmanager
    def running(self, argv: Sequence[Word], **options: Any) -> Iterator[Process]:
        """Run a command for the time of a block: at its end the process is ended when it runs, and is forgotten.

        Args:
            argv: The command.
            options: The further parameters of `run`.
        """
        run = self.asynchronous.run(argv, **options)
        with _portal as portal, portal.wrap_async_context_manager(run) as process:
            yield Process(process)

    def context(self, **fields: Any) -> ConversationContext:
        """Return a `ConversationContext` for this sandbox with these fields."""
        return ConversationContext(sandbox=self.asynchronous, **fields)


class Conversations(_Blocking[ConversationStore]):
    """A store of conversations with blocking methods, in front of any `ConversationStore`."""

    locate = _call(ConversationStore.locate)
    capture = _call(ConversationStore.capture)
    restore = _call(ConversationStore.restore)

    def follow(
        self,
        conversation_id: str,
        context: ConversationContext,
        *,
        interval_seconds: float | None = None,
        patience_seconds: float | None = None,
    ) -> Generator[FollowUpdate, None, None]:
        """Yield updates of a native store's `follow` as they come; each is waited for. Close it, or go on to its end.

        Args:
            conversation_id: The conversation.
            context: As for `capture`.
            interval_seconds: As there; None: the store's own.
            patience_seconds: The same.
        """
        store: Any = self.asynchronous  # not every store has it
        given = {"interval_seconds": interval_seconds, "patience_seconds": patience_seconds}
        options = {name: value for name, value in given.items() if value is not None}
        updates: AsyncGenerator[FollowUpdate, None] = store.follow(conversation_id, context, **options)
        return _each(updates)

    @property
    def format(self) -> str | None:
        """The store's format."""
        return self.asynchronous.format


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
    with _portal as portal, portal.wrap_async_context_manager(connecting) as sandbox:
        yield Sandbox(sandbox)


def relay(
    source: Sandbox,
    conversation_id: str,
    targets: Sequence[Sandbox | str],
    store: Conversations,
    context: ConversationContext | None = None,
    *,
    concurrency_count: int = _relay.DEFAULT_CONCURRENCY_COUNT,
    target_seconds: float | None = None,
) -> RelayResult:
    """Capture one session and restore it in every target; see `host_client.stores.relay.relay`."""
    return _wait(
        partial(
            _relay.relay,
            source.asynchronous,
            conversation_id,
            [target if isinstance(target, str) else target.asynchronous for target in targets],
            store.asynchronous,
            context,
            concurrency_count=concurrency_count,
            target_seconds=target_seconds,
        )
    )
