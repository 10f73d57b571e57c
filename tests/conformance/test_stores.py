"""What every native store keeps to, whatever its format: one suite over all implementations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, SessionError
from host_client.sandbox.task import in_thread
from host_client.stores.archive import TransportConversations
from host_client.stores.context import ConversationContext
from host_client.stores.transcript import TranscriptConversations
from host_client.transports.local import LocalTransport
from support.conversation import EXTRA, ID, files_below, make_session, store
from support.restore_scene import sandbox_of
from support.transcript_format import IN_BUCKETS, LAYOUT, WITH_SIDECARS, lines, write_transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from host_client.stores.contract import NativeConversationStore
    from host_client.stores.layout import TranscriptFunctions

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Case:
    """One implementation.

    Attributes:
        make_store: Makes the store; an archive is kept in the directory that it is given.
        make_session: Makes a session in a home, as the CLI would, and returns its directory or main transcript.
        arrived: Returns of a home to which it was restored where the session is, and its files.
        expected: Returns what these must hold in a workspace.
        kept: Returns the folder of the host, of a conversation home and a repository.
        is_archived: Whether the store is an archive, which keeps nothing in that folder.
    """

    make_store: Callable[[Path], NativeConversationStore]
    make_session: Callable[[Path], Path]
    arrived: Callable[[Path], tuple[Path, Mapping[str, bytes]]]
    expected: Callable[[Path], Mapping[str, bytes]]
    kept: Callable[[Path, Path], Path]
    is_archived: bool = False


def kept_bundles(home: Path, _repository: Path) -> Path:
    """Return where bundles are kept."""
    return home / ".outpost/conversations/mycli"


def arrived_bundle(home: Path) -> tuple[Path, Mapping[str, bytes]]:
    """Find the one session directory."""
    (placed,) = (home / ".mycli/sessions").glob(f"**/{ID}")
    return placed, {path: data for path, data in files_below(placed).items() if path != "session.json"}


def arrived_transcript(home: Path) -> tuple[Path, Mapping[str, bytes]]:
    """Find the one transcript, with what lies beside it."""
    (placed,) = (home / ".mycli/sessions").glob(f"**/{ID}.jsonl")
    return placed, files_below(placed.parent)


def transcript(layout: TranscriptFunctions, folder: str = "") -> Case:
    """Return the case of a layout."""

    def expected(workspace: Path) -> Mapping[str, bytes]:
        child = {f"{ID}/subagents/agent-x.jsonl": lines(count=1, cwd=str(workspace))} if layout.sidecars else {}
        return {f"{ID}.jsonl": lines(str(workspace)), **child}

    return Case(
        lambda _: TranscriptConversations(layout),
        lambda home: write_transcript(home / ".mycli/sessions" / folder),
        arrived_transcript,
        expected,
        lambda home, repository: home / ".mycli/sessions" / (repository.name if folder else ""),
    )


def archived(case: Case) -> Case:
    """Return the case of an archive of a store's conversations."""

    def make_store(directory: Path) -> NativeConversationStore:
        place = directory / "archive"
        place.mkdir(exist_ok=True)
        return TransportConversations(
            case.make_store(directory),
            transport=LocalTransport(place),
            namespace="team",
            cache=directory / "cache",
        )

    return replace(case, make_store=make_store, is_archived=True)


CASES = {
    "bundle": Case(
        lambda _: store(), lambda home: make_session(home / ".mycli"), arrived_bundle, lambda _: EXTRA, kept_bundles
    ),
    "bundle in buckets": Case(
        lambda _: store(buckets=True),
        lambda home: make_session(home / ".mycli", bucket="wd-of-the-past"),
        arrived_bundle,
        lambda _: EXTRA,
        kept_bundles,
    ),
    "transcript": transcript(LAYOUT),
    "transcript with children": transcript(WITH_SIDECARS),
    "transcript in folders": transcript(IN_BUCKETS, "of-the-past"),
}
CASES |= {f"archived {name}": archived(CASES[name]) for name in ("bundle in buckets", "transcript in folders")}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """Give every implementation in turn."""
    return CASES[request.param]


async def test_a_conversation_moves_from_one_sandbox_to_another(tmp_path: Path, case: Case) -> None:
    """Captured, located and restored, the conversation has the same files in another home and workspace."""
    tested = case.make_store(tmp_path)
    made = case.make_session(tmp_path / "a/home")
    before = files_below(tmp_path / "a/home/.mycli")
    async with sandbox_of(tmp_path / "a") as source, sandbox_of(tmp_path / "b") as target:
        context = ConversationContext(sandbox=source, conversation_home=tmp_path)
        captured = await tested.capture(ID, context)
        located = await tested.locate(ID, replace(context, sandbox=None))
        outcome = await tested.restore(located, replace(context, sandbox=target))
        again = await tested.restore(located, replace(context, sandbox=target))
    assert files_below(tmp_path / "a/home/.mycli") == before
    assert (captured.format, captured.conversation_id) == (tested.format, ID)
    destination = await in_thread(tested.destination, ID, context)
    assert (captured.path == destination) is not case.is_archived
    assert (located.digest, located.path, located.source) == (captured.digest, captured.path, made)
    assert (outcome.format, outcome.conversation_id) == (tested.format, ID)
    placed, files = case.arrived(tmp_path / "b/home")
    assert str(outcome.target) == str(placed)
    assert files == case.expected(tmp_path / "b/workspace")
    assert not outcome.unchanged
    assert again.unchanged
    assert again.digest == outcome.digest


async def test_what_a_sandbox_has_is_compared(tmp_path: Path, case: Case) -> None:
    """Before a restore it is absent, after it the same; what was changed in the middle has diverged."""
    tested = case.make_store(tmp_path)
    case.make_session(tmp_path / "a/home")
    async with sandbox_of(tmp_path / "a") as source, sandbox_of(tmp_path / "b") as target:
        context = ConversationContext(sandbox=source, conversation_home=tmp_path)
        record = await tested.capture(ID, context)
        there = replace(context, sandbox=target)
        assert await tested.compare(record, context) == "same"
        assert await tested.compare(record, there) == "absent"
        await tested.restore(record, there)
        assert await tested.compare(record, there) == "same"
        placed, _ = case.arrived(tmp_path / "b/home")
        changed = placed / "files/a.bin" if placed.is_dir() else placed
        changed.write_bytes(b"!" + changed.read_bytes()[1:])
        assert await tested.compare(record, there) == "diverged"


def test_host_places_lie_below_the_base(tmp_path: Path, case: Case) -> None:
    """Directory and destination are below what the context names; a context that names nothing is refused."""
    tested = case.make_store(tmp_path)
    for context in (
        ConversationContext(conversation_home=tmp_path, repository=tmp_path / "r"),
        ConversationContext(conversation_home=tmp_path),
    ):
        assert tested.directory(context) == case.kept(tmp_path, context.repository or tmp_path)
        assert tested.destination(ID, context).parent == tested.directory(context)
    with pytest.raises(ConfigurationError) as caught:
        tested.directory(ConversationContext())
    assert caught.value.reason == "invalid_argument"


@pytest.mark.parametrize("conversation_id", ["session 1/../x", "", "i" * 129, "..", "a.b", "é"])
async def test_an_id_that_is_none_touches_nothing(tmp_path: Path, case: Case, conversation_id: str) -> None:
    """No path is built from an id that breaks the rule, in any operation."""
    tested = case.make_store(tmp_path)
    async with sandbox_of(tmp_path / "a") as sandbox:
        context = ConversationContext(sandbox=sandbox, conversation_home=tmp_path)
        for operation in (tested.capture, tested.locate):
            with pytest.raises(ConfigurationError) as caught:
                await operation(conversation_id, context)
            assert caught.value.reason == "invalid_id"
    assert files_below(tmp_path) == {}


async def test_a_record_of_another_format_is_refused(tmp_path: Path, case: Case) -> None:
    """A store restores records of its own format alone."""
    tested = case.make_store(tmp_path)
    case.make_session(tmp_path / "a/home")
    async with sandbox_of(tmp_path / "a") as sandbox:
        context = ConversationContext(sandbox=sandbox, conversation_home=tmp_path)
        record = await tested.capture(ID, context)
        with pytest.raises(ConfigurationError) as caught:
            await tested.restore(replace(record, format="other"), context)
    assert caught.value.reason == "format_mismatch"


async def test_what_is_nowhere_is_not_found(tmp_path: Path, case: Case) -> None:
    """An id that neither sandbox nor host has is `not_found`, and nothing is left behind."""
    tested = case.make_store(tmp_path)
    async with sandbox_of(tmp_path / "a") as sandbox:
        context = ConversationContext(sandbox=sandbox, conversation_home=tmp_path)
        for operation in (tested.capture, tested.locate):
            with pytest.raises(SessionError) as caught:
                await operation(ID, context)
            assert caught.value.reason == "not_found"
    assert files_below(tmp_path) == {}


async def test_what_a_sandbox_has_is_listed(tmp_path: Path, case: Case) -> None:
    """Sessions are listed; what a restore replaced is listed, put back, and pruned."""
    tested = case.make_store(tmp_path)
    made = case.make_session(tmp_path / "a/home")
    async with sandbox_of(tmp_path / "a") as source, sandbox_of(tmp_path / "b") as target:
        context = ConversationContext(sandbox=source, conversation_home=tmp_path)
        (listed,) = [item async for item in tested.list_sessions(context)]
        assert (listed.conversation_id, str(listed.path), listed.complete) == (ID, str(made), True)
        record = await tested.capture(ID, context)
        there = replace(context, sandbox=target)
        await tested.restore(record, there)
        placed, before = case.arrived(tmp_path / "b/home")
        changed = placed / "session.json" if placed.is_dir() else placed
        changed.write_bytes(changed.read_bytes() + b" \n")
        outcome = await tested.restore(record, there)
        assert case.arrived(tmp_path / "b/home")[1] == before
        (entry,) = [item async for item in tested.list_recovery(there, ID)]
        assert (entry.name, entry.conversation_id, entry.session_path) == (outcome.recovery, ID, outcome.target)
        undone = await tested.undo_restore(ID, there)
        assert undone.target == outcome.target
        assert changed.read_bytes().endswith(b" \n")
        assert list(await tested.prune_recovery(there, keep_count=0)) == [undone.recovery]
        assert [item async for item in tested.list_recovery(there)] == []
