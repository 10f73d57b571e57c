"""The writer's side of an archive: what is used that is there, what prune has marked, and the order of writes."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConflictError, SessionError
from host_client.stores.archive_content import ContentFile
from host_client.stores.archive_index import Origin
from host_client.stores.archive_publish import Draft, Publication
from support.faulty_transport import Fault, FaultyTransport
from support.small_archive import DAY_SECONDS, InterposedTransport, SmallArchive, content_file, data_names, digest_of

if TYPE_CHECKING:
    from pathlib import Path

    from host_client.stores.archive_manifest import Manifest

pytestmark = pytest.mark.anyio

LOG = os.urandom(300_000)
FILES = {"a.json": b"{}", "log": LOG}


@pytest.fixture
def scene(tmp_path: Path) -> SmallArchive:
    """An empty archive."""
    return SmallArchive(tmp_path)


async def newest(scene: SmallArchive, archive_id: str = "c") -> Manifest:
    """Return the manifest of the newest snapshot."""
    index = await scene.index(archive_id)
    return await scene.reader().manifest(index, index.head)


async def mark(scene: SmallArchive, *names: str) -> None:
    """Mark objects, as prune does."""
    for name in names:
        await scene.transport.write(scene.layout.mark_key(name), b"", if_revision=None)


async def test_data_comes_first_and_the_index_last(scene: SmallArchive) -> None:
    """Each kind of object is written when all of the kind before it are there."""
    transport = FaultyTransport(scene.transport)
    await scene.push("c", FILES, transport=transport)
    kinds = [call.key.split("/")[0] + call.key.rsplit("/", 1)[-1][:5] for call in transport.calls("write")]
    assert [kind[:4] for kind in kinds[:-2]] == ["data"] * (len(kinds) - 2)
    assert "snapshots" in transport.calls("write")[-2].key
    assert kinds[-1] == "conversationsindex"


async def test_equal_content_is_stored_once(scene: SmallArchive) -> None:
    """Another conversation of the same namespace shares the objects, and no bytes of them are sent again."""
    await scene.push("c", FILES)
    transport = FaultyTransport(scene.transport)
    await scene.push("d", FILES, transport=transport)
    assert data_names(await newest(scene, "d")) == data_names(await newest(scene, "c"))
    assert sum(call.bytes for call in transport.calls("write", "data/")) < 1000
    other = SmallArchive(scene.directory, namespace="team/a")
    transport = FaultyTransport(other.transport)
    await other.push("c", FILES, transport=transport)
    assert sum(call.bytes for call in transport.calls("write", "data/")) > len(LOG)


async def test_what_was_added_is_told(scene: SmallArchive) -> None:
    """A snapshot says by how much the store grew: data and manifest."""
    transport = FaultyTransport(scene.transport)
    first = await scene.push("c", FILES, transport=transport)
    written = [call for call in transport.calls("write") if not call.key.endswith("/index")]
    assert first.added_bytes == sum(call.bytes for call in written)
    second = await scene.push("c", {**FILES, "log": LOG + b"more"})
    assert second.added_bytes < 70_000
    assert (second.parent, second.bytes_count) == (first.snapshot_id, first.bytes_count + 4)


async def test_a_marked_object_is_written_again(scene: SmallArchive) -> None:
    """What prune may be about to remove is not relied on: it gets a new generation, and the manifest names that."""
    await scene.push("c", FILES)
    names = data_names(await newest(scene))
    await mark(scene, *names)
    await scene.push("d", FILES)
    again = data_names(await newest(scene, "d"))
    assert again.isdisjoint(names)
    assert {name[:64] for name in again} == names
    for name in names:
        await scene.transport.remove(scene.layout.data_key(name))
    assert await scene.restored("d") == FILES
    await scene.push("d", {**FILES, "log": LOG + b"more"})
    assert again & data_names(await newest(scene, "d"))


async def test_a_mark_that_comes_meanwhile_is_seen(scene: SmallArchive) -> None:
    """Marks are looked at again before the index is replaced; at any moment before that one is not too late."""
    await scene.push("c", FILES)
    names = data_names(await newest(scene))
    counting = FaultyTransport(scene.transport)
    await scene.push("count", FILES, transport=counting)
    # A mark after the second look is not older than the push: prune waits for longer than a push takes.
    second_look = [number for number, call in enumerate(counting.operations) if call.operation == "list"][1]
    for number in range(second_look + 1):
        each = SmallArchive(scene.directory, namespace=f"n{number}")
        await each.push("c", FILES)
        transport = InterposedTransport(each.transport, number, lambda each=each: mark(each, *names))
        await each.push("d", FILES, transport=transport)
        assert transport.has_acted
        assert data_names(await newest(each, "d")).isdisjoint(names)
        assert await each.restored("d") == FILES


async def test_marks_without_an_end_are_a_conflict(scene: SmallArchive) -> None:
    """A prune that marks more of what is used with every look is told about, instead of raced for ever."""
    files = {f"{number}": os.urandom(70_000) for number in range(9)}
    await scene.push("c", files)
    left = sorted(data_names(await newest(scene)))

    class MarkingTransport(FaultyTransport):
        async def write(self, key: str, data: bytes, *, if_revision: str | None) -> str:
            if "/snapshots/" in key:
                await mark(scene, left.pop())
            return await super().write(key, data, if_revision=if_revision)

    with pytest.raises(ConflictError) as caught:
        await scene.push("d", files, transport=MarkingTransport(scene.transport))
    assert caught.value.reason == "stale_revision"
    assert "grace" in caught.value.hint
    assert await scene.reader().find_index("d") is None


async def test_what_was_lost_comes_back_under_its_own_name(scene: SmallArchive) -> None:
    """Also an object of a later generation: older snapshots that name it are whole again."""
    await scene.push("c", FILES)
    await mark(scene, *data_names(await newest(scene)))
    first = await scene.push("d", FILES)
    manifest = await newest(scene, "d")
    for name in manifest.names:
        await scene.transport.remove(scene.layout.data_key(name))
    files = {**FILES, "log": LOG + b"more"}
    draft = Draft(
        archive_id="d",
        native_id="d",
        source="/x",
        digest=digest_of(files),
        previous=await scene.reader().find_index("d"),
    )
    contents = [content_file(path, data) for path, data in sorted(files.items())]
    await Publication(scene.reader(), lost=manifest.names).capture(draft, contents, manifest)
    assert await scene.restored("d") == files
    assert await scene.restored("d", first.snapshot_id) == FILES


@pytest.mark.parametrize("kind", ["/snapshots/", "marks/"])
async def test_a_push_that_lasts_longer_than_the_grace_period(scene: SmallArchive, kind: str) -> None:
    """What prune has marked and removed since it was written is written again, before the index names it."""
    await scene.push("c", {"log": b"of another"})
    counting = FaultyTransport(scene.transport)
    await SmallArchive(scene.directory, namespace="other").push("d", FILES, transport=counting)
    *_, number = (at for at, call in enumerate(counting.operations) if kind in f"{call.key}/")
    passed_seconds = 0.0

    async def sleep() -> None:
        nonlocal passed_seconds
        for _ in range(2):
            passed_seconds += 2 * DAY_SECONDS
            scene.let_pass(2 * DAY_SECONDS)
            await scene.archive().prune(garbage_only=True)

    transport = InterposedTransport(scene.transport, number, sleep)
    await scene.push("d", FILES, transport=transport, clock=lambda: passed_seconds)
    assert transport.has_acted
    assert await scene.restored("d") == FILES
    assert (await scene.archive().verify()).is_whole


async def test_a_host_that_sleeps_before_the_index_looks_again(scene: SmallArchive) -> None:
    """A look that is long ago by the time of the index is made again; a host that always sleeps there is told."""
    counting = FaultyTransport(scene.transport)
    await scene.push("c", FILES, transport=counting)
    seconds = itertools.count(step=1000)
    with pytest.raises(ConflictError) as caught:
        await scene.push("d", FILES, clock=lambda: next(seconds))
    assert caught.value.reason == "stale_revision"
    assert await scene.reader().find_index("d") is None
    times = iter([0, 1, 1000, 1001, 1002])
    await scene.push("d", FILES, clock=lambda: next(times))
    assert next(times, None) is None
    assert await scene.restored("d") == FILES


async def test_a_fork_of_marked_objects_writes_them_again(scene: SmallArchive) -> None:
    """A fork has no files of its own: what is marked is read from the archive and written again."""
    snapshot = await scene.push("c", FILES)
    manifest = await newest(scene)
    names = data_names(manifest)
    await mark(scene, *names)
    draft = Draft(
        archive_id="d",
        native_id="c",
        source="/x",
        digest=manifest.digest,
        previous=None,
        origin=Origin("c", snapshot.snapshot_id),
    )
    await Publication(scene.reader()).fork(draft, manifest)
    index = await scene.index("d")
    assert (index.native_id, index.head.origin) == ("c", Origin("c", snapshot.snapshot_id))
    assert data_names(await newest(scene, "d")).isdisjoint(names)
    assert await scene.restored("d") == FILES


async def test_a_clock_that_is_behind_does_not_turn_the_order(scene: SmallArchive) -> None:
    """Snapshots are in the order in which they were archived, and so are their ids, whatever a host's clock says."""
    await scene.push("c", FILES)
    reader = scene.reader()
    stored = await reader.find_index("c")
    assert stored is not None
    head = stored.index.head
    later = head.created_at.replace(year=head.created_at.year + 1)
    future = type(stored)(
        type(stored.index)(
            format="mycli",
            namespace="team",
            id="c",
            native_id="c",
            entries=(
                type(head)(**{**{name: getattr(head, name) for name in head.__struct_fields__}, "created_at": later}),
            ),
        ),
        stored.revision,
    )
    draft = Draft(archive_id="c", native_id="c", source="/x", digest=digest_of(FILES), previous=future)
    files = [content_file(path, data) for path, data in sorted(FILES.items())]
    published = await Publication(reader).capture(draft, files, None)
    assert published.index.head.created_at == later
    assert int(published.index.head.snapshot_id[:8], 16) == int(later.timestamp())


async def test_a_file_that_changed_meanwhile_is_refused(scene: SmallArchive) -> None:
    """What is archived is what was verified: a file that is another by now is no snapshot."""
    good = content_file("log", LOG)
    changed = ContentFile("log", len(LOG), good.sha256, lambda: iter((bytes(len(LOG)),)))
    draft = Draft(archive_id="c", native_id="c", source="/x", digest="0" * 64, previous=None)
    with pytest.raises(SessionError) as caught:
        await Publication(scene.reader()).capture(draft, [changed], None)
    assert caught.value.reason == "digest_mismatch"
    assert await scene.reader().find_index("c") is None


async def test_an_answer_lost_after_the_index_was_replaced_is_not_a_loss(scene: SmallArchive) -> None:
    """The push that was not answered took effect: the next one of the same state finds it there."""
    lost = Fault(operation="write", key="conversations/team/mycli/c/index", after=ConflictError("busy", "lost"))
    with pytest.raises(ConflictError):
        await scene.push("c", FILES, transport=FaultyTransport(scene.transport, lost))
    assert await scene.restored("c") == FILES
