"""Threads of a call: what they open is closed, whenever a cancel comes."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from host_client.sandbox.local import local_daemon
from host_client.sandbox.target import LocalTarget
from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.session.bundle import Folder, SavedBundle
from host_client.stores.context import ConversationContext
from host_client.stores.contract import ConversationRecord
from host_client.stores.relay import relay
from sandbox_api.limits import Limits
from support.conversation import ID, store
from support.saved import SOURCE, save, tree_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

FILES = {"session.json": b'{"id": "S1"}'}

pytestmark = pytest.mark.anyio


class Gate:
    """A blocking function that can be held in its middle."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.loop = asyncio.get_running_loop()
        self.is_entered = asyncio.Event()
        self.may_go_on = threading.Event()

    def __call__(self, *arguments: object, **named: object) -> Any:
        """Tell the loop, wait, then do the work."""
        self.loop.call_soon_threadsafe(self.is_entered.set)
        assert self.may_go_on.wait(20)
        return self._function(*arguments, **named)


async def cancelled_within(call: Coroutine[Any, Any, Any], gate: Gate) -> None:
    """Cancel a call while its thread is at the gate."""
    task = asyncio.create_task(call)
    await gate.is_entered.wait()
    task.cancel()
    gate.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task


@contextmanager
def noted(told: list[str]) -> Iterator[str]:
    """Note that something is opened and closed."""
    told.append("opened")
    try:
        yield "it"
    finally:
        told.append("closed")


async def test_what_a_cancelled_thread_opens_is_closed() -> None:
    """The cancel waits for the thread, and then for the end of what it opened."""
    told: list[str] = []
    gate = Gate(lambda: noted(told))

    async def call() -> None:
        async with opened_in_thread(gate):
            raise AssertionError

    await cancelled_within(call(), gate)
    assert told == ["opened", "closed"]


async def test_what_was_opened_is_closed_after_a_failure() -> None:
    """The failure of the block goes on; a failed opening has nothing to close."""
    told: list[str] = []
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
        async with opened_in_thread(noted, told) as it:
            assert it == "it"
            raise ZeroDivisionError
    assert told == ["opened", "closed"]
    with pytest.raises(FileNotFoundError):
        async with opened_in_thread(open, "/nonexistent/file"):
            raise AssertionError


@pytest.mark.parametrize("method", ["locate", "validate", "restore"])
async def test_a_cancelled_call_of_a_store_lets_go_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A cancel in the moment in which the saved bundle is opened leaves no descriptor; the guard of all tests sees."""
    tested = store()
    context = ConversationContext(sandbox=cast("Any", object()), conversation_home=tmp_path)
    await in_thread(tested.directory(context).mkdir, parents=True)
    await in_thread(save, tested.directory(context), FILES)
    record = ConversationRecord(
        format="mycli",
        conversation_id=ID,
        path=tested.destination(ID, context),
        digest=tree_digest(FILES).hex(),
        files_count=1,
        bytes_count=1,
        source=SOURCE,
    )
    gate = Gate(SavedBundle.open)
    monkeypatch.setattr(SavedBundle, "open", gate)
    calls = {
        "locate": lambda: tested.locate(ID, context),
        "validate": lambda: tested.validate(record.path, ID),
        "restore": lambda: tested.restore(record, context),
    }
    await cancelled_within(calls[method](), gate)


@pytest.mark.parametrize(("opener", "name"), [(SavedBundle, "open"), (Folder, "open")])
async def test_a_cancelled_capture_lets_go_of_the_folder_and_the_old_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opener: type, name: str
) -> None:
    """The same for what a capture opens before it asks the daemon."""
    tested = store()
    context = ConversationContext(sandbox=cast("Any", object()), conversation_home=tmp_path)
    await in_thread(tested.directory(context).mkdir, parents=True)
    await in_thread(save, tested.directory(context), FILES)
    gate = Gate(getattr(opener, name))
    monkeypatch.setattr(opener, name, gate)
    await cancelled_within(tested.capture(ID, context), gate)


@pytest.mark.parametrize("name", ["relay", "local"])
async def test_a_cancelled_call_leaves_no_private_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A cancel in the moment in which it is made leaves none."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gate = Gate(tempfile.mkdtemp)
    monkeypatch.setattr(tempfile, "mkdtemp", gate)

    async def local() -> None:
        async with local_daemon(LocalTarget(tmp_path, tmp_path), Limits()):
            raise AssertionError

    calls = {"relay": lambda: relay(cast("Any", None), ID, [], store()), "local": local}
    await cancelled_within(calls[name](), gate)
    assert await in_thread(os.listdir, tmp_path) == []
