"""The copies that a host has of archived conversations: gone on with, fetched again, and never relied on unverified."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client.errors import SessionError
from host_client.sandbox.progress import Progress
from host_client.sandbox.task import opened_in_thread
from host_client.session.redaction import LiteralRule, Redaction
from host_client.stores.context import ConversationContext
from host_client.stores.transcript import TranscriptConversations
from support.archive_hosts import Scene
from support.conversation import files_below, make_session, store
from support.transcript_format import ID, WITH_SIDECARS, lines, write_transcript

if TYPE_CHECKING:
    from pathlib import Path

    from host_client.stores.archive_cache import Copy

pytestmark = pytest.mark.anyio

NOWHERE = ConversationContext()
CHILD = f"{ID}/subagents/agent-x.jsonl"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Two hosts and a transcript with a child in the sandbox `a`."""
    scene = Scene(tmp_path, TranscriptConversations(WITH_SIDECARS))
    write_transcript(sessions(scene), lines(count=200))
    return scene


def sessions(scene: Scene, sandbox: str = "a") -> Path:
    """Return the folder of a sandbox's transcripts."""
    return scene.home(sandbox) / ".mycli/sessions"


def copies(scene: Scene, host: str = "a") -> list[Path]:
    """Return the copies of a host; nothing else may be in its cache."""
    assert list((scene.directory / host / "cache/private").iterdir()) == []
    return list((scene.directory / host / "cache/copies").iterdir())


async def test_only_what_is_new_comes_from_the_sandbox(scene: Scene) -> None:
    """A host that archived the newest snapshot itself goes on with its copy; there is one of it."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        first = await archive.capture(ID, context)
        write_transcript(sessions(scene), lines(count=203))
        second = await archive.capture(ID, context)
        third = await archive.capture(ID, context)
    assert first.received_bytes > len(lines(count=200))
    assert 0 < second.received_bytes < len(lines(count=10))
    assert third.unchanged
    assert second.path.read_bytes() == lines("/outpost-archive", 203)
    assert len(copies(scene)) == 1


async def test_nobody_is_sent_to_what_is_gone(scene: Scene) -> None:
    """What a forced capture replaces in the host's copy is in the archive: no notice names a place for it."""
    async with scene.sandbox() as context:
        await scene.archive().capture(ID, context)
        write_transcript(sessions(scene), lines(count=199) + b'{"n": 10}\n')
        forced = await scene.archive(force=True).capture(ID, context)
    assert not forced.unchanged
    assert "replaced_on_host" not in {notice.reason for notice in forced.notices}


async def test_a_copy_that_is_read_is_left_alone(scene: Scene) -> None:
    """While somebody reads the copy of the newest snapshot, a capture begins in an empty folder."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        first = await archive.capture(ID, context)
        (copy,) = copies(scene)
        async with opened_in_thread(archive._copies.cache.lease, copy.name):
            write_transcript(sessions(scene), lines(count=203))
            second = await archive.capture(ID, context)
            assert first.path.read_bytes() == lines("/outpost-archive", 200)
    assert second.received_bytes > len(lines(count=200))


async def test_what_is_opened_stays(scene: Scene) -> None:
    """The file of an opened record is neither claimed by a capture nor removed for room, until the block ends."""
    small = scene.archive(max_cache_bytes=1)
    async with scene.sandbox() as context:
        await scene.archive().capture(ID, context)
        async with scene.archive().opened(ID, NOWHERE) as record:
            assert record == await scene.archive().locate(ID, NOWHERE)
            write_transcript(sessions(scene), lines(count=203))
            await small.capture(ID, context)
            assert record.path.read_bytes() == lines("/outpost-archive", 200)
        write_transcript(sessions(scene), lines(count=206))
        await small.capture(ID, context)
        assert not record.path.exists()
        async with scene.archive().opened(ID, NOWHERE, snapshot=record.reference.snapshot_id) as again:
            assert (again.path, again.digest) == (record.path, record.digest)
            assert again.path.exists()


async def test_what_is_taken_away_before_it_is_opened_is_fetched_again(scene: Scene) -> None:
    """Between its making and its opening somebody removes the copy: the caller never sees a file that goes."""
    async with scene.sandbox() as context:
        await scene.archive().capture(ID, context)
    store = scene.archive("b")
    cache, told, names = store._copies.cache, list[Progress](), list[str]()
    lease = cache.lease

    def late(name: str) -> Copy | None:
        names.append(name)
        if len(names) == 2:  # the first look finds none, the second is the opening
            cache.drop(name)
        return lease(name)

    cache.lease = late  # type: ignore[method-assign]
    async with store.opened(ID, replace(NOWHERE, progress=told.append)) as record:
        assert record.path.read_bytes() == lines("/outpost-archive", 200)
    assert len(told) == 2


async def test_a_companion_that_is_gone_does_not_come_back(scene: Scene) -> None:
    """What the sandbox no longer has is not in the next snapshot, though the copy that is gone on with has it."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        await archive.capture(ID, context)
        (sessions(scene) / CHILD).unlink()
        record = await archive.capture(ID, context)
    assert record.files_count == 1
    assert [file.path for file in (await scene.manifest(ID)).files] == [f".mycli/sessions/{ID}.jsonl"]
    assert len(await archive.history(ID)) == 2


async def test_a_companion_that_changed_is_a_new_snapshot(scene: Scene) -> None:
    """The main transcript decides: with that equal, another child goes in front."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        await archive.capture(ID, context)
        (sessions(scene) / CHILD).write_bytes(b'{"else": 1}\n')
        record = await archive.capture(ID, context)
    assert (record.path.parent / CHILD).read_bytes() == b'{"else": 1}\n'
    assert [entry.diverged for entry in await archive.history(ID)] == [False, False]


async def test_a_failed_capture_leaves_the_copy(scene: Scene) -> None:
    """What a capture cannot read is an error of its own, and the copy of the newest snapshot stays."""
    archive = scene.archive()
    async with scene.sandbox() as context:
        record = await archive.capture(ID, context)
        (sessions(scene) / f"{ID}.jsonl").unlink()
        with pytest.raises(SessionError) as caught:
            await archive.capture(ID, context)
        assert caught.value.reason == "not_found"
    assert record.path.read_bytes() == lines("/outpost-archive", 200)
    assert len(copies(scene)) == 1


@pytest.mark.parametrize("how", ["gone", "changed"])
async def test_a_copy_that_is_not_what_it_was_is_fetched_again(scene: Scene, how: str) -> None:
    """A record is restored though its copy is gone, or somebody wrote into it; so is one that another host made."""
    async with scene.sandbox() as context:
        record = await scene.archive().capture(ID, context)
    if how == "gone":
        shutil.rmtree(scene.directory / "a/cache")
    else:
        record.path.write_bytes(record.path.read_bytes().replace(b"user", b"evil"))
    for host, sandbox in (("a", "b"), ("other", "c")):
        archive = scene.archive(host)
        async with scene.sandbox(sandbox) as context:
            outcome = await archive.restore(pickle.loads(pickle.dumps(record)), context)  # noqa: S301 - our own
            assert await archive.compare(record, context) == "same"
        assert outcome.files_count == 2
        restored = (sessions(scene, sandbox) / f"{ID}.jsonl").read_bytes()
        assert restored == lines(str(scene.directory / sandbox / "workspace"), 200)
        assert len(copies(scene, host)) == 1
    located = await scene.archive().locate(ID, NOWHERE)
    assert located.path.read_bytes() == lines("/outpost-archive", 200)


async def test_a_changed_copy_is_not_located(scene: Scene) -> None:
    """What is located was verified: a copy that somebody changed is made again."""
    async with scene.sandbox() as context:
        record = await scene.archive().capture(ID, context)
    record.path.write_bytes(lines("/evil", 200))
    located = await scene.archive().locate(ID, NOWHERE)
    assert (located.digest, located.path) == (record.digest, record.path)
    assert located.path.read_bytes() == lines("/outpost-archive", 200)


async def test_a_session_directory_is_archived_as_its_files(tmp_path: Path) -> None:
    """A bundle is no JSON in the archive: its files are, and elsewhere the same bundle is made of them."""
    scene = Scene(tmp_path, store())
    make_session(scene.home() / ".mycli", {"files/a.bin": bytes(range(256)) * 400, "files/deep/empty": b""})
    async with scene.sandbox() as context:
        record = await scene.archive().capture(ID, context)
    located = await scene.archive("b").locate(ID, NOWHERE)
    assert [file.path for file in (await scene.manifest(ID)).files] == [
        "files/a.bin",
        "files/deep/empty",
        "session.json",
    ]
    assert located.path.read_bytes() == record.path.read_bytes()
    async with scene.sandbox("b") as context:
        await scene.archive("b").restore(located, context)
    (session,) = (scene.home("b") / ".mycli/sessions").iterdir()
    assert files_below(session)["files/a.bin"] == bytes(range(256)) * 400


async def test_secrets_are_taken_out_before_anything_is_archived(scene: Scene) -> None:
    """A redaction is the base's: neither the archive nor the copy has what it takes out."""
    secret = b"correct horse battery"
    write_transcript(sessions(scene), lines(count=3) + b'{"said": "%b"}\n' % secret)
    archive = scene.archive(compress=False)
    async with scene.sandbox() as context:
        redacting = replace(context, redaction=Redaction((LiteralRule("horse", secret.decode()),)))
        record = await archive.capture(ID, redacting)
        write_transcript(sessions(scene), lines(count=3) + b'{"said": "%b"}\n' % secret + b'{"more": 1}\n')
        await archive.capture(ID, redacting)
    assert record.redactions == {"horse": 1}
    assert not any(secret in data for data in files_below(scene.directory / "store").values())
    assert not any(secret in data for data in files_below(scene.directory / "a/cache").values())
    assert [entry.diverged for entry in await archive.history(ID)] == [False, False]


async def test_progress_tells_what_is_fetched(scene: Scene) -> None:
    """Whoever locates is told how far it is; where the copy is there already nothing is fetched."""
    async with scene.sandbox() as context:
        record = await scene.archive().capture(ID, context)
    told: list[Progress] = []
    for _ in range(2):
        await scene.archive("b").locate(ID, replace(NOWHERE, progress=told.append))
    (first,) = told
    assert 0 < first.bytes_count <= first.bytes_total == record.bytes_count
    assert first.files_total == record.files_count == 2
