"""Session directories kept up to date by captures at an interval."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from host_client.errors import SessionError, UnavailableError
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.stores.bundle import SessionBundleConversations
from host_client.stores.context import ConversationContext
from host_client.stores.patience import Patience
from support.conversation import ID, make_session, store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from host_client.stores.contract import ConversationRecord

pytestmark = pytest.mark.anyio


class Turns:
    """A clock on which each wait is a turn: what is to happen in it."""

    def __init__(self, patch: pytest.MonkeyPatch, *turns: Callable[[], object]) -> None:
        self.slept: list[float] = []
        self._turns = list(turns)
        patient = partial(Patience, clock=lambda: sum(self.slept), sleep=self.sleep)
        patch.setattr("host_client.stores.bundle.Patience", patient)

    async def sleep(self, seconds: float) -> None:
        """Let the next turn happen."""
        self.slept.append(seconds)
        if not self._turns:
            raise asyncio.CancelledError
        self._turns.pop(0)()


async def follow(tmp_path: Path) -> list[ConversationRecord]:
    """Follow until all turns are over; return the records that were told."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "repository").mkdir()
    records: list[ConversationRecord] = []
    async with connect(LocalTarget(tmp_path / "home", tmp_path / "workspace")) as sandbox:
        context = ConversationContext(sandbox=sandbox, repository=tmp_path / "repository", durability="none")
        async with aclosing(store().follow(ID, context, interval_seconds=10.0, patience_seconds=30.0)) as updates:
            try:
                async for update in updates:
                    assert update.record is not None
                    assert (update.path, update.size_bytes) == (update.record.path, update.record.bytes_count)
                    records.append(update.record)
            except asyncio.CancelledError:
                return records
    raise AssertionError


async def test_what_changed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first capture, and each that changed the copy; between two it waits for the interval."""
    session = make_session(tmp_path / "home/.mycli")
    turns = Turns(
        monkeypatch,
        lambda: None,
        lambda: (session / "files/a.bin").write_bytes(b"one"),
        lambda: None,
        lambda: (session / "files/a.bin").write_bytes(b"other"),
    )
    records = await follow(tmp_path)
    assert [record.unchanged for record in records] == [False] * 3
    assert len({record.digest for record in records}) == 3
    assert turns.slept == [10.0] * 5


async def test_change_and_absence_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that meets a change is left out; one without a sandbox or a session is made again soon."""
    session = make_session(tmp_path / "home/.mycli")
    failures = [
        SessionError("changed", ""),
        SessionError("changed", ""),
        UnavailableError("unreachable", ""),
        SessionError("not_found", ""),
    ]
    real = SessionBundleConversations.capture
    captures: list[str] = []

    async def capture(
        self: SessionBundleConversations, conversation_id: str, context: ConversationContext
    ) -> ConversationRecord:
        captures.append(conversation_id)
        if len(captures) > 1 and failures:
            raise failures.pop(0)
        return await real(self, conversation_id, context)

    monkeypatch.setattr(SessionBundleConversations, "capture", capture)
    turns = Turns(monkeypatch, *[lambda: None] * 7, lambda: (session / "files/a.bin").write_bytes(b"one"))
    records = await follow(tmp_path)
    assert len(records) == 2
    assert turns.slept == [10, 10, 10, 0.1, 10, 0.2, 10, 10, 10]


async def test_absence_that_lasts_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the patience the failure itself is raised."""
    session = make_session(tmp_path / "home/.mycli")
    turns = Turns(monkeypatch, lambda: session.rename(tmp_path / "gone"), *[lambda: None] * 100)
    with pytest.raises(SessionError) as caught:
        await follow(tmp_path)
    assert caught.value.reason == "not_found"
    assert 30 <= sum(turns.slept) <= 60
