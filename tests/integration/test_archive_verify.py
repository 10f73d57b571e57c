"""What verify tells of an archive: everything that is wrong, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from host_client import ConfigurationError, SessionError
from host_client.stores.archive_codec import Codec
from host_client.stores.archive_index import Index, Snapshot, encode_index, manifest_sha256
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.archive_manifest import ChunkReference, FileReference, Manifest, Stream, encode_manifest
from host_client.stores.archive_survey import ConversationName, SnapshotName
from support.faulty_transport import FaultyTransport, damage, flipped
from support.small_archive import InterposedTransport, SmallArchive, digest_of

if TYPE_CHECKING:
    from pathlib import Path

    from host_client.stores.archive_verify import VerifyReport

pytestmark = pytest.mark.anyio

FIRST = {"log.jsonl": b'{"n": 1}\n' * 9_000, "notes/a.txt": b"alpha", "notes/empty": b""}
SECOND = {**FIRST, "log.jsonl": FIRST["log.jsonl"] + b'{"n": 2}\n' * 9_000}
OTHER = {"log.jsonl": b'{"n": 1}\n' * 9_000, "own.txt": b"own"}


@pytest.fixture(params=[None, ArchiveKey(bytes(range(32)))], ids=["plain", "encrypted"])
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> SmallArchive:
    """Return an archive of two conversations, one with two snapshots, that share data."""
    scene = SmallArchive(tmp_path, key=request.param)
    await scene.push("one", FIRST)
    await scene.push("one", SECOND)
    await scene.push("two", OTHER)
    return scene


def _found(report: VerifyReport) -> dict[str, str]:
    return {finding.key: finding.reason for finding in report.findings}


async def _snapshots(scene: SmallArchive) -> dict[str, SnapshotName]:
    names = {}
    for archive_id in ("one", "two"):
        for number, entry in enumerate((await scene.index(archive_id)).entries, 1):
            names[f"{archive_id}{number}"] = SnapshotName("mycli", archive_id, entry.snapshot_id)
    return names


async def _users(scene: SmallArchive, key: str) -> set[SnapshotName]:
    """Return the snapshots that need a data object or a manifest."""
    users = set()
    for archive_id in ("one", "two"):
        index = await scene.index(archive_id)
        for entry in index.entries:
            manifest = await scene.reader().manifest(index, entry)
            keys = {scene.layout.data_key(chunk.name) for chunk in manifest.chunks}
            keys.add(scene.layout.snapshot_key("mycli", archive_id, entry.snapshot_id))
            if key in keys:
                users.add(SnapshotName("mycli", archive_id, entry.snapshot_id))
    return users


async def test_a_whole_archive_is_whole(scene: SmallArchive) -> None:
    """Counts are right, and nothing is found."""
    data = await scene.keys("data")
    report = await scene.archive().verify()
    assert report.is_whole
    assert (report.snapshots_count, report.objects_count) == (3, len(data))
    assert [(found.name, found.snapshots_count, found.is_whole) for found in report.conversations] == [
        (ConversationName("mycli", "one"), 2, True),
        (ConversationName("mycli", "two"), 1, True),
    ]
    assert report.unreferenced_count == 0
    assert not report.unindexed
    assert 0 < report.stored_bytes < report.bytes_count


async def test_each_object_is_read_once(scene: SmallArchive) -> None:
    """Also data that several snapshots and conversations name."""
    transport = FaultyTransport(scene.transport)
    await scene.archive(transport).verify()
    assert set(Counter(call.key for call in transport.calls("read")).values()) == {1}
    assert {call.key for call in transport.calls("read")} == set(await scene.keys())


async def test_data_can_be_looked_for_without_being_read(scene: SmallArchive) -> None:
    """Without reading data, a missing object is found and a damaged one is not."""
    missing, damaged = (await scene.keys("data"))[:2]
    await scene.transport.remove(missing)
    await damage(scene.transport, damaged, flipped(-1))
    transport = FaultyTransport(scene.transport)
    report = await scene.archive(transport).verify(read_data=False)
    assert _found(report) == {missing: "missing_object"}
    assert set(report.findings[0].snapshots) == await _users(scene, missing)
    assert not transport.calls("read", "data")
    assert report.bytes_count == 0


async def test_every_missing_object_is_told(scene: SmallArchive) -> None:
    """Each object but an index, one after the other: exactly the snapshots that need it are hurt."""
    transport = scene.transport
    for key in (*await scene.keys("data"), *await scene.keys("conversations")):
        if key.endswith("/index"):
            continue
        users = await _users(scene, key)
        found = await transport.read(key)
        assert found is not None
        await transport.remove(key)
        report = await scene.archive().verify()
        assert _found(report) == {key: "missing_object"}
        assert set(report.findings[0].snapshots) == users
        hurt = {SnapshotName(*one.name, snapshot) for one in report.conversations for snapshot in one.hurt}
        assert hurt == users
        await transport.write(key, found.data, if_revision=None)
    assert (await scene.archive().verify()).is_whole


async def test_all_that_is_wrong_is_told_at_once(scene: SmallArchive) -> None:
    """Every data object is missing and a manifest is damaged: nothing hides anything else."""
    data = await scene.keys("data")
    for key in data:
        await scene.transport.remove(key)
    name = (await _snapshots(scene))["one1"]
    manifest = scene.layout.snapshot_key(*name)
    await damage(scene.transport, manifest, flipped(-1))
    report = await scene.archive().verify()
    needed = dict.fromkeys(data, "missing_object")
    assert _found(report) == needed | {manifest: "corrupt"}
    assert not any(found.is_whole for found in report.conversations)


async def test_an_index_that_is_gone_is_told(scene: SmallArchive) -> None:
    """A first push that failed leaves the same, so that it is no finding, but it is told."""
    await scene.transport.remove(scene.layout.index_key("mycli", "two"))
    report = await scene.archive().verify()
    assert report.is_whole
    assert report.unindexed == [ConversationName("mycli", "two")]
    assert report.unreferenced_count == 1


@pytest.mark.parametrize("key", [None, ArchiveKey(bytes(32))], ids=["plain", "encrypted"])
def test_no_flipped_bit_is_overlooked(tmp_path_factory: pytest.TempPathFactory, key: ArchiveKey | None) -> None:
    """Any bit of any object, as the store gives it: the object is named, and its snapshots."""
    scene = SmallArchive(tmp_path_factory.mktemp("store"), key=key)
    asyncio.run(scene.push("one", {"log": b"line\n" * 20, "other": b"x"}))
    keys = asyncio.run(scene.keys())
    numbers = itertools.count()

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.sampled_from(keys), st.integers(0, 1 << 20), st.integers(0, 7))
    def check(damaged: str, at: int, bit: int) -> None:
        async def verify() -> VerifyReport:
            transport = scene.transport
            found = await transport.read(damaged)
            assert found is not None
            changed = bytearray(found.data)
            changed[at % len(changed)] ^= 1 << bit
            revision = await transport.write(damaged, bytes(changed), if_revision=found.revision)
            try:
                return await scene.archive().verify()
            finally:
                await transport.write(damaged, found.data, if_revision=revision)

        report = asyncio.run(verify())
        next(numbers)
        assert [finding.key for finding in report.findings] == [damaged]
        assert report.findings[0].reason in ("corrupt", "tampered", "wrong_key", "not_supported", "digest_mismatch")
        assert not report.conversations[0].is_whole

    check()
    assert next(numbers) >= len(keys)


@pytest.mark.parametrize("left_bytes", [0, 1, 21, -1])
async def test_a_truncated_object_is_told(scene: SmallArchive, left_bytes: int) -> None:
    """What a store gives of each object is only its beginning."""
    for key in await scene.keys():
        found = await scene.transport.read(key)
        assert found is not None
        revision = await scene.transport.write(key, found.data[:left_bytes], if_revision=found.revision)
        report = await scene.archive().verify()
        assert _found(report)[key] == "corrupt"
        await scene.transport.write(key, found.data, if_revision=revision)


async def test_damage_of_files_on_the_disk_is_told(scene: SmallArchive) -> None:
    """One byte of every file of the store, below its frame's checksum as well."""
    for path in scene.files():
        content = path.read_bytes()
        for at in (0, 20, 40, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            report = await scene.archive().verify()
            assert [finding.reason for finding in report.findings] in (["digest_mismatch"], ["incomplete"])
        path.write_bytes(content[:-1])
        report = await scene.archive().verify()
        assert [finding.reason for finding in report.findings] == ["incomplete"]
        path.write_bytes(content)


async def test_objects_that_were_exchanged_are_told(tmp_path: Path) -> None:
    """Two objects of one size in each other's place: without a key their names tell, with a key their encryption."""
    for key in (None, ArchiveKey(bytes(32))):
        scene = SmallArchive(tmp_path, namespace="keyed" if key else "plain", key=key)
        contents = [
            b"".join(hashlib.sha256(b"%d %d" % (file, number)).digest() for number in range(2_500)) for file in (1, 2)
        ]
        await scene.push("one", {"a": contents[0], "b": contents[1]})
        left, right = await scene.keys(scene.layout.data_prefix)
        found = [await scene.transport.read(name) for name in (left, right)]
        assert found[0] is not None
        assert found[1] is not None
        assert len(found[0].data) == len(found[1].data)
        await scene.transport.write(left, found[1].data, if_revision=found[0].revision)
        await scene.transport.write(right, found[0].data, if_revision=found[1].revision)
        reason = "tampered" if key else "digest_mismatch"
        assert _found(await scene.archive().verify()) == {left: reason, right: reason}


async def test_an_index_in_another_place_is_told(scene: SmallArchive) -> None:
    """The index of another conversation was copied over one: its snapshots are not told as those of this one."""
    target, source = (scene.layout.index_key("mycli", name) for name in ("one", "two"))
    copied, old = await scene.transport.read(source), await scene.transport.read(target)
    assert copied is not None
    assert old is not None
    await scene.transport.write(target, copied.data, if_revision=old.revision)
    report = await scene.archive().verify()
    assert _found(report) == {target: "tampered" if scene.key else "corrupt"}
    assert [(found.name.id, found.is_whole) for found in report.conversations] == [("one", False), ("two", True)]


async def test_a_manifest_in_another_place_is_told(scene: SmallArchive) -> None:
    """The manifest of an older snapshot was copied over the newest."""
    names = await _snapshots(scene)
    source, target = (scene.layout.snapshot_key(*names[name]) for name in ("one1", "one2"))
    copied, old = await scene.transport.read(source), await scene.transport.read(target)
    assert copied is not None
    assert old is not None
    await scene.transport.write(target, copied.data, if_revision=old.revision)
    report = await scene.archive().verify()
    assert _found(report) == {target: "tampered" if scene.key else "digest_mismatch"}
    assert report.findings[0].snapshots == [names["one2"]]


async def test_the_wrong_key_is_told(scene: SmallArchive) -> None:
    """Another key, or none, or one where nothing is encrypted: `wrong_key` for each index, and no other finding."""
    for key in (ArchiveKey(bytes(32)), None if scene.key else ArchiveKey(bytes(32))):
        report = await SmallArchive(scene.directory, key=key).archive().verify()
        indexes = [scene.layout.index_key("mycli", name) for name in ("one", "two")]
        assert _found(report) == dict.fromkeys(indexes, "wrong_key")


async def test_what_is_no_part_of_the_archive_is_passed_over(scene: SmallArchive) -> None:
    """Objects of others, with keys that are nearly ours, and of a namespace that continues this one."""
    for key in (
        "data/team/zz/notes",
        f"data/team/ab/{'cd' * 32}",
        "data/team/ab/cd/ef",
        f"marks/team/{'ab' * 31}",
        "conversations/team/mycli/one/snapshots/short",
        "conversations/team/mycli/one/notes",
        "conversations/team/mycli/index",
        "conversations/team/sub/mycli/one/index",
        "conversations/team-2/mycli/one/index",
    ):
        await scene.transport.write(key, b"not ours", if_revision=None)
    report = await scene.archive().verify()
    assert report.is_whole
    assert report.unreferenced_count == 0
    assert len(report.conversations) == 2


async def test_only_some_conversations(scene: SmallArchive) -> None:
    """By format and by id; what is wrong with others is not told, and one that is not there is."""
    await scene.transport.remove(scene.layout.snapshot_key(*(await _snapshots(scene))["two1"]))
    archive = scene.archive()
    report = await archive.verify(ids=["one"])
    assert report.is_whole
    assert report.unreferenced_count is None
    assert [found.name.id for found in report.conversations] == ["one"]
    assert not (await archive.verify("mycli", ["one", "two"])).is_whole
    assert not (await archive.verify("other")).conversations
    with pytest.raises(SessionError) as caught:
        await archive.verify("mycli", ["one", "three"])
    assert caught.value.reason == "not_found"
    with pytest.raises(ConfigurationError) as refused:
        await archive.verify(concurrency_count=0)
    assert refused.value.reason == "invalid_argument"


async def _publish_lie(scene: SmallArchive, *, sha256: str, digest: str, content: bytes = b"content") -> SnapshotName:
    """Archive a snapshot that says something wrong about a file of one object."""
    codec = Codec(scene.key)
    name = codec.object_name(content)
    data_key = scene.layout.data_key(name)
    await scene.transport.write(data_key, codec.encode(content, about=data_key), if_revision=None)
    files = (FileReference("empty", 0, hashlib.sha256().hexdigest()), FileReference("file", len(content), sha256))
    created_at = datetime(2026, 1, 1, tzinfo=UTC)
    manifest = Manifest(
        snapshot_id="ab" * 16,
        format="mycli",
        conversation_id="lie",
        source="/x",
        digest=digest,
        created_at=created_at,
        streams=(Stream(files, (ChunkReference(name, len(content)),)),),
    )
    key = scene.layout.snapshot_key("mycli", "lie", manifest.snapshot_id)
    stored = encode_manifest(manifest, codec, about=key)
    await scene.transport.write(key, stored, if_revision=None)
    snapshot = Snapshot(
        snapshot_id=manifest.snapshot_id,
        parent="",
        digest=digest,
        manifest_sha256=manifest_sha256(stored),
        created_at=created_at,
        files_count=2,
        bytes_count=len(content),
        added_bytes=0,
    )
    index = Index(format="mycli", namespace=scene.namespace, id="lie", native_id="lie", entries=(snapshot,))
    index_key = scene.layout.index_key("mycli", "lie")
    await scene.transport.write(index_key, encode_index(index, codec, about=index_key), if_revision=None)
    return SnapshotName("mycli", "lie", manifest.snapshot_id)


async def test_a_manifest_that_lies_about_a_file_is_told(scene: SmallArchive) -> None:
    """Its objects are what their names say, and the file they make is not."""
    wrong = "00" * 32
    entries = {"empty": b"", "file": b"content"}
    name = await _publish_lie(scene, sha256=wrong, digest=digest_of(entries))
    report = await scene.archive().verify(ids=["lie"])
    assert [(found.reason, found.snapshots) for found in report.findings] == [("digest_mismatch", [name])]


async def test_a_manifest_that_lies_about_the_whole_is_told(scene: SmallArchive) -> None:
    """Each file is what it should be, and the digest of all of them is another."""
    name = await _publish_lie(scene, sha256=hashlib.sha256(b"content").hexdigest(), digest="00" * 32)
    report = await scene.archive().verify(ids=["lie"])
    assert [(found.reason, found.snapshots) for found in report.findings] == [("digest_mismatch", [name])]


async def test_the_support_of_lies_tells_the_truth_as_well(scene: SmallArchive) -> None:
    """The same without a lie is whole: it is the lie that the other tests find."""
    entries = {"empty": b"", "file": b"content"}
    await _publish_lie(scene, sha256=hashlib.sha256(b"content").hexdigest(), digest=digest_of(entries))
    assert (await scene.archive().verify()).is_whole


async def test_a_newer_version_is_told(scene: SmallArchive) -> None:
    """An index of a later format is a finding of its own, and the rest is verified."""
    key = scene.layout.index_key("mycli", "one")
    index = msgspec.structs.replace(await scene.index("one"), version=99)
    found = await scene.transport.read(key)
    assert found is not None
    stored = encode_index(index, Codec(scene.key), about=key)
    await scene.transport.write(key, stored, if_revision=found.revision)
    assert _found(await scene.archive().verify()) == {key: "not_supported"}


async def test_a_store_that_fails_is_no_finding(scene: SmallArchive, tmp_path: Path) -> None:
    """What is wrong with the store itself is raised, not told as damage of objects."""
    archive = SmallArchive(tmp_path / "none", key=scene.key).archive()
    with pytest.raises(ConfigurationError) as caught:
        await archive.verify()
    assert caught.value.reason == "no_such_store"


async def test_what_others_do_meanwhile_is_no_finding(tmp_path: Path) -> None:
    """A push and a prune without a grace period, between any two operations: what is told is as it was, or as it is."""
    number = 0
    while True:
        scene = SmallArchive(tmp_path / str(number))
        scene.directory.mkdir()
        await scene.push("one", {"log": b"first"})
        await scene.push("one", {"log": b"second"})

        async def act(scene: SmallArchive = scene) -> None:
            await scene.push("one", {"log": b"third"})
            await scene.archive().prune(keep_last=1, grace_seconds=0)

        transport = InterposedTransport(scene.transport, number, act)
        assert (await scene.archive(transport).verify()).is_whole, number
        if not transport.has_acted:
            break
        number += 1
    assert number >= 7
