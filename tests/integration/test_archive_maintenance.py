"""A namespace as a whole: which conversations it has, what they take, and the blocking form of it all."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from host_client import ConfigurationError, ConversationArchive, SessionError, open_transport, sync
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.archive_survey import ConversationName
from host_client.stores.in_order import each, in_order
from support.faulty_transport import FaultyTransport, damage
from support.small_archive import DAY_SECONDS, InterposedTransport, SmallArchive

if TYPE_CHECKING:
    from pathlib import Path

    from support.object_store import S3Server

pytestmark = pytest.mark.anyio

FIRST = {"log": b"first" * 100}
SECOND = {"log": FIRST["log"] + b"second" * 100, "notes": b"n"}
LINES = b"".join(b"%s\n" % hashlib.sha256(b"%d" % number).hexdigest().encode() for number in range(80_000))


@pytest.fixture
async def scene(tmp_path: Path) -> SmallArchive:
    """Return an archive of two conversations; one of them has two snapshots."""
    scene = SmallArchive(tmp_path, key=ArchiveKey(bytes(32)))
    await scene.push("one", FIRST)
    await scene.push("one", SECOND)
    await scene.push("two", FIRST)
    return scene


async def test_conversations(scene: SmallArchive) -> None:
    """Each with its id, the number of its snapshots and the newest; one without an index is none."""
    await scene.transport.write(f"conversations/team/mycli/none/snapshots/{'ab' * 16}", b"", if_revision=None)
    await scene.transport.write("conversations/team/sub/mycli/three/index", b"", if_revision=None)
    found = [one async for one in scene.archive().conversations()]
    assert [(one.format, one.id, one.native_id, one.snapshots_count) for one in found] == [
        ("mycli", "one", "one", 2),
        ("mycli", "two", "two", 1),
    ]
    assert found[0].newest == (await scene.index("one")).head


async def test_a_conversation_that_cannot_be_read_is_an_error(scene: SmallArchive) -> None:
    """A list that leaves one out would hide it."""
    await damage(scene.transport, scene.layout.index_key("mycli", "two"), lambda data: data[:-1])
    with pytest.raises(SessionError) as caught:
        [one async for one in scene.archive().conversations()]
    assert caught.value.reason == "corrupt"


async def test_stats(scene: SmallArchive) -> None:
    """Snapshots whole, data once, and everything that the namespace takes in the store."""
    transport = FaultyTransport(scene.transport)
    stats = await scene.archive(transport).stats()
    assert not transport.calls("read", "data")
    sizes = {info.key: info.stored_bytes async for info in scene.transport.list()}
    first, second = (sum(map(len, files.values())) for files in (FIRST, SECOND))
    assert (stats.snapshots_count, stats.logical_bytes, stats.newest_bytes) == (3, 2 * first + second, first + second)
    assert stats.stored_bytes == sum(sizes.values())
    data_bytes = sum(size for key, size in sizes.items() if key.startswith("data/"))
    assert stats.objects_count == len(await scene.keys("data"))
    assert (stats.referenced_bytes, stats.unreferenced_bytes, stats.marked_bytes) == (data_bytes, 0, 0)
    assert stats.ratio == stats.logical_bytes / stats.stored_bytes
    one, two = stats.conversations
    assert (one.name, one.snapshots_count) == (ConversationName("mycli", "one"), 2)
    assert (one.logical_bytes, one.newest_bytes) == (first + second, second)
    assert (two.logical_bytes, two.newest_bytes, two.snapshots_count) == (first, first, 1)
    shared_bytes = sum(sizes[key] for key in await _data_keys(scene, "two"))
    assert one.stored_bytes + two.stored_bytes - shared_bytes == stats.stored_bytes


async def _data_keys(scene: SmallArchive, archive_id: str) -> set[str]:
    return {scene.layout.data_key(chunk.name) for chunk in (await scene.manifest(archive_id)).chunks}


async def test_stats_of_what_prune_will_remove(scene: SmallArchive) -> None:
    """Data that nobody needs is told, and how much of it was marked."""
    scene.let_pass(DAY_SECONDS)
    await scene.push("three", {"log": b"young"})
    await scene.push("three", {"log": b"younger"})
    keys = await _data_keys(scene, "one") - await _data_keys(scene, "two")
    sizes = {info.key: info.stored_bytes async for info in scene.transport.list("data")}
    (young_key,) = set(sizes) - {key for name in ("one", "two", "three") for key in await _data_keys(scene, name)}
    await scene.transport.remove(scene.layout.index_key("mycli", "one"))
    await scene.archive().prune(keep_last=1)
    stats = await scene.archive().stats()
    marked_bytes = sum(sizes[key] for key in keys)
    assert stats.marked_bytes == marked_bytes
    assert stats.unreferenced_bytes == marked_bytes + sizes[young_key]


async def test_stats_of_nothing(tmp_path: Path) -> None:
    """A namespace in which nothing was archived."""
    stats = await SmallArchive(tmp_path).archive().stats()
    assert (stats.stored_bytes, stats.ratio, list(stats.conversations)) == (0, 0.0, [])
    assert (await SmallArchive(tmp_path).archive().verify()).is_whole
    assert (await SmallArchive(tmp_path).archive().prune(keep_last=1)).kept_count == 0


async def test_stats_while_others_prune(tmp_path: Path) -> None:
    """A manifest that goes between an index and its reading is no damage."""
    number = 0
    while True:
        scene = SmallArchive(tmp_path / str(number))
        scene.directory.mkdir()
        await scene.push("one", FIRST)
        await scene.push("one", SECOND)

        async def prune(scene: SmallArchive = scene) -> None:
            await scene.archive().prune(keep_last=1, grace_seconds=0)

        transport = InterposedTransport(scene.transport, number, prune)
        assert (await scene.archive(transport).stats()).newest_bytes == sum(map(len, SECOND.values())), number
        if not transport.has_acted:
            break
        number += 1
    assert number >= 6


async def test_a_missing_manifest_is_an_error_of_stats(scene: SmallArchive) -> None:
    """Sizes of what is not known are not told."""
    await scene.transport.remove(scene.layout.snapshot_key("mycli", "two", (await scene.index("two")).head.snapshot_id))
    with pytest.raises(SessionError) as caught:
        await scene.archive().stats()
    assert caught.value.reason == "missing_object"


async def test_a_key_may_come_from_a_function(scene: SmallArchive) -> None:
    """It is asked for the key's bytes; anything else than 32 is refused."""
    assert (await ConversationArchive(scene.transport, "team", lambda: bytes(32)).verify()).is_whole
    with pytest.raises(ConfigurationError) as caught:
        await ConversationArchive(scene.transport, "team", lambda: b"short").verify()
    assert caught.value.reason == "invalid_argument"


async def test_a_namespace_that_none_can_be_is_refused(scene: SmallArchive) -> None:
    """Before anything is asked for."""
    with pytest.raises(ConfigurationError) as caught:
        ConversationArchive(scene.transport, "../team")
    assert caught.value.reason == "invalid_key"


def test_the_blocking_form(tmp_path: Path) -> None:
    """`sync.ConversationArchive` does the same."""
    scene = SmallArchive(tmp_path)
    archive = sync.ConversationArchive(scene.transport, "team")
    assert archive.verify().is_whole
    assert not archive.conversations()
    assert archive.stats().stored_bytes == 0
    assert archive.prune(keep_last=1).kept_count == 0


async def test_a_real_object_store(s3_server: S3Server, tmp_path: Path) -> None:
    """All of it over S3: the store's own clock, listings and removals."""
    scene = SmallArchive(tmp_path, key=ArchiveKey(bytes(32)), store=open_transport(s3_server.place()))
    for files in (FIRST, SECOND, FIRST | {"log": b"third"}):
        await scene.push("one", files)
    assert (await scene.archive().verify()).is_whole
    report = await scene.archive().prune(younger_than_seconds=DAY_SECONDS, grace_seconds=DAY_SECONDS)
    assert (report.kept_count, report.marked_count) == (3, 0)
    report = await scene.archive().prune(keep_last=1, grace_seconds=0)
    assert (len(report.removed), report.kept_count) == (2, 1)
    assert await scene.restored("one") == {"log": b"third"}
    stats = await scene.archive().stats()
    assert (stats.snapshots_count, stats.unreferenced_bytes) == (1, 0)
    verified = await scene.archive().verify()
    assert (verified.is_whole, verified.unreferenced_count) == (True, 0)


@pytest.mark.parametrize("key", [None, ArchiveKey(bytes(32))], ids=["plain", "encrypted"])
async def test_a_large_transcript_of_many_objects(tmp_path: Path, key: ArchiveKey | None) -> None:
    """One that grew, and one whose first line changed: every object is read once, and all files are hashed."""
    scene = SmallArchive(tmp_path, key=key)
    await scene.push("one", {"log.jsonl": LINES})
    await scene.push("one", {"log.jsonl": LINES + b"more\n" * 2_000})
    await scene.push("two", {"log.jsonl": b"another first line\n" + LINES})
    transport = FaultyTransport(scene.transport)
    report = await scene.archive(transport).verify(concurrency_count=2)
    assert report.is_whole
    assert report.objects_count > 4
    assert set(Counter(call.key for call in transport.calls("read", "data")).values()) == {1}
    assert report.bytes_count < 2 * len(LINES)
    shared = (await _data_keys(scene, "one") & await _data_keys(scene, "two")).pop()
    await damage(scene.transport, shared, lambda data: data[:-1])
    report = await scene.archive().verify()
    assert [(finding.key, finding.reason) for finding in report.findings] == [(shared, "corrupt")]
    assert {name.id for name in report.findings[0].snapshots} == {"one", "two"}


async def test_no_more_than_so_many_are_read_ahead() -> None:
    """Items are read in parallel up to the limit, used one at a time, in order; a failure ends it all."""
    reading, used = 0, []
    is_full = asyncio.Event()

    async def read(item: int) -> int:
        nonlocal reading
        reading += 1
        assert reading <= 4
        if reading == 4:
            is_full.set()
        await is_full.wait()
        return item

    async def use(item: int) -> None:
        nonlocal reading
        reading -= 1
        used.append(item)

    await in_order(range(50), read, use, concurrency_count=4)
    assert used == list(range(50))

    async def fail(item: int) -> None:
        if item == 20:
            raise SessionError("corrupt", "the twentieth")
        used.append(item)

    used.clear()
    with pytest.raises(SessionError):
        await each(range(50), fail, concurrency_count=4)
    assert len(used) < 30
