"""The blocking façade: the asynchronous methods under the same names, from any thread, with the same failures."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from anyio.from_thread import BlockingPortal

from host_client import sync
from host_client.errors import SessionError, UnavailableError
from host_client.sandbox import bundle, file, process, processes, sandbox, transcript
from host_client.sync.blocking import wait_for
from sandbox_api.v1 import bundle_pb2
from support.bundle_end import PROFILE
from support.fake_daemon import Exchange, fake_daemon
from support.fake_process import RELEASED, STARTED, saying, stdout, taken, told_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord
    from support.fake_daemon import Script

NOT_BLOCKING = {"follow", "restore_stream"}
"""What has no end that could be waited for, or takes what comes from the event loop."""


@contextmanager
def served(**scripts: Script) -> Iterator[str]:
    """Serve a fake daemon from a loop of its own thread and yield its target."""
    ready, ended, targets = threading.Event(), [], []

    async def serve() -> None:
        end = asyncio.Event()
        loop = asyncio.get_running_loop()
        ended.append(lambda: loop.call_soon_threadsafe(end.set))
        async with fake_daemon(**scripts) as target:
            targets.append(target)
            ready.set()
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield targets[0]
    finally:
        ended[0]()
        thread.join()


async def two_sessions(exchange: Exchange) -> None:
    """Answer List with two sessions."""
    for name in ("S1", "S2"):
        await exchange.send(bundle_pb2.ListResponse(id=name, path=f"/x/{name}".encode()))


def test_methods_block_and_streams_become_sequences() -> None:
    """A connected sandbox answers without a loop of the caller's."""
    with served(BundleService_List=two_sessions) as target, sync.connect(target) as box:
        assert (box.root, box.home) == (PurePosixPath("/workspace"), PurePosixPath("/home/agent"))
        assert box.info().kernel == ""
        assert [item.conversation_id for item in box.bundles.list(PROFILE)] == ["S1", "S2"]


def test_failures_are_raised_as_themselves() -> None:
    """What an asynchronous method raises is raised in the thread that called, without a group around it."""

    async def lie(exchange: Exchange) -> None:
        await exchange.send(bundle_pb2.ListResponse(id="../x", path=b"/x"))

    with served(BundleService_List=lie) as target, sync.connect(target) as box, pytest.raises(SessionError) as caught:
        box.bundles.list(PROFILE)
    assert caught.value.reason == "protocol"


def test_calls_of_several_threads_run_at_the_same_time() -> None:
    """Calls that each wait for the other's arrival both end: none holds the other up."""
    both = threading.Barrier(2, timeout=20)

    async def meet(exchange: Exchange) -> None:
        await asyncio.to_thread(both.wait)
        await two_sessions(exchange)

    with served(BundleService_List=meet) as target, sync.connect(target) as box, ThreadPoolExecutor(2) as threads:
        found = list(threads.map(box.bundles.list, [PROFILE, PROFILE]))
    assert [len(items) for items in found] == [2, 2]


def test_connections_share_one_loop() -> None:
    """Connections that are open together live in one loop, so that a call may use several of them."""
    loops = []

    async def loop() -> None:
        loops.append(asyncio.get_running_loop())

    with served() as target, sync.connect(target) as first, sync.connect(target) as second:
        assert first.info().home == second.info().home
        for _ in range(2):
            wait_for(loop)
    assert loops[0] is loops[1]
    assert loops[0].is_closed()


def test_closed_sandbox_refuses_calls() -> None:
    """A call after the context was left fails and does not hang."""
    with served() as target:
        with sync.connect(target) as box:
            box.close()
            box.close()
        with pytest.raises(UnavailableError) as caught:
            box.info()
    assert caught.value.reason == "cancelled"


def test_missing_daemon_is_told_with_its_target() -> None:
    """Connecting to nothing fails at once and names the target."""
    with (
        pytest.raises(UnavailableError, match=r"unix:/nowhere/agent[.]sock") as caught,
        sync.connect("unix:/nowhere/agent.sock"),
    ):
        pass
    assert caught.value.reason == "unreachable"


def test_every_asynchronous_method_has_its_blocking_one() -> None:
    """A method added to the asynchronous objects and forgotten here is found; parameters are the same."""
    for blocking, asynchronous in (
        (sync.Bundles, bundle.Bundles),
        (sync.Files, file.Files),
        (sync.Processes, processes.Processes),
        (sync.Sandbox, sandbox.Sandbox),
        (sync.Transcripts, transcript.Transcripts),
    ):
        for name, method in inspect.getmembers(asynchronous, inspect.isfunction):
            if not name.startswith("_") and name not in NOT_BLOCKING:
                ours = getattr(blocking, name)
                assert not inspect.iscoroutinefunction(ours)
                assert not inspect.isasyncgenfunction(ours)
                assert inspect.signature(ours) == inspect.signature(method)
    for name in vars(process.Process):
        assert name.startswith("_") or hasattr(sync.Process, name)


def test_processes_are_run_and_read_blocking() -> None:
    """A run returns its result; a block has a process whose output is iterated; one that lives on is found again."""
    attach = saying(taken(), stdout(0, b"ab"), stdout(2, b"c"), told_end(3))
    scripts = {"Start": STARTED, "Attach": attach, "Release": RELEASED}
    with (
        served(**{f"ProcessService_{name}": script for name, script in scripts.items()}) as target,
        sync.connect(target, variables={"A": "1"}) as box,
    ):
        assert box.variables == {"A": "1"}
        assert box.run(["p"]).stdout == b"abc"
        with box.running(["p"]) as running:
            assert [item.data for item in running.output()] == [b"ab", b"c"]
            assert (running.pid, running.wait()) == (77, running.exit)
        started = box.processes.start(["p"])
        assert next(iter(started.output())).data == b"ab"
        started.detach()
        assert [item.data for item in box.processes.attach(started.id).output()] == [b"ab", b"c"]
        box.processes.release(started.id)


def test_any_store_can_be_blocking() -> None:
    """The façade of a store calls the store's own methods with the context of the sandbox."""
    seen: list[tuple[str, ConversationContext]] = []

    class Store:
        """Records what it is asked."""

        format = "plain"

        async def locate(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
            """Record the call."""
            seen.append((conversation_id, context))
            raise SessionError("not_found", "nothing is kept")

    with served() as target, sync.connect(target) as box:
        store = sync.Conversations(Store())  # type: ignore[arg-type]
        context = box.context(retries=2)
        assert store.format == "plain"
        with pytest.raises(SessionError):
            store.locate("S1", context)
    assert seen == [("S1", context)]
    assert (context.sandbox, context.retries) == (box.asynchronous, 2)


def test_interrupt_cancels_the_call() -> None:
    """A caller that is interrupted while it waits leaves no call behind: the daemon sees it cancelled."""
    cancelled = threading.Event()
    main = threading.get_ident()

    async def wait(exchange: Exchange) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await exchange.stall()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with served(BundleService_List=wait) as target, sync.connect(target) as box:
        with pytest.raises(KeyboardInterrupt):
            box.bundles.list(PROFILE)
        assert cancelled.wait(20)


def test_interrupt_while_a_call_is_started_cancels_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt that comes when the call runs already, but its caller does not know it yet, cancels it as well."""
    is_running, is_cancelled = threading.Event(), threading.Event()
    original = BlockingPortal.start_task_soon

    async def wait() -> None:
        is_running.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()

    def start(self: BlockingPortal, *args: Any) -> None:
        monkeypatch.setattr(BlockingPortal, "start_task_soon", original)
        original(self, *args)
        assert is_running.wait(20)
        raise KeyboardInterrupt

    monkeypatch.setattr(BlockingPortal, "start_task_soon", start)
    with pytest.raises(KeyboardInterrupt):
        wait_for(wait)
    assert is_cancelled.is_set()
