"""Captures, lists and recovery of a real daemon, called by raw stubs: the bytes of the streams, what is left behind."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from sandbox_api.manifest import DIGEST_BYTES
from sandbox_api.v1 import bundle_pb2, bundle_pb2_grpc, payload_pb2
from sandbox_api.wire import pack_profile
from support.restoring import files_of, picture
from support.sandbox import FLAT, ID, make_session, write
from support.status import fails

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.daemon import RunningDaemon

from support.bundle_stream import CALL_SECONDS, CHUNK_BYTES, FILES, CapturedStream, RestoreCall, place_of


def _capture(
    bundles: bundle_pb2_grpc.BundleServiceStub, held: Mapping[bytes, bytes] | None = None, **fields: Any
) -> CapturedStream:
    request = bundle_pb2.CaptureRequest(place=place_of(), **fields)
    for path, content in (held or {}).items():
        request.held.add(path=path, size=len(content), sha256=hashlib.sha256(content).digest())
    return CapturedStream(bundles.Capture(request, timeout=CALL_SECONDS), held or {})


def test_capture(daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """A session comes out byte for byte, with its digests; what was left out is named; nothing changes."""
    session = make_session(daemon.home, {**FILES, "x.lock": b""})
    before = picture(daemon.home)
    captured = _capture(bundles)
    assert captured.files == FILES
    assert captured.header.source == os.fsencode(session)
    assert [(left.path, left.why) for left in captured.trailer.left_out] == [
        (b"x.lock", bundle_pb2.LeftOut.WHY_NOT_SELECTED)
    ]
    assert (captured.trailer.left_out_count, captured.trailer.in_use_pid) == (1, 0)
    assert picture(daemon.home) == before


def test_capture_sends_what_is_not_held(daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """An unchanged file is named, a grown one is sent from its old end, a rewritten one whole."""
    session = make_session(daemon.home, FILES)
    held = {path.encode(): content for path, content in FILES.items()}
    write(session, {"large": FILES["large"] + b"more", "state.json": b"[]"})
    captured = _capture(bundles, held)
    assert captured.files == {**FILES, "large": FILES["large"] + b"more", "state.json": b"[]"}
    assert captured.content_bytes == len(b"more") + len(b"[]") + 2 * DIGEST_BYTES
    assert _capture(bundles, {path.encode(): content for path, content in captured.files.items()}).content_bytes == 0


def test_capture_of_many_small_files_fills_chunks(
    daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub
) -> None:
    """Small files share messages: a thousand of them cost few."""
    make_session(daemon.home, {"state.json": b"{}", **{f"f{number:04}": bytes(2000) for number in range(1000)}})
    messages = list(bundles.Capture(bundle_pb2.CaptureRequest(place=place_of()), timeout=CALL_SECONDS))
    assert len(messages) == 2 + -(-messages[0].header.payload_bytes // CHUNK_BYTES)
    assert len(CapturedStream(iter(messages), {}).files) == 1001


def test_capture_skips_links_only_when_asked(daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """A link fails the capture; with the skip policy it is left out and named."""
    session = make_session(daemon.home, FILES)
    (session / "link").symlink_to("state.json")
    for policy in (bundle_pb2.LINK_POLICY_UNSPECIFIED, bundle_pb2.LINK_POLICY_REFUSE, 77):
        with fails("session", "symlink"):
            _capture(bundles, links=policy)
    captured = _capture(bundles, links=bundle_pb2.LINK_POLICY_SKIP)
    assert captured.files == FILES
    assert [(left.path, left.why) for left in captured.trailer.left_out] == [(b"link", bundle_pb2.LeftOut.WHY_SYMLINK)]


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"place": place_of("other")}, "session", "not_found"),
        ({"place": place_of("../x")}, "configuration", "invalid_id"),
        ({"place": bundle_pb2.Place(id=ID)}, "configuration", "invalid_profile"),
        ({"place": place_of(variables={"DEMO_HOME": "/etc"})}, "workspace", "outside_roots"),
        ({"limits": bundle_pb2.BundleLimits(max_bytes=100)}, "limit", "max_bytes"),
        ({"limits": bundle_pb2.BundleLimits(max_files=2)}, "limit", "max_files"),
        ({"held": [bundle_pb2.HeldFile(path=b"../x", sha256=bytes(32))]}, "configuration", "invalid_argument"),
        ({"held": [bundle_pb2.HeldFile(path=b"x", sha256=b"short")]}, "configuration", "invalid_argument"),
    ],
)
def test_refused_captures(
    daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub, fields: dict[str, Any], code: str, reason: str
) -> None:
    """What is asked for wrongly, or is too much, has its reason."""
    make_session(daemon.home, FILES)
    with fails(code, reason):
        list(bundles.Capture(bundle_pb2.CaptureRequest(**{"place": place_of(), **fields}), timeout=CALL_SECONDS))


def test_list(daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """Sessions are listed by path, with what can be told without reading them."""
    request = bundle_pb2.ListRequest(profile=pack_profile(FLAT))
    assert list(bundles.List(request, timeout=CALL_SECONDS)) == []
    session = make_session(daemon.home, FILES, conversation_id="b")
    make_session(daemon.home, {"other": b""}, conversation_id="a")
    incomplete, complete = bundles.List(request, timeout=CALL_SECONDS)
    assert (incomplete.id, incomplete.complete, incomplete.HasField("modified")) == ("a", False, False)
    assert (complete.id, complete.complete, complete.path) == ("b", True, os.fsencode(session))
    assert complete.modified.ToNanoseconds() == (session / "state.json").stat().st_mtime_ns


def test_recovery(daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """What a restore set aside is listed, put back, and pruned."""
    session = make_session(daemon.home, {"state.json": b"old"})
    _, result = RestoreCall(bundles, FILES).finish()
    listing = bundle_pb2.ListRecoveryRequest(profile=pack_profile(FLAT))
    (found,) = (answer.entry for answer in bundles.ListRecovery(listing, timeout=CALL_SECONDS))
    assert (found.name, found.id, found.session_path) == (result.recovery, ID, os.fsencode(session))
    assert found.HasField("set_aside")
    undone = bundles.UndoRestore(bundle_pb2.UndoRestoreRequest(place=place_of()), timeout=CALL_SECONDS)
    assert undone.target == os.fsencode(session)
    assert files_of(session) == {"state.json": b"old"}
    assert files_of(daemon.home / ".demo" / ".outpost-recovery" / undone.recovery) == FILES
    prune = bundle_pb2.PruneRecoveryRequest(profile=pack_profile(FLAT), keep_count=0)
    assert list(bundles.PruneRecovery(prune, timeout=CALL_SECONDS).removed) == [undone.recovery]
    assert list(bundles.ListRecovery(listing, timeout=CALL_SECONDS)) == []


def test_prune_needs_a_rule(bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """Without a rule nothing is removed: zero is a rule, nothing is none."""
    with fails("configuration", "invalid_argument"):
        bundles.PruneRecovery(bundle_pb2.PruneRecoveryRequest(profile=pack_profile(FLAT)), timeout=CALL_SECONDS)
    rule = bundle_pb2.PruneRecoveryRequest(profile=pack_profile(FLAT), older_than_seconds=0)
    assert list(bundles.PruneRecovery(rule, timeout=CALL_SECONDS).removed) == []


def test_undo_without_recovery(bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """Where nothing was set aside there is nothing to undo."""
    with fails("session", "not_found"):
        bundles.UndoRestore(bundle_pb2.UndoRestoreRequest(place=place_of()), timeout=CALL_SECONDS)


def test_many_streams_at_once(daemon: RunningDaemon, bundles: bundle_pb2_grpc.BundleServiceStub) -> None:
    """Eight captures and restores at once all get through, each with its own content."""

    def move(number: int) -> dict[str, bytes]:
        files = {"state.json": b"%d" % number, "large": os.urandom(2 * CHUNK_BYTES)}
        place = place_of(f"id-{number}")
        RestoreCall(bundles, files, place=place, durability=payload_pb2.DURABILITY_NONE).finish()
        captured = CapturedStream(bundles.Capture(bundle_pb2.CaptureRequest(place=place), timeout=CALL_SECONDS), {})
        assert captured.files == files
        return files

    with ThreadPoolExecutor(8) as executor:
        moved = list(executor.map(move, range(8)))
    sessions = daemon.home / ".demo" / "sessions"
    assert [files_of(sessions / f"id-{number}") for number in range(8)] == moved
