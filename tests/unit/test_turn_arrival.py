"""Warm and cold: what a sandbox that is to go on with a conversation has, and what is done about it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from host_client.errors import ConfigurationError, ConflictError, SessionError
from host_client.sandbox.place import SessionSummary
from host_client.stores.context import ConversationContext
from host_client.stores.contract import ConversationRecord, Notice, RestoreOutcome
from host_client.turns.arrival import bring
from host_client.turns.known import MAX_KNOWN_COUNT, KnownConversations, LastTurn, SandboxIdentity
from host_client.turns.preparation import Prepared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

pytestmark = pytest.mark.anyio

HERE, ELSEWHERE = SandboxIdentity("one", "/home/agent"), SandboxIdentity("two", "/home/agent")
NEW, OLD = "11" * 32, "22" * 32


def record(digest: str = NEW) -> ConversationRecord:
    """Return what the host has."""
    return ConversationRecord(
        format="mycli",
        conversation_id="S1",
        path=Path("/kept"),
        digest=digest,
        files_count=1,
        bytes_count=1,
        source=PurePosixPath("/s"),
    )


class Store:
    """A store that notes its restores."""

    format = "mycli"

    def __init__(self) -> None:
        self.restored: list[ConversationRecord] = []

    async def locate(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Never called."""
        raise NotImplementedError

    capture = locate

    async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:  # noqa: ARG002
        """Restore."""
        self.restored.append(record)
        return RestoreOutcome(
            format="mycli",
            conversation_id="S1",
            target=PurePosixPath("/s"),
            unchanged=False,
            recovery="",
            digest=NEW,
            files_count=1,
            bytes_count=1,
            sent_bytes=1,
            relocated=(),
            not_atomic=False,
            duration_seconds=0.1,
            notices=(Notice("restored", "it is there"),),
        )


class ComparingStore(Store):
    """A store that can compare."""

    def __init__(self, comparison: str) -> None:
        super().__init__()
        self.comparison = comparison
        self.comparisons_count = 0

    async def compare(self, record: ConversationRecord, context: ConversationContext) -> str:  # noqa: ARG002
        """Say what was given."""
        self.comparisons_count += 1
        return self.comparison


async def brought(
    store: Store | None, last_turn: LastTurn | None, prepared: Prepared | None = None, **context: Any
) -> Sequence[Notice]:
    """Bring the conversation."""
    prepared = prepared or Prepared({}, kept=record())
    return await bring(store, prepared, ConversationContext(**context), HERE, last_turn, conversation_id="S1")


@pytest.mark.parametrize(
    ("last_turn", "restores"),
    [
        (None, True),
        (LastTurn(ELSEWHERE, NEW), True),
        (LastTurn(HERE, NEW), False),
        (LastTurn(HERE, OLD), True),
        (LastTurn(HERE), False),
    ],
)
async def test_a_store_that_cannot_compare_restores_unless_the_last_turn_was_here(
    last_turn: LastTurn | None, *, restores: bool
) -> None:
    """And unless the host has something else by now than was captured here. What failed to be captured is newer."""
    store = Store()
    notices = await brought(store, last_turn)
    assert bool(store.restored) is restores
    assert [notice.reason for notice in notices] == (["restored"] if restores else [])


@pytest.mark.parametrize(
    ("comparison", "restores"), [("absent", True), ("behind", True), ("same", False), ("ahead", False)]
)
async def test_what_the_sandbox_has_decides(comparison: str, *, restores: bool) -> None:
    """A sandbox that has all, or more, is left alone; one that has nothing, or less, is brought up to date."""
    store = ComparingStore(comparison)
    await brought(store, None)
    assert bool(store.restored) is restores


async def test_nothing_is_compared_where_the_last_turn_was() -> None:
    """As long as the host has what was captured here; else, and after a failed capture, it is looked at."""
    store = ComparingStore("ahead")
    await brought(store, LastTurn(HERE, NEW))
    assert store.comparisons_count == 0
    for last_turn in (LastTurn(HERE, OLD), LastTurn(HERE)):
        await brought(store, last_turn)
    assert store.comparisons_count == 2
    assert store.restored == []


async def test_what_went_on_differently_is_refused_unless_forced() -> None:
    """Neither side is put over the other silently."""
    store = ComparingStore("diverged")
    with pytest.raises(ConflictError) as caught:
        await brought(store, None)
    assert (caught.value.reason, caught.value.facts) == ("diverged", {"conversation": "S1"})
    assert store.restored == []
    await brought(store, None, force=True)
    assert store.restored == [record()]


async def test_what_the_host_has_not_goes_on_where_it_was_alone() -> None:
    """In its own sandbox the conversation needs no copy; elsewhere the reason why there is none comes out."""
    missing = SessionError("not_found", "no such conversation")
    assert await brought(Store(), LastTurn(HERE), Prepared({}, missing=missing)) == ()
    with pytest.raises(SessionError) as caught:
        await brought(Store(), LastTurn(ELSEWHERE), Prepared({}, missing=missing))
    assert caught.value is missing


@pytest.mark.parametrize(
    ("there", "goes_on"),
    [({"S1": True, "S2": True}, True), ({"S1": False}, False), ({"S2": True}, False), ({}, False)],
)
async def test_what_the_host_has_not_goes_on_where_it_is_found(there: dict[str, bool], *, goes_on: bool) -> None:
    """After a restart of its daemon a sandbox is another one by its identity; what it has, whole, needs no copy."""

    class ListingStore(Store):
        async def list_sessions(self, context: ConversationContext) -> AsyncIterator[SessionSummary]:  # noqa: ARG002
            for conversation_id, complete in there.items():
                yield SessionSummary(conversation_id, PurePosixPath("/s"), None, complete, 0)

    missing = Prepared({}, missing=SessionError("not_found", "no such conversation"))
    with nullcontext() if goes_on else pytest.raises(SessionError, match="no such conversation"):
        assert await brought(ListingStore(), LastTurn(ELSEWHERE), missing) == ()


async def test_without_a_storage_nothing_is_brought() -> None:
    """An agent without a storage goes on in the sandbox of the last turn and nowhere else."""
    missing = ConfigurationError("not_supported", "no storage")
    assert await brought(None, LastTurn(HERE), Prepared({}, missing=missing)) == ()
    with pytest.raises(ConfigurationError):
        await brought(None, LastTurn(ELSEWHERE), Prepared({}, missing=missing))


def test_what_is_known_is_bounded() -> None:
    """The conversations that were not worked on for longest are forgotten."""
    known = KnownConversations()
    for number in range(MAX_KNOWN_COUNT):
        known.note(str(number), LastTurn(HERE))
    known.note("0", LastTurn(ELSEWHERE))
    known.note("new", LastTurn(HERE))
    assert known.get("0") == LastTurn(ELSEWHERE)
    assert known.get("1") is None
    assert known.get("2") == known.get("new") == LastTurn(HERE)
