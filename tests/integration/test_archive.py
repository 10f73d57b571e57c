"""Archives of conversations against real daemons: captured, located, restored elsewhere, with a history."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, ConflictError, SessionError
from host_client.stores.archive_read import ArchiveReference
from host_client.stores.context import ConversationContext
from support.archive_hosts import NAMESPACE, Scene
from support.faulty_transport import Fault
from support.transcript_format import ID, lines, write_transcript

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

NOWHERE = ConversationContext()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Two hosts and a transcript in the sandbox `a`."""
    scene = Scene(tmp_path)
    write(scene, count=2)
    return scene


def write(scene: Scene, count: int, sandbox: str = "a", workspace: str = "/old") -> Path:
    """Write the transcript of a sandbox."""
    return write_transcript(scene.home(sandbox) / ".mycli/sessions", lines(workspace, count))


async def test_a_conversation_moves_through_the_archive(scene: Scene) -> None:
    """Captured by one host, located and restored by another one, it is moved to the other workspace."""
    async with scene.sandbox("a") as context:
        captured = await scene.archive("a").capture(ID, context)
    archive = scene.archive("b")
    located = await archive.locate(ID, NOWHERE)
    async with scene.sandbox("b", "elsewhere") as context:
        outcome = await archive.restore(located, context)
        again = await archive.restore(located, context)
    assert outcome.target == scene.home("b") / ".mycli/sessions/S1.jsonl"
    assert (scene.home("b") / ".mycli/sessions/S1.jsonl").read_bytes() == lines(str(scene.directory / "b/elsewhere"))
    assert again.unchanged
    assert located.digest == captured.digest
    assert located.source == captured.source == scene.home() / ".mycli/sessions/S1.jsonl"
    assert captured.path.read_bytes() == located.path.read_bytes()
    reference = located.reference
    assert isinstance(reference, ArchiveReference)
    assert reference == captured.reference
    assert reference.key == f"conversations/{NAMESPACE}/mycli/{ID}/index"
    assert reference.archive_id == ID
    assert archive.name == f"transport:{NAMESPACE}:mycli"


async def test_what_is_not_new_publishes_nothing(scene: Scene) -> None:
    """A second capture of the same content writes nothing, and says so."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        first = await archive.capture(ID, context)
        writes = len(scene.transport.calls("write"))
        second = await archive.capture(ID, context)
    assert not first.unchanged
    assert second.unchanged
    assert len(scene.transport.calls("write")) == writes
    assert second.reference == first.reference
    assert len(await archive.history(ID)) == 1


async def test_a_grown_conversation_is_a_new_snapshot(scene: Scene) -> None:
    """What grew goes in front; the older snapshot is still there, to be located by the beginning of its id."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        first = await archive.capture(ID, context)
        write(scene, count=3)
        second = await archive.capture(ID, context)
    old, new = await archive.history(ID)
    assert (old.digest, new.digest) == (first.digest, second.digest)
    assert (old.parent, new.parent, new.diverged) == ("", old.snapshot_id, False)
    assert second.path.read_bytes().startswith(first_content := lines("/outpost-archive", 2))
    elsewhere = scene.archive("b")
    located = await elsewhere.locate(ID, NOWHERE, snapshot=old.snapshot_id[:20])
    assert located.path.read_bytes() == first_content
    assert (await elsewhere.locate(ID, NOWHERE)).digest == second.digest


async def test_an_unknown_snapshot_is_not_found(scene: Scene) -> None:
    """A conversation or a snapshot that the archive has not got is not found; an id that means two is ambiguous."""
    archive = scene.archive()
    with pytest.raises(SessionError) as caught:
        await archive.locate(ID, NOWHERE)
    assert caught.value.reason == "not_found"
    assert "capture" in caught.value.hint
    async with scene.sandbox() as context:
        await archive.capture(ID, context)
        write(scene, count=3)
        await archive.capture(ID, context)
    with pytest.raises(SessionError) as caught:
        await archive.locate(ID, NOWHERE, snapshot="x")
    assert caught.value.reason == "not_found"
    first, second = await archive.history(ID)
    common = first.snapshot_id[:4]
    assert second.snapshot_id.startswith(common)
    with pytest.raises(SessionError) as caught:
        await archive.locate(ID, NOWHERE, snapshot=common)
    assert caught.value.reason == "ambiguous"
    assert [offender.path for offender in caught.value.offenders] == [first.snapshot_id, second.snapshot_id]


async def test_less_than_the_newest_is_refused(scene: Scene) -> None:
    """A sandbox that has an older state is `behind`; force puts it in front, and the longer one stays."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        write(scene, count=3)
        newest = await archive.capture(ID, context)
        write(scene, count=2)
        with pytest.raises(ConflictError) as caught:
            await archive.capture(ID, context)
        assert caught.value.reason == "behind"
        assert "restore" in caught.value.hint
        assert (await archive.locate(ID, NOWHERE)).digest == newest.digest
        forced = await scene.archive(force=True).capture(ID, context)
    old, new = await archive.history(ID)
    assert (old.digest, new.digest, new.diverged) == (newest.digest, forced.digest, True)


async def test_something_else_than_the_newest_is_refused(scene: Scene) -> None:
    """A sandbox that went on differently is `diverged`; force puts it in front."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        path = write(scene, count=3)
        await archive.capture(ID, context)
        path.write_bytes(path.read_bytes().replace(b'"n": 2', b'"n": 9') + b'{"n": 10}\n')
        with pytest.raises(ConflictError) as caught:
            await archive.capture(ID, context)
        assert caught.value.reason == "diverged"
        await scene.archive(force=True).capture(ID, context)
    assert [entry.diverged for entry in await archive.history(ID)] == [False, True]


async def test_a_fork_shares_data_and_goes_its_own_way(scene: Scene) -> None:
    """A fork is another line with the same data; records of it have the CLI's id and name the fork."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        first = await archive.capture(ID, context)
        write(scene, count=3)
        await archive.capture(ID, context)
        old, _ = await archive.history(ID)
        data = len(scene.transport.calls("write", "data/"))
        forked = await archive.fork(ID, "other", snapshot=old.snapshot_id)
        assert len(scene.transport.calls("write", "data/")) == data
        path = write(scene, count=2)
        path.write_bytes(path.read_bytes() + b'{"else": 1}\n')
        record = await archive.capture("other", context)
    assert forked.origin is not None
    assert (forked.origin.archive_id, forked.origin.snapshot_id) == (ID, old.snapshot_id)
    assert (forked.digest, forked.parent) == (first.digest, "")
    assert record.conversation_id == ID
    assert isinstance(record.reference, ArchiveReference)
    assert record.reference.archive_id == "other"
    located = await scene.archive("b").locate("other", NOWHERE)
    assert (located.conversation_id, located.digest) == (ID, record.digest)
    assert len(await archive.history("other")) == len(await archive.history(ID)) == 2
    with pytest.raises(ConflictError) as caught:
        await archive.fork(ID, "other")
    assert caught.value.reason == "exists"
    assert sorted([found async for found in archive.conversations()]) == [ID, "other"]


async def test_a_record_of_another_archive_is_refused(scene: Scene) -> None:
    """A record is restored by the archive it is of."""
    async with scene.sandbox() as context:
        record = await scene.archive().capture(ID, context)
        with pytest.raises(ConfigurationError) as caught:
            await scene.archive(namespace="other").restore(record, context)
    assert caught.value.reason == "invalid_argument"


async def test_a_directory_that_equals_the_new_workspace_makes_no_difference(scene: Scene) -> None:
    """A line of the past names the directory that the conversation is moved to: its bytes change, and it goes on."""
    elsewhere = scene.directory / "b/elsewhere"
    path = write(scene, count=2)
    with path.open("ab") as file:
        file.write(lines(str(elsewhere), 1))
    archive = scene.archive()
    async with scene.sandbox("a") as first, scene.sandbox("b", "elsewhere") as second:
        record = await archive.capture(ID, first)
        await archive.restore(record, second)
        with (scene.home("b") / f".mycli/sessions/{ID}.jsonl").open("ab") as file:
            file.write(b'{"said": "in b"}\n')
        await archive.capture(ID, second)
    old, new = [
        await scene.archive("c").locate(ID, NOWHERE, snapshot=entry.snapshot_id) for entry in await archive.history(ID)
    ]
    assert not new.path.read_bytes().startswith(old.path.read_bytes())
    assert [entry.diverged for entry in await archive.history(ID)] == [False, False]


async def test_what_cannot_be_read_is_gone_on_from_by_force_alone(scene: Scene) -> None:
    """The newest snapshot is lost: a capture says so, unless it is told to go in front of it all the same."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        await archive.capture(ID, context)
        (lost,) = [info.key async for info in scene.transport.list("conversations") if "/snapshots/" in info.key]
        await scene.transport.remove(lost)
        write(scene, count=3)
        with pytest.raises(SessionError) as caught:
            await archive.capture(ID, context)
        assert (caught.value.reason, caught.value.facts["key"]) == ("missing_object", lost)
        forced = await scene.archive(force=True).capture(ID, context)
    assert (await scene.archive("b").locate(ID, NOWHERE)).digest == forced.digest
    assert [entry.diverged for entry in await archive.history(ID)] == [False, True]


async def test_a_cancelled_capture_leaves_everything_as_it_was(scene: Scene) -> None:
    """Cancelled while it writes, it leaves the last snapshot, nothing private on the host, and is taken again."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        first = await archive.capture(ID, context)
        write(scene, count=3)
        held = Fault(operation="write", hold=asyncio.Event())
        scene.transport.faults.append(held)
        capture = asyncio.create_task(archive.capture(ID, context))
        await held.reached.wait()
        capture.cancel()
        with pytest.raises(asyncio.CancelledError):
            await capture
        assert list((scene.directory / "a/cache/private").iterdir()) == []
        assert (await scene.archive("b").locate(ID, NOWHERE)).digest == first.digest
        second = await archive.capture(ID, context)
    assert (await scene.archive("b").locate(ID, NOWHERE)).digest == second.digest


async def test_an_older_snapshot_is_restored(scene: Scene) -> None:
    """Restoring an older snapshot sets aside what went on; the sandbox is behind then, and may go on in a fork."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        await archive.capture(ID, context)
        write(scene, count=3)
        await archive.capture(ID, context)
        old, _ = await archive.history(ID)
        outcome = await archive.restore(await archive.locate(ID, context, snapshot=old.snapshot_id), context)
        assert outcome.recovery
        with pytest.raises(ConflictError) as caught:
            await archive.capture(ID, context)
        assert caught.value.reason == "behind"
        await archive.fork(ID, "back", snapshot=old.snapshot_id)
        await archive.capture("back", context)
    assert len(await archive.history(ID)) == 2
