"""What is archived and for whom: stores of one's own, namespaces, keys, turns, and callers that block."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client import sync
from host_client.errors import ConfigurationError, ConflictError
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.archive_read import ArchiveReference
from host_client.stores.context import ConversationContext
from host_client.stores.transcript import TranscriptConversations
from support.archive_hosts import Scene
from support.conversation import files_below, make_session, store
from support.scripted_agent import script
from support.transcript_format import ID, LAYOUT, lines, write_transcript
from support.turn_scene import Scene as TurnScene

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from host_client.stores.contract import ConversationRecord, RestoreOutcome

pytestmark = pytest.mark.anyio

NOWHERE = ConversationContext()
KEY = ArchiveKey(bytes(range(32)))


class OwnStore:
    """A store of one's own: only what `ConversationStore` asks for, kept in the conversation home."""

    format = "own"

    def __init__(self) -> None:
        self.native = store("own")

    async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Capture."""
        return await self.native.capture(conversation_id, context)

    async def locate(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Locate."""
        return await self.native.locate(conversation_id, context)

    async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
        """Restore."""
        return await self.native.restore(record, context)


def write(scene: Scene, count: int) -> None:
    """Write the transcript of the sandbox `a`."""
    write_transcript(scene.home() / ".mycli/sessions", lines(count=count))


async def test_a_store_of_ones_own_is_archived(tmp_path: Path) -> None:
    """All files that it keeps are; another host has them again, and what it restores is what was captured."""
    scene = Scene(tmp_path, OwnStore())
    session = make_session(scene.home() / ".mycli")
    async with scene.sandbox() as context:
        captured = await scene.archive().capture(ID, context)
        assert (await scene.archive().capture(ID, context)).unchanged
    archive = scene.archive("b")
    located = await archive.locate(ID, NOWHERE)
    assert located.path.read_bytes() == captured.path.read_bytes()
    async with scene.sandbox("b") as context:
        assert await archive.compare(located, context) == "absent"
        await archive.restore(located, context)
        (restored,) = (scene.home("b") / ".mycli/sessions").iterdir()
        assert files_below(restored)["files/a.bin"] == files_below(session)["files/a.bin"]
        # Relocated, its one file is another one: without a `compare` of its own nothing more can be said.
        assert await archive.compare(located, context) == "diverged"
        assert [found async for found in archive.list_sessions(context)] == []
        with pytest.raises(ConfigurationError) as caught:
            await archive.undo_restore(ID, context)
        assert caught.value.reason == "not_supported"


async def test_a_changed_copy_of_a_store_of_ones_own_is_not_restored(tmp_path: Path) -> None:
    """Whether a store verifies what it restores is not known: the archive has it verified before."""

    class Trusting(OwnStore):
        async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
            located = await self.locate(record.conversation_id, context)  # whatever is there
            return await super().restore(located, context)

    scene = Scene(tmp_path, Trusting())
    make_session(scene.home() / ".mycli")
    async with scene.sandbox() as context:
        archive = scene.archive()
        record = await archive.capture(ID, context)
        good = record.path.read_bytes()
        make_session(scene.home() / ".mycli", {"files/a.bin": b"evil"})
        await scene.base.capture(ID, replace(context, conversation_home=tmp_path))
        evil = (tmp_path / f".outpost/conversations/own/{ID}.json").read_bytes()
        record.path.write_bytes(evil)
        await archive.restore(record, context)
    assert evil != good
    assert record.path.read_bytes() == good
    assert (scene.home() / f".mycli/sessions/{ID}/files/a.bin").read_bytes() == bytes(range(256))


async def test_a_store_that_keeps_elsewhere_is_refused(tmp_path: Path) -> None:
    """What is not in the folder that the store was given cannot be archived."""

    class Elsewhere(OwnStore):
        async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
            return await super().capture(conversation_id, replace(context, conversation_home=tmp_path))

    scene = Scene(tmp_path, Elsewhere())
    make_session(scene.home() / ".mycli")
    async with scene.sandbox() as context:
        with pytest.raises(ConfigurationError) as caught:
            await scene.archive().capture(ID, context)
    assert caught.value.reason == "invalid_argument"


def test_a_store_of_several_formats_is_refused(tmp_path: Path) -> None:
    """An archive's keys have one format."""

    class Several(OwnStore):
        format = None  # type: ignore[assignment]

    with pytest.raises(ConfigurationError) as caught:
        Scene(tmp_path, Several()).archive()
    assert caught.value.reason == "invalid_argument"


@pytest.mark.parametrize("namespace", ["", "/a", "a//b", ".a", "a b", "a" * 129])
def test_a_namespace_that_is_none_is_refused(tmp_path: Path, namespace: str) -> None:
    """A namespace is a key."""
    with pytest.raises(ConfigurationError) as caught:
        Scene(tmp_path).archive(namespace=namespace)
    assert caught.value.reason == "invalid_key"


async def test_namespaces_do_not_meet(tmp_path: Path) -> None:
    """One id in namespaces that begin alike: each has its own history, and lists its own conversations."""
    scene = Scene(tmp_path)
    archives = {name: scene.archive(name, namespace=name) for name in ("team", "team-a", "team/a", "team/mycli")}
    async with scene.sandbox() as context:
        for count, archive in enumerate(archives.values()):
            write(scene, count + 1)
            await archive.capture(ID, context)
        for count, archive in enumerate(archives.values()):
            located = await archive.locate(ID, NOWHERE)
            assert located.path.read_bytes() == lines("/outpost-archive", count + 1)
            assert len(await archive.history(ID)) == 1
            assert [found async for found in archive.conversations()] == [ID]


async def test_conversations_are_told_by_their_ids(tmp_path: Path) -> None:
    """Two sandboxes with a workspace of one path, and a conversation each: one archive keeps them apart."""
    scene = Scene(tmp_path)
    archive = scene.archive()
    for name in ("S1", "S2"):
        write_transcript(scene.home(name) / ".mycli/sessions", lines("/workspace", len(name)), conversation_id=name)
        async with scene.sandbox(name) as context:
            await archive.capture(name, context)
    assert sorted([found async for found in archive.conversations()]) == ["S1", "S2"]
    first, second = [await archive.locate(name, NOWHERE) for name in ("S1", "S2")]
    assert first.conversation_id != second.conversation_id
    assert first.path != second.path


def _function() -> bytes:
    return KEY.secret


@pytest.mark.parametrize("key", [KEY, _function], ids=["key", "function"])
async def test_an_encrypted_archive_needs_its_key(tmp_path: Path, key: ArchiveKey | Callable[[], bytes]) -> None:
    """With the key it works as any other; without it, or with another one, it is `wrong_key`, and nothing is read."""
    scene = Scene(tmp_path)
    write(scene, 2)
    async with scene.sandbox() as context:
        await scene.archive(key=key).capture(ID, context)
        write(scene, 3)
        await scene.archive("again", key=key).capture(ID, context)
        for wrong in (None, ArchiveKey(bytes(32))):
            for operation in (scene.archive("w", key=wrong).capture, scene.archive("w", key=wrong).locate):
                with pytest.raises(ConfigurationError) as caught:
                    await operation(ID, context)
                assert caught.value.reason == "wrong_key"
    located = await scene.archive("b", key=KEY).locate(ID, NOWHERE)
    assert located.path.read_bytes() == lines("/outpost-archive", 3)
    assert not any(b"cwd" in data for data in files_below(scene.directory / "store").values())


async def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    """A function that does not return a key's bytes is told so."""
    with pytest.raises(ConfigurationError) as caught:
        await Scene(tmp_path).archive(key=lambda: b"short").locate(ID, NOWHERE)
    assert caught.value.reason == "invalid_argument"


async def test_following_is_refused(tmp_path: Path) -> None:
    """An archive has snapshots; what to do instead is said."""
    with pytest.raises(ConfigurationError) as caught:
        Scene(tmp_path).archive().follow(ID, NOWHERE)
    assert caught.value.reason == "not_supported"
    assert "base store" in caught.value.hint


async def test_an_archive_is_the_storage_of_an_agent(tmp_path: Path) -> None:
    """Turns are captured into the archive, and resumed by another host in another sandbox, with all that was said."""
    place = Scene(tmp_path)
    for name in ("first", "other"):
        (tmp_path / name).mkdir()
    first_host, other_host = TurnScene(tmp_path / "first"), TurnScene(tmp_path / "other")
    first = await first_host.runner(features={"storage": place.archive("a")}).run(script(["say", "one"]))
    conversation_id = str(first.conversation_id)
    other = other_host.runner(features={"storage": place.archive("b")})
    second = await other.resume(conversation_id, script(["recall"], ["say", "two"]))
    assert second.text == "onetwo"
    assert second.record is not None
    assert isinstance(second.record.reference, ArchiveReference)
    third = await first.resume(script(["recall"]))
    assert third.text.startswith("one|two")
    assert [entry.diverged for entry in await place.archive("c").history(conversation_id)] == [False] * 3
    assert not list((tmp_path / "first/kept").iterdir())


async def test_a_fork_of_an_archive_is_not_resumed_by_its_id(tmp_path: Path) -> None:
    """The CLI does not know the fork's id: a turn that would be another conversation's is refused."""
    place, host = Scene(tmp_path), TurnScene(tmp_path)
    archive = place.archive()
    first = await host.runner(features={"storage": archive}).run(script(["say", "one"]))
    await archive.fork(str(first.conversation_id), "forked")
    with pytest.raises(ConfigurationError) as caught:
        await host.runner(features={"storage": archive}).resume("forked", script(["recall"]))
    assert caught.value.reason == "not_supported"
    assert str(first.conversation_id) in str(caught.value)


def test_callers_that_block_have_the_history(tmp_path: Path) -> None:
    """Capture, history, fork and older snapshots by the blocking facade; other stores have none."""
    scene = Scene(tmp_path)
    write(scene, 2)
    workspace = tmp_path / "a/workspace"
    workspace.mkdir(parents=True)
    archive = sync.Conversations(scene.archive())
    with sync.connect(f"local:{scene.home()},{workspace}") as sandbox:
        first = archive.capture(ID, sandbox.context())
        write(scene, 3)
        archive.capture(ID, sandbox.context())
    old, _ = archive.history(ID)
    assert archive.locate_snapshot(ID, NOWHERE, old.snapshot_id).digest == first.digest
    assert archive.fork(ID, "forked", snapshot=old.snapshot_id).digest == first.digest
    with pytest.raises(ConflictError):
        archive.fork(ID, "forked")
    with pytest.raises(ConfigurationError) as caught:
        sync.Conversations(TranscriptConversations(LAYOUT)).history(ID)
    assert caught.value.reason == "not_supported"
