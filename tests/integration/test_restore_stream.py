"""Restores whose digests follow their contents: a capture is passed on while it arrives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

import pytest

from host_client.errors import SessionError
from host_client.sandbox.place import Place
from host_client.sandbox.sandbox import connect
from sandbox_api.limits import Limits
from sandbox_api.manifest import Entry, bundle_digest
from sandbox_api.v1 import bundle_pb2_grpc, payload_pb2
from sandbox_api.wire import pack_manifest
from support.bundle_end import PROFILE, entries_of, read_session, write_session
from support.bundle_stream import FILES, RestoreCall
from support.fake_daemon import fake_daemon
from support.lie import PLACE, refusal
from support.restoring import files_of, staged
from support.sandbox import ID, make_session
from support.status import fails
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from host_client.sandbox.place import Restored
    from host_client.sandbox.progress import Progress
    from support.daemon import RunningDaemon

OLD = {b"a": b"old", b"kept": b"k"}
NEW = {b"a": b"", b"b/c": bytes(range(256)) * 9000, b"b/d": b"d" * 70, b"empty": b"", b"z": b"z" * 5000}
BARE = [entry._replace(sha256=b"") for entry in entries_of(NEW)]
PAYLOAD = b"".join(NEW[entry.path] + entry.sha256 for entry in entries_of(NEW))
DIGEST = bundle_digest(entries_of(NEW))


def is_clean(home: Path) -> bool:
    """Tell whether nothing is staged, while it goes."""
    return not [*home.glob(".plain/sessions/.outpost-session-*"), *home.glob(".outpost-agent/*.json")]


async def pieces(payload: bytes = PAYLOAD, size: int = 1 << 16) -> AsyncIterator[bytes]:
    """Yield a payload."""
    for start in range(0, len(payload), size):
        yield payload[start : start + size]


async def digest() -> bytes:
    """Return the bundle digest."""
    return DIGEST


async def pass_on(
    daemon: RunningDaemon,
    contents: AsyncIterator[bytes],
    told: bytes = DIGEST,
    entries: list[Entry] = BARE,
    progress: Callable[[Progress], None] | None = None,
) -> Restored:
    """Restore a stream."""

    async def tell() -> bytes:
        return told

    async with connect(daemon.target) as sandbox:
        assert sandbox.bundles.can_stream
        return await sandbox.bundles.restore_stream(
            PLACE, entries, contents, tell, full_durability=False, progress=progress
        )


@pytest.mark.anyio
@pytest.mark.parametrize("piece_bytes", [7919, 1 << 20, 5 << 20])
async def test_stream_is_put_in_place(daemon: RunningDaemon, piece_bytes: int) -> None:
    """In any split: what came is in place, the old session in recovery, all of it was sent, progress ends whole."""
    write_session(daemon.home, OLD)
    told: list[Progress] = []
    restored = await pass_on(daemon, pieces(size=piece_bytes), progress=told.append)
    assert read_session(daemon.home) == NEW
    assert (restored.digest, restored.unchanged, restored.files_count) == (DIGEST, False, len(NEW))
    assert restored.recovery
    assert restored.sent_bytes == len(PAYLOAD) + len(pack_manifest(BARE))
    assert told[-1].is_complete
    assert staged(daemon.home) == []


@pytest.mark.anyio
async def test_what_is_there_is_unchanged(daemon: RunningDaemon) -> None:
    """A session that is in place already is left as it is, which is found out at the end."""
    session = write_session(daemon.home, NEW)
    before = session.stat()
    restored = await pass_on(daemon, pieces())
    assert restored.unchanged
    assert (session.stat().st_ino, session.stat().st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
    assert staged(daemon.home) == []


@pytest.mark.anyio
async def test_content_arrives_before_the_source_is_done(daemon: RunningDaemon) -> None:
    """What has come is with the daemon while the rest is not there yet; nothing is visible before the digest."""
    write_session(daemon.home, OLD)
    folder = daemon.home / ".plain/sessions"

    def staged_bytes() -> int:
        return sum(path.stat().st_size for path in folder.glob(".outpost-session-*/b/c"))

    async def slow() -> AsyncIterator[bytes]:
        yield PAYLOAD[: 2 << 20]
        await asyncio.to_thread(wait_until, lambda: staged_bytes() >= 1 << 20, "the first content")
        yield PAYLOAD[2 << 20 :]

    async def late() -> bytes:
        await asyncio.to_thread(wait_until, lambda: staged_bytes() == len(NEW[b"b/c"]), "all content")
        assert read_session(daemon.home) == OLD
        return DIGEST

    async with connect(daemon.target) as sandbox:
        await sandbox.bundles.restore_stream(PLACE, BARE, slow(), late, full_durability=False)
    assert read_session(daemon.home) == NEW


class Broken(Exception):  # noqa: N818 - what a source raises, whatever it is
    """Stands for what a capture raises."""


async def _break(home: Path) -> NoReturn:
    """Raise once the daemon is at work: a call that it has not begun with cannot be waited for."""
    await asyncio.to_thread(wait_until, lambda: not is_clean(home), "the beginning of the call")
    raise Broken


async def _breaking(home: Path) -> AsyncIterator[bytes]:
    yield PAYLOAD[:-10]
    await _break(home)


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["contents", "digest"])
async def test_source_that_breaks(daemon: RunningDaemon, where: str) -> None:
    """A capture that fails, however late, leaves the old session, and nothing staged."""
    write_session(daemon.home, OLD)

    async def fail() -> bytes:
        await _break(daemon.home)

    async with connect(daemon.target) as sandbox:
        with pytest.raises(Broken):
            await sandbox.bundles.restore_stream(
                PLACE,
                BARE,
                _breaking(daemon.home) if where == "contents" else pieces(),
                fail if where == "digest" else digest,
                full_durability=False,
            )
    await asyncio.to_thread(wait_until, lambda: is_clean(daemon.home), "the end of the call")
    assert read_session(daemon.home) == OLD


def _flipped(offset: int) -> bytes:
    return PAYLOAD[:offset] + bytes([PAYLOAD[offset] ^ 1]) + PAYLOAD[offset + 1 :]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("payload", "told", "reason"),
    [
        (_flipped(40), DIGEST, "digest_mismatch"),
        (_flipped(0), DIGEST, "digest_mismatch"),
        (_flipped(len(PAYLOAD) - 1), DIGEST, "digest_mismatch"),
        (PAYLOAD, bytes(32), "digest_mismatch"),
        (PAYLOAD[:-1], DIGEST, "corrupt"),
        (PAYLOAD + b"x", DIGEST, "corrupt"),
    ],
)
async def test_stream_that_is_not_what_it_says(daemon: RunningDaemon, payload: bytes, told: bytes, reason: str) -> None:
    """Contents, digests and the bundle digest have to fit each other and the manifest; else nothing changes."""
    write_session(daemon.home, OLD)
    with pytest.raises(SessionError) as caught:
        await pass_on(daemon, pieces(payload), told)
    assert caught.value.reason == reason
    await asyncio.to_thread(wait_until, lambda: is_clean(daemon.home), "the end of the call")
    assert read_session(daemon.home) == OLD


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([], "session/empty"),
        (entries_of(NEW), "session/protocol"),
        ([Entry(b"../a", 1)], "session/unsafe_name"),
        ([Entry(b"b", 1)], "session/missing_required"),
    ],
)
async def test_manifest_that_is_none(daemon: RunningDaemon, entries: list[Entry], reason: str) -> None:
    """Such a manifest is refused before any content, by the client or by the daemon."""
    assert await refusal(pass_on(daemon, pieces(), entries=entries)) == reason
    assert not (daemon.home / ".plain").exists()


@pytest.mark.anyio
async def test_limits_hold(daemon: RunningDaemon) -> None:
    """The limits of a bundle are those of any restore."""
    async with connect(daemon.target, limits=Limits(max_bytes=100)) as sandbox:
        assert await refusal(sandbox.bundles.restore_stream(PLACE, BARE, pieces(), digest)) == "limit/max_bytes"


@pytest.mark.anyio
async def test_busy_session_is_refused_before_content(daemon: RunningDaemon) -> None:
    """What a restore is refused for at its beginning costs no content here either."""
    asked: list[int] = []
    other = daemon.home / ".plain/sessions/S1"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"no directory")

    async def counted() -> AsyncIterator[bytes]:
        asked.append(1)
        yield PAYLOAD

    assert await refusal(pass_on(daemon, counted())) == "conflict/exists"
    assert asked == []


@pytest.mark.anyio
async def test_old_daemon_is_not_asked() -> None:
    """A daemon without the capability is told apart before anything is sent."""
    async with fake_daemon() as target, connect(target) as sandbox:
        assert not sandbox.bundles.can_stream
        place = Place(PROFILE, "S1")
        assert await refusal(sandbox.bundles.restore_stream(place, BARE, pieces(), digest)) == "unavailable/unsupported"


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"restore_id": "r-1"}, "configuration", "invalid_argument"),
        ({}, "session", "protocol"),
        ({"digest": b""}, "session", "protocol"),
    ],
)
def test_digests_that_came_early(
    daemon: RunningDaemon,
    bundles: bundle_pb2_grpc.BundleServiceStub,
    fields: dict[str, object],
    code: str,
    reason: str,
) -> None:
    """Neither header nor manifest may have what is to follow, and such a restore is not gone on with."""
    with fails(code, reason):
        RestoreCall(bundles, FILES, digests_follow=True, **fields).need()
    assert not (daemon.home / ".demo").exists()


def test_end_within_a_digest(daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """A payload that ends within the last digest is not whole, though all contents are there."""
    session = make_session(daemon.home, {"state.json": b"old"})
    restoring = RestoreCall(bundles, {"state.json": b"new"}, digests_follow=True, digest=b"", bare=True)
    assert restoring.need() == ["state.json"]
    rest = b"new" + restoring.entries[0].sha256[:31]
    offset = len(restoring.manifest)
    restoring.send(payload_pb2.Chunk(offset=offset, data=rest))
    restoring.end(offset + len(rest))
    with fails("session", "incomplete"):
        list(restoring.call)
    assert files_of(session) == {"state.json": b"old"}
    assert staged(daemon.home) == []
    assert session.name == ID
