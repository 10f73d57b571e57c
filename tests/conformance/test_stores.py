"""What every native store keeps to, whatever its format: one suite over all implementations."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, SessionError
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.stores.context import ConversationContext
from support.conversation import EXTRA, ID, files_below, make_session, store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from host_client.sandbox.sandbox import Sandbox
    from host_client.stores.contract import NativeConversationStore

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Case:
    """One implementation: how to make it, and how its CLI makes a session in a home."""

    make_store: Callable[[], NativeConversationStore]
    make_session: Callable[[Path], Path]


CASES = {
    "bundle": Case(store, lambda home: make_session(home / ".mycli")),
    "bundle in buckets": Case(
        lambda: store(buckets=True), lambda home: make_session(home / ".mycli", bucket="wd-of-the-past")
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """Give every implementation in turn."""
    return CASES[request.param]


@asynccontextmanager
async def sandbox_of(directory: Path) -> AsyncIterator[Sandbox]:
    """Serve `home` and `workspace` of a directory."""
    for name in ("home", "workspace"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    async with connect(LocalTarget(directory / "home", directory / "workspace")) as sandbox:
        yield sandbox


async def test_a_conversation_moves_from_one_sandbox_to_another(tmp_path: Path, case: Case) -> None:
    """Captured, located and restored, the conversation has the same files in another home and workspace."""
    tested = case.make_store()
    made = case.make_session(tmp_path / "a/home")
    before = files_below(tmp_path / "a/home/.mycli")
    async with sandbox_of(tmp_path / "a") as source, sandbox_of(tmp_path / "b") as target:
        context = ConversationContext(sandbox=source, conversation_home=tmp_path)
        captured = await tested.capture(ID, context)
        located = await tested.locate(ID, replace(context, sandbox=None))
        outcome = await tested.restore(located, replace(context, sandbox=target))
        again = await tested.restore(located, replace(context, sandbox=target))
    assert files_below(tmp_path / "a/home/.mycli") == before
    assert (captured.format, captured.conversation_id, captured.path) == (
        tested.format,
        ID,
        tested.destination(ID, context),
    )
    assert (located.digest, located.path, located.source) == (captured.digest, captured.path, made)
    assert (outcome.format, outcome.conversation_id) == (tested.format, ID)
    (placed,) = (tmp_path / "b/home/.mycli/sessions").glob(f"**/{ID}")
    assert str(outcome.target) == str(placed)
    assert EXTRA.items() <= files_below(placed).items()
    assert not outcome.unchanged
    assert again.unchanged
    assert again.digest == outcome.digest


async def test_host_places_lie_below_the_base(tmp_path: Path, case: Case) -> None:
    """Directory and destination are below what the context names; a context that names nothing is refused."""
    tested = case.make_store()
    for context in (ConversationContext(repository=tmp_path), ConversationContext(conversation_home=tmp_path)):
        assert tested.directory(context) == tmp_path / ".outpost/conversations" / tested.format
        assert tested.destination(ID, context).parent == tested.directory(context)
    with pytest.raises(ConfigurationError) as caught:
        tested.directory(ConversationContext())
    assert caught.value.reason == "invalid_argument"


@pytest.mark.parametrize("conversation_id", ["session 1/../x", "", "i" * 129, "..", "a.b", "é"])
async def test_an_id_that_is_none_touches_nothing(tmp_path: Path, case: Case, conversation_id: str) -> None:
    """No path is built from an id that breaks the rule, in any operation."""
    tested = case.make_store()
    async with sandbox_of(tmp_path / "a") as sandbox:
        context = ConversationContext(sandbox=sandbox, conversation_home=tmp_path)
        for operation in (tested.capture, tested.locate):
            with pytest.raises(ConfigurationError) as caught:
                await operation(conversation_id, context)
            assert caught.value.reason == "invalid_id"
    assert not (tmp_path / ".outpost").exists()


async def test_a_record_of_another_format_is_refused(tmp_path: Path, case: Case) -> None:
    """A store restores records of its own format alone."""
    tested = case.make_store()
    case.make_session(tmp_path / "a/home")
    async with sandbox_of(tmp_path / "a") as sandbox:
        context = ConversationContext(sandbox=sandbox, conversation_home=tmp_path)
        record = await tested.capture(ID, context)
        with pytest.raises(ConfigurationError) as caught:
            await tested.restore(replace(record, format="other"), context)
    assert caught.value.reason == "format_mismatch"


async def test_what_is_nowhere_is_not_found(tmp_path: Path, case: Case) -> None:
    """An id that neither sandbox nor host has is `not_found`, and nothing is left behind."""
    tested = case.make_store()
    async with sandbox_of(tmp_path / "a") as sandbox:
        context = ConversationContext(sandbox=sandbox, conversation_home=tmp_path)
        for operation in (tested.capture, tested.locate):
            with pytest.raises(SessionError) as caught:
                await operation(ID, context)
            assert caught.value.reason == "not_found"
    assert not files_below(tmp_path / ".outpost")
