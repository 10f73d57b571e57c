"""Restores and checks of bundles by a real daemon, called by raw stubs: the streams' rules, and what is left behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from sandbox_api.manifest import bundle_digest
from sandbox_api.v1 import bundle_pb2, bundle_pb2_grpc, payload_pb2
from sandbox_api.wire import pack_manifest, pack_profile
from support.daemon import running_daemon
from support.restoring import entries_of, files_of, staged
from support.sandbox import FLAT, ID, make_session
from support.status import fails
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from support.daemon import RunningDaemon

from support.bundle_stream import CALL_SECONDS, FILES, CapturedStream, RestoreCall, chunks_of, place_of


def _staging(home: Path) -> bool:
    """Tell whether something is staged, while it comes and goes."""
    return any((home / ".demo" / "sessions").glob(".outpost-session-*"))


@pytest.mark.parametrize("durability", [payload_pb2.DURABILITY_FULL, payload_pb2.DURABILITY_NONE])
def test_restore(
    daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub, durability: payload_pb2.Durability
) -> None:
    """A session goes in byte for byte; going in again needs nothing and changes nothing."""
    needed, result = RestoreCall(bundles, FILES, durability=durability).finish()
    session = daemon.home / ".demo" / "sessions" / ID
    assert needed == sorted(FILES)
    assert (result.target, result.unchanged, result.recovery) == (os.fsencode(session), False, "")
    assert (result.files_count, result.bytes_count) == (len(FILES), sum(map(len, FILES.values())))
    assert files_of(session) == FILES
    assert result.digest == bundle_digest(entries_of(FILES))
    needed, result = RestoreCall(bundles, FILES).finish()
    assert (needed, result.unchanged) == ([], True)
    assert staged(daemon.home) == []


def test_restore_asks_for_what_is_lacking(daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """What the session on disk has already is not sent; the session that was replaced is in recovery."""
    session = make_session(daemon.home, {**FILES, "state.json": b"old", "gone": b"gone"})
    needed, result = RestoreCall(bundles, FILES).finish()
    assert needed == ["state.json"]
    assert files_of(session) == FILES
    assert files_of(daemon.home / ".demo" / ".outpost-recovery" / result.recovery)["gone"] == b"gone"


def _without_trailer(restoring: RestoreCall) -> None:
    restoring.send(*restoring.content(restoring.need()))
    restoring.requests.end()


def _lost_chunk(restoring: RestoreCall) -> None:
    first, *_ = restoring.content(restoring.need())
    restoring.send(first)
    restoring.end(len(restoring.manifest) + sum(map(len, restoring.files.values())))


def _wrong_content(restoring: RestoreCall) -> None:
    first, *rest = restoring.content(restoring.need())
    restoring.send(payload_pb2.Chunk(offset=first.offset, data=bytes(len(first.data))), *rest)
    restoring.end()


def _wrong_digest(restoring: RestoreCall) -> None:
    chunks = restoring.content(restoring.need())
    restoring.send(*chunks)
    restoring.end(len(restoring.manifest) + sum(len(chunk.data) for chunk in chunks), bytes(32))


def _too_much(restoring: RestoreCall) -> None:
    chunks = restoring.content(restoring.need())
    size = len(restoring.manifest) + sum(len(chunk.data) for chunk in chunks)
    restoring.send(*chunks, payload_pb2.Chunk(offset=size, data=b"x"))
    restoring.end(size + 1)


def _goes_on(restoring: RestoreCall) -> None:
    chunks = restoring.content(restoring.need())
    size = len(restoring.manifest) + sum(len(chunk.data) for chunk in chunks)
    trailer = bundle_pb2.RestoreRequest(trailer=payload_pb2.Trailer(size=size, sha256=restoring.digest))
    restoring.send(*chunks)
    restoring.requests.send(trailer, trailer)
    restoring.requests.end()


def _wrong_order(restoring: RestoreCall) -> None:
    first, second, *_ = restoring.content(restoring.need())
    restoring.send(second, first)
    restoring.end()


@pytest.mark.parametrize(
    ("go_on", "code", "reason"),
    [
        (_without_trailer, "session", "incomplete"),
        (_lost_chunk, "session", "incomplete"),
        (_wrong_content, "session", "digest_mismatch"),
        (_wrong_digest, "session", "digest_mismatch"),
        (_too_much, "limit", "max_bytes"),
        (_goes_on, "session", "protocol"),
        (_wrong_order, "session", "protocol"),
    ],
)
def test_broken_restores_change_nothing(
    daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub, go_on: Any, code: str, reason: str
) -> None:
    """A stream that breaks any rule has its reason; the old session is in place and nothing is staged."""
    session = make_session(daemon.home, {"state.json": b"old"})
    restoring = RestoreCall(bundles, FILES)
    with fails(code, reason):
        go_on(restoring)
        list(restoring.call)
    assert files_of(session) == {"state.json": b"old"}
    assert staged(daemon.home) == []


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"manifest_bytes": 1 << 40}, "limit", "max_manifest_bytes"),
        ({"limits": bundle_pb2.BundleLimits(max_files=1)}, "limit", "max_manifest_bytes"),
        ({"limits": bundle_pb2.BundleLimits(max_bytes=1)}, "limit", "max_bytes"),
        ({"digest": bytes(32)}, "session", "digest_mismatch"),
        ({"manifest_bytes": 10}, "session", "protocol"),
        ({"place": place_of("a/b")}, "configuration", "invalid_id"),
    ],
)
def test_restores_refused_before_any_content(
    daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub, fields: dict[str, Any], code: str, reason: str
) -> None:
    """What header and manifest show to be wrong is refused before content is asked for."""
    files = {**FILES, **{f"{'n' * 250}{number}": b"" for number in range(20)}}
    restoring = RestoreCall(bundles, files, **fields)
    with fails(code, reason):
        restoring.need()
    restoring.requests.end()
    assert not (daemon.home / ".demo").exists()


def test_restore_that_stops_in_its_manifest(daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """An end within the manifest is `incomplete`."""
    restoring = RestoreCall(bundles, FILES, manifest_bytes=10_000)
    restoring.requests.end()
    with fails("session", "incomplete"):
        restoring.need()
    assert not (daemon.home / ".demo").exists()


def test_cancelled_restores_leave_nothing(daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """Clients that go away in the middle: the old session is in place, nothing is staged, and the next one restores."""
    session = make_session(daemon.home, {"state.json": b"old"})
    for _ in range(5):
        restoring = RestoreCall(bundles, FILES)
        first, *_ = restoring.content(restoring.need())
        restoring.send(first)
        wait_until(lambda: _staging(daemon.home), "the staging directory")
        restoring.call.cancel()
        restoring.requests.end()
        wait_until(lambda: not _staging(daemon.home), "the clean-up")
    wait_until(lambda: staged(daemon.home) == [], "the journal")
    assert files_of(session) == {"state.json": b"old"}
    RestoreCall(bundles, FILES).finish()
    assert files_of(session) == FILES


def test_killed_daemon_is_swept_after(tmp_path: Path) -> None:
    """What a killed daemon has staged is removed by the next start, before it serves, and its log says so."""
    with running_daemon(tmp_path) as daemon, grpc.insecure_channel(daemon.target) as channel:
        session = make_session(daemon.home, {"state.json": b"old"})
        restoring = RestoreCall(bundle_pb2_grpc.BundleServiceStub(channel), FILES)
        first, *_ = restoring.content(restoring.need())
        restoring.send(first)
        wait_until(lambda: _staging(daemon.home), "the staging directory")
        daemon.process.kill()
        daemon.process.wait()
        restoring.requests.end()
        assert _staging(daemon.home)
    with running_daemon(tmp_path) as daemon:
        assert staged(daemon.home) == []
        assert files_of(session) == {"state.json": b"old"}
        assert daemon.log().index(" swept ") < daemon.log().rindex(" serving ")


def test_restore_without_a_state_folder(tmp_path: Path) -> None:
    """Where the daemon cannot keep its journal it refuses restores and goes on capturing."""
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    with (
        running_daemon(tmp_path, "--state", str(state)) as daemon,
        grpc.insecure_channel(daemon.target) as channel,
    ):
        stub = bundle_pb2_grpc.BundleServiceStub(channel)
        session = make_session(daemon.home, {"state.json": b"old"})
        with fails("workspace", "access"):
            RestoreCall(stub, FILES).finish()
        assert files_of(session) == {"state.json": b"old"}
        captured = CapturedStream(stub.Capture(bundle_pb2.CaptureRequest(place=place_of()), timeout=CALL_SECONDS), {})
        assert captured.files == {"state.json": b"old"}


def _validate(bundles: bundle_pb2_grpc.BundleServiceStub, files: Mapping[str, bytes], payload: bytes) -> None:
    entries = entries_of(files)
    manifest = pack_manifest(entries)
    header = bundle_pb2.ValidateHeader(
        profile=pack_profile(FLAT), id=ID, manifest_bytes=len(manifest), digest=bundle_digest(entries)
    )
    # One payload: a chunk may hold the end of the manifest and the beginning of the contents.
    chunks = chunks_of(manifest + payload)
    trailer = payload_pb2.Trailer(size=len(manifest + payload), sha256=bundle_digest(entries))
    bundles.Validate(
        iter(
            [
                bundle_pb2.ValidateRequest(header=header),
                *(bundle_pb2.ValidateRequest(chunk=chunk) for chunk in chunks),
                bundle_pb2.ValidateRequest(trailer=trailer),
            ]
        ),
        timeout=CALL_SECONDS,
    )


def test_validate(daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """A bundle is checked as a restore would, and nothing is placed."""
    payload = b"".join(FILES[path] for path in sorted(FILES))
    _validate(bundles, FILES, payload)
    with fails("session", "digest_mismatch"):
        _validate(bundles, FILES, payload[:-1] + b"?")
    with fails("session", "missing_required"):
        _validate(bundles, {"a.txt": b""}, b"")
    assert staged(daemon.home) == []
    assert not (daemon.home / ".demo").exists()
