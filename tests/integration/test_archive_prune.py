"""What prune removes from an archive, in two steps, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from host_client import ConfigurationError, SessionError
from host_client.stores.archive_codec import Codec
from host_client.stores.archive_index import encode_index
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.archive_survey import SnapshotName
from support.faulty_transport import FaultyTransport, damage, flipped
from support.small_archive import DAY_SECONDS, SmallArchive, data_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from host_client.transports.contract import ObjectInfo

pytestmark = pytest.mark.anyio


def _log(number: int) -> dict[str, bytes]:
    return {"log": b"snapshot %d" % number, "same": b"always the same"}


@pytest.fixture
async def scene(tmp_path: Path) -> SmallArchive:
    """Return an archive of one conversation with four snapshots, of which each has data of its own."""
    scene = SmallArchive(tmp_path)
    for number in range(4):
        await scene.push("one", _log(number))
    return scene


async def _ids(scene: SmallArchive, archive_id: str = "one") -> list[str]:
    return [entry.snapshot_id for entry in (await scene.index(archive_id)).entries]


async def test_the_newest_snapshots_are_kept(scene: SmallArchive) -> None:
    """`keep_last`: the index has them alone, the oldest has no parent any more, and they can be read."""
    ids = await _ids(scene)
    report = await scene.archive().prune(keep_last=2)
    assert report.removed == [SnapshotName("mycli", "one", snapshot_id) for snapshot_id in sorted(ids[:2])]
    assert report.kept_count == 2
    index = await scene.index("one")
    assert [(entry.snapshot_id, entry.parent) for entry in index.entries] == [(ids[2], ""), (ids[3], ids[2])]
    assert await scene.restored("one") == _log(3)
    assert await scene.restored("one", ids[2]) == _log(2)
    assert (await scene.archive().verify()).is_whole


async def test_data_goes_in_two_steps(scene: SmallArchive) -> None:
    """What nobody needs stays for two grace periods: one until it is marked, one until it is removed."""
    before = set(await scene.keys("data"))
    report = await scene.archive().prune(keep_last=1)
    assert (report.marked_count, report.removed_count) == (0, 0)
    scene.let_pass(DAY_SECONDS)
    report = await scene.archive().prune(keep_last=1)
    assert (report.marked_count, report.removed_count) == (3, 3)  # the manifests, which no new one can name, go
    assert report.marked_bytes > 0
    assert set(await scene.keys("data")) == before
    assert len(await scene.keys("marks")) == 3
    scene.let_pass(DAY_SECONDS - 60)
    report = await scene.archive().prune(keep_last=1)
    assert (report.marked_count, report.removed_count) == (0, 0)
    scene.let_pass(60)
    report = await scene.archive().prune(keep_last=1)
    assert (report.marked_count, report.removed_count) == (0, 3)
    assert report.removed_bytes > 0
    assert len(await scene.keys("data")) == 1
    assert await scene.keys("marks") == []
    assert await scene.keys("probe") == []
    assert (await scene.archive().verify()).unreferenced_count == 0
    assert await scene.restored("one") == _log(3)


async def test_without_a_grace_period_all_goes_at_once(scene: SmallArchive) -> None:
    """`grace_seconds=0`: what is left is the newest snapshot, and nothing else."""
    report = await scene.archive().prune(keep_last=1, grace_seconds=0)
    assert report.removed_count == 6
    assert len(await scene.keys()) == 3
    assert await scene.restored("one") == _log(3)
    assert (await scene.archive().verify()).is_whole


@pytest.mark.parametrize("grace_seconds", [0, DAY_SECONDS])
async def test_a_dry_run_tells_what_a_run_does(scene: SmallArchive, grace_seconds: int) -> None:
    """The same report, and every object is as it was."""
    scene.let_pass(2 * DAY_SECONDS)
    for _ in range(3):
        before = {key: await scene.transport.read(key) for key in await scene.keys()}
        told = await scene.archive().prune(keep_last=2, grace_seconds=grace_seconds, dry_run=True)
        assert {key: await scene.transport.read(key) for key in await scene.keys()} == before
        assert told.is_dry_run
        done = await scene.archive().prune(keep_last=2, grace_seconds=grace_seconds)
        assert told == replace(done, is_dry_run=True)
        scene.let_pass(DAY_SECONDS)


async def test_young_snapshots_are_kept(tmp_path: Path) -> None:
    """`younger_than_seconds`, by when the store got them; with `keep_last` a snapshot stays if any rule keeps it."""
    scene = SmallArchive(tmp_path)
    await scene.push("one", _log(0))
    for number in range(1, 4):
        scene.let_pass(100)
        await scene.push("one", _log(number))
    assert len((await scene.archive().prune(younger_than_seconds=250, keep_last=1, dry_run=True)).removed) == 1
    assert len((await scene.archive().prune(younger_than_seconds=150, keep_last=3, dry_run=True)).removed) == 1
    assert len((await scene.archive().prune(younger_than_seconds=150, dry_run=True)).removed) == 2
    report = await scene.archive().prune(younger_than_seconds=0)
    assert (len(report.removed), report.kept_count) == (3, 1)
    assert await scene.restored("one") == _log(3)


async def test_only_garbage(scene: SmallArchive) -> None:
    """`garbage_only` removes what a push that failed has left, and no snapshot."""
    await scene.transport.write(f"data/team/ab/{'ab' * 32}", b"left", if_revision=None)
    await scene.transport.write(f"conversations/team/mycli/two/snapshots/{'cd' * 16}", b"left", if_revision=None)
    scene.let_pass(DAY_SECONDS)
    report = await scene.archive().prune(garbage_only=True)
    assert (report.removed, report.kept_count) == ([], 4)
    assert (report.marked_count, report.removed_count) == (1, 1)
    scene.let_pass(DAY_SECONDS)
    assert (await scene.archive().prune(garbage_only=True)).removed_count == 1
    assert len(await scene.keys()) == 9


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"keep_last": 0},
        {"younger_than_seconds": -1},
        {"younger_than_seconds": float("nan")},
        {"garbage_only": True, "keep_last": 1},
        {"garbage_only": True, "grace_seconds": -1},
        {"garbage_only": True, "grace_seconds": float("nan")},
    ],
)
async def test_rules_that_cannot_be_meant_are_refused(scene: SmallArchive, rules: dict[str, float]) -> None:
    """No rule, two that contradict each other, numbers out of their range: refused before the store is asked."""
    transport = FaultyTransport(scene.transport)
    with pytest.raises(ConfigurationError) as caught:
        await scene.archive(transport).prune(**rules)  # type: ignore[arg-type]  # some are not
    assert caught.value.reason == "invalid_argument"
    assert not transport.operations


async def test_a_push_after_a_mark_does_not_count_on_the_object(scene: SmallArchive) -> None:
    """What is marked is written again under a new generation, which stays when the marked one goes."""
    scene.let_pass(DAY_SECONDS)
    await scene.archive().prune(keep_last=1)  # takes the snapshots out of the index, and marks
    await scene.push("two", _log(0))
    scene.let_pass(DAY_SECONDS)
    assert (await scene.archive().prune(keep_last=1)).removed_count >= 3
    assert await scene.restored("two") == _log(0)
    assert (await scene.archive().verify()).is_whole


async def test_a_mark_of_what_is_needed_again_is_removed(scene: SmallArchive) -> None:
    """A snapshot that names a marked object, as one does whose writer began before the mark, keeps it alive."""
    scene.let_pass(DAY_SECONDS)
    (name,) = data_names(await scene.manifest("one"))
    await scene.transport.write(scene.layout.mark_key(name), b"", if_revision=None)
    await scene.transport.write(scene.layout.mark_key("ab" * 32), b"", if_revision=None)  # its object is gone
    scene.let_pass(DAY_SECONDS)
    report = await scene.archive().prune(garbage_only=True)
    assert (report.removed_count, report.marked_count) == (0, 0)
    assert await scene.keys("marks") == []
    assert (await scene.archive().verify()).is_whole


async def test_an_object_that_was_written_again_is_not_what_was_marked(scene: SmallArchive) -> None:
    """Another prune removed the marked object and somebody wrote it anew: it is marked afresh, not removed."""
    name = "ab" * 32
    await scene.transport.write(scene.layout.mark_key(name), b"", if_revision=None)
    scene.let_pass(2 * DAY_SECONDS)
    await scene.transport.write(scene.layout.data_key(name), b"anew", if_revision=None)
    report = await scene.archive().prune(garbage_only=True)
    assert report.removed_count == 0
    assert await scene.transport.stat(scene.layout.data_key(name)) is not None
    assert await scene.keys("marks") == []


async def test_a_mark_that_another_prune_takes_away_saves_the_object(tmp_path: Path) -> None:
    """Another run found the object named and removed its mark; a push counted on it since then: it stays."""
    scene = SmallArchive(tmp_path)
    for contents in ({"log": b"first"}, {"log": b"second"}):
        await scene.push("one", contents)
    scene.let_pass(2 * DAY_SECONDS)
    await scene.archive().prune(keep_last=1)
    scene.let_pass(2 * DAY_SECONDS)
    (mark,) = await scene.keys("marks")

    class Meeting(FaultyTransport):
        async def stat(self, key: str) -> ObjectInfo | None:
            if key == mark:
                await scene.transport.remove(mark)
                await scene.push("two", {"log": b"first"})
            return await super().stat(key)

    await scene.archive(Meeting(scene.transport)).prune(garbage_only=True)
    assert await scene.restored("two") == {"log": b"first"}


async def test_namespaces_that_continue_each_other_do_not_meet(tmp_path: Path) -> None:
    """`a`, `a/b`, `a/ab` and `a-b` have the same data; a prune of one removes nothing of the others."""
    scenes = [SmallArchive(tmp_path, namespace=name) for name in ("a", "a/b", "a/ab", "a/mycli", "a-b")]
    for scene in scenes:
        for number in range(3):
            await scene.push("one", _log(number))
    for scene in scenes:
        scene.let_pass(DAY_SECONDS)
        others = [other for other in scenes if other is not scene]
        before = [await _objects(other) for other in others]
        assert len((await scene.archive().prune(keep_last=1, grace_seconds=0)).removed) == 2
        assert [await _objects(other) for other in others] == before
        assert [found.id async for found in scene.archive().conversations()] == ["one"]
    for scene in scenes:
        report = await scene.archive().verify()
        assert (report.is_whole, report.snapshots_count, report.unreferenced_count) == (True, 1, 0)
        assert await scene.restored("one") == _log(2)


async def _objects(scene: SmallArchive) -> set[str]:
    """Return what is listed as this namespace's own."""
    own = {key for key in await scene.keys("conversations") if scene.layout.parse_conversation(key)}
    return own | {key for key in await scene.keys("data") if scene.layout.parse_data(key)}


async def test_what_is_not_ours_is_not_touched(scene: SmallArchive) -> None:
    """Objects of others below our prefixes, however old."""
    foreign = [
        "data/team/ab/notes",
        f"data/team/cd/{'ab' * 32}",
        "marks/team/notes",
        "probe/team/notes",
        "conversations/team/mycli/one/notes",
        "conversations/team/mycli/one/snapshots/notes",
        "elsewhere/notes",
    ]
    for key in foreign:
        await scene.transport.write(key, b"not ours", if_revision=None)
    scene.let_pass(10 * DAY_SECONDS)
    await scene.archive().prune(keep_last=1, grace_seconds=0)
    assert set(foreign) <= set(await scene.keys())


async def test_probes_of_killed_runs_go(scene: SmallArchive) -> None:
    """What was written to learn the time, once it is old."""
    await scene.transport.write(scene.layout.probe_key(), b"", if_revision=None)
    await scene.archive().prune(garbage_only=True)
    assert len(await scene.keys("probe")) == 1
    scene.let_pass(DAY_SECONDS)
    await scene.archive().prune(garbage_only=True)
    assert await scene.keys("probe") == []


@pytest.mark.parametrize("what", ["index", "snapshots"])
async def test_what_cannot_be_read_stops_prune(scene: SmallArchive, what: str) -> None:
    """A damaged index or manifest, of any conversation: nothing changes, since it may name anything."""
    await scene.push("two", _log(0))
    scene.let_pass(2 * DAY_SECONDS)
    (key,) = await scene.keys(f"conversations/team/mycli/two/{what}") or [scene.layout.index_key("mycli", "two")]
    await damage(scene.transport, key, flipped(-1))
    before = await scene.keys()
    with pytest.raises(SessionError) as caught:
        await scene.archive().prune(keep_last=1, grace_seconds=0)
    assert caught.value.reason == "corrupt"
    assert await scene.keys() == before
    assert len(await _ids(scene)) == 4


async def test_a_missing_manifest_stops_prune(scene: SmallArchive) -> None:
    """What it named is not known; one of a snapshot that goes anyway does no harm."""
    ids = await _ids(scene)
    await scene.transport.remove(scene.layout.snapshot_key("mycli", "one", ids[1]))
    before = await scene.keys()
    with pytest.raises(SessionError) as caught:
        await scene.archive().prune(keep_last=3, grace_seconds=0)
    assert caught.value.reason == "missing_object"
    assert await scene.keys() == before
    await scene.archive().prune(keep_last=2, grace_seconds=0)
    assert (await scene.archive().verify()).is_whole


async def test_the_wrong_key_stops_prune(tmp_path: Path) -> None:
    """Without the key of a namespace nothing of it can be removed."""
    scene = SmallArchive(tmp_path, key=ArchiveKey(bytes(32)))
    await scene.push("one", _log(0))
    await scene.push("one", _log(1))
    before = await scene.keys()
    with pytest.raises(ConfigurationError) as caught:
        await SmallArchive(tmp_path).archive().prune(keep_last=1, grace_seconds=0)
    assert caught.value.reason == "wrong_key"
    assert await scene.keys() == before
    assert len((await scene.archive().prune(keep_last=1, grace_seconds=0)).removed) == 1
    assert await scene.restored("one") == _log(1)


class _OtherClock(FaultyTransport):
    """A store whose clock is not the host's."""

    def __init__(self, scene: SmallArchive, shift: timedelta) -> None:
        super().__init__(scene.transport)
        self._shift = shift

    async def stat(self, key: str) -> ObjectInfo | None:
        found = await super().stat(key)
        return found and replace(found, modified=found.modified + self._shift)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        async for found in super().list(prefix):
            yield replace(found, modified=found.modified + self._shift)


@pytest.mark.parametrize("days", [-1, 1])
async def test_the_clock_of_the_host_does_not_matter(scene: SmallArchive, days: int) -> None:
    """A store that is a day behind or ahead: ages are those by its own clock."""
    archive = scene.archive(_OtherClock(scene, timedelta(days=days)))
    assert not (await archive.prune(younger_than_seconds=3600)).removed
    scene.let_pass(1800)
    report = await archive.prune(keep_last=1, grace_seconds=3600)
    assert (report.marked_count, report.removed_count) == (0, 0)
    scene.let_pass(1800)
    assert (await archive.prune(keep_last=1, grace_seconds=3600)).marked_count == 3
    scene.let_pass(1800)
    assert (await archive.prune(keep_last=1, grace_seconds=3600)).removed_count == 0
    scene.let_pass(1800)
    assert (await archive.prune(keep_last=1, grace_seconds=3600)).removed_count == 3
    assert (await scene.archive().verify()).is_whole


async def test_a_snapshot_dated_by_a_wrong_clock_is_as_old_as_the_store_says(scene: SmallArchive) -> None:
    """What a host said of the time of its snapshots is for people: it keeps nothing and removes nothing."""
    key = scene.layout.index_key("mycli", "one")
    found = await scene.transport.read(key)
    assert found is not None
    index = await scene.index("one")
    entries = tuple(
        msgspec.structs.replace(entry, created_at=entry.created_at + timedelta(days=(-1) ** number * 400))
        for number, entry in enumerate(index.entries)
    )
    shifted = msgspec.structs.replace(index, entries=entries)
    await scene.transport.write(key, encode_index(shifted, Codec(), about=key), if_revision=found.revision)
    assert not (await scene.archive().prune(younger_than_seconds=3600)).removed
    scene.let_pass(3600)
    assert len((await scene.archive().prune(younger_than_seconds=3600)).removed) == 3
