"""Manifests: the bundle digest and what must not reach the disk."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_api import wire
from sandbox_api.errors import ConfigurationError, LimitError, OutpostError, SessionError
from sandbox_api.limits import MIB, Limits
from sandbox_api.manifest import Entry, bundle_digest, check_entries
from sandbox_api.v1 import bundle_pb2
from sandbox_api.wire import unpack_manifest

SHA = hashlib.sha256(b"x").digest()


def test_the_digest_is_the_documented_one() -> None:
    """The worked example of docs/format.md."""
    entries = [Entry(b"a.txt", 1, SHA), Entry(b"d/b", 0, hashlib.sha256(b"").digest())]
    lines = (
        b"5 a.txt 1 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\n"
        b"3 d/b 0 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"
    )
    assert bundle_digest(entries) == hashlib.sha256(lines).digest()


@given(st.lists(st.tuples(st.binary(max_size=9), st.integers(0, 99)), max_size=4, unique=True))
def test_different_manifests_have_different_digests(rows: list[tuple[bytes, int]]) -> None:
    """No two lists of paths and sizes run together to the same digest, whatever bytes the paths hold."""
    entries = [Entry(path, size, SHA) for path, size in rows]
    moved = [Entry(entry.path + b" 1", entry.size, SHA) for entry in entries]
    if entries:
        assert bundle_digest(entries) != bundle_digest(moved)
        assert bundle_digest(entries) != bundle_digest(entries[:-1])


def _refusal(entries: list[Entry], limits: Limits | None = None, *, complete: bool = True) -> OutpostError:
    with pytest.raises(OutpostError) as caught:
        check_entries(entries, limits or Limits(), complete=complete)
    return caught.value


def test_all_unsafe_paths_are_named() -> None:
    """Every offender, not only the first; at most 32 named, all counted."""
    error = _refusal([Entry(b"../%d" % index, 1, SHA) for index in range(40)])
    assert (error.code, error.reason) == ("session", "unsafe_name")
    assert len(error.offenders) == 32
    assert error.offender_count == 40


@pytest.mark.parametrize(
    "entries",
    [
        [Entry(b"a", 1, SHA), Entry(b"a", 1, SHA)],
        [Entry(b"b", 1, SHA), Entry(b"a", 1, SHA)],
        [Entry(b"a", 1, SHA), Entry(b"a/b", 1, SHA)],
        [Entry(b"a", 1, b"short")],
        [Entry(b"a", 1)],
        [Entry(b"a", 2, SHA, from_offset=1)],
        [Entry(b"a", 2, SHA, from_offset=3)],
    ],
    ids=["duplicate", "disorder", "below a file", "short digest", "no digest", "partial", "beyond"],
)
def test_a_broken_manifest_is_a_protocol_error(entries: list[Entry]) -> None:
    """Duplicates, disorder, nesting, impossible numbers."""
    assert _refusal(entries).reason == "protocol"


def test_a_capture_may_send_parts_and_withhold_digests() -> None:
    """Unfinished captures: a tail, a whole without its digest yet, an unchanged file, an empty file."""
    entries = [
        Entry(b"a", 9, from_offset=4),
        Entry(b"b", 9),
        Entry(b"c", 9, SHA, from_offset=9),
        Entry(b"d", 0),
    ]
    check_entries(entries, Limits(), complete=False)


def test_unchanged_without_digest_is_refused() -> None:
    """An entry of which nothing is sent must say what it is."""
    assert _refusal([Entry(b"a", 9, from_offset=9)], complete=False).reason == "protocol"


def test_limits_hold_at_their_border() -> None:
    """The limit itself passes, one more does not; an empty bundle is refused."""
    limits = Limits(max_bytes=10, max_files=2)
    check_entries([Entry(b"a", 5, SHA), Entry(b"b", 5, SHA)], limits, complete=True)
    assert _refusal([Entry(b"a", 11, SHA)], limits).reason == "max_bytes"
    assert _refusal([Entry(name, 1, SHA) for name in (b"a", b"b", b"c")], limits).reason == "max_files"
    empty = _refusal([])
    assert isinstance(empty, SessionError)
    assert empty.reason == "empty"


def test_the_stricter_of_both_limits_wins() -> None:
    """Each number on its own."""
    assert Limits(5, 100).smaller(Limits(50, 10)) == Limits(5, 10)
    assert Limits() == Limits(64 * MIB, 4096)
    with pytest.raises(ConfigurationError) as caught:
        Limits(max_bytes=0)
    assert caught.value.reason == "invalid_argument"
    with pytest.raises(LimitError):
        Limits(max_bytes=1).check(bytes_count=2, files_count=1)


@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(0, 1 << 63)), max_size=9), st.binary(max_size=9))
def test_entries_are_counted_as_they_are_decoded(rows: list[tuple[bytes, int]], more: bytes) -> None:
    """The count before decoding is that of decoding; fields of a later version are passed over."""
    known = bundle_pb2.Manifest(entries=[bundle_pb2.ManifestEntry(path=path, size=size) for path, size in rows])
    # Fields 2 to 5: a number, 8 bytes, 4 bytes, any bytes.
    later = b"\x10\xff\x01" + b"\x19" + bytes(8) + b"\x25" + bytes(4) + b"\x2a" + bytes([len(more)]) + more
    packed = later + known.SerializeToString() + later
    assert len(unpack_manifest(packed)) == len(rows)
    assert wire._count_entries(packed, 100) == len(rows)


@given(st.binary(max_size=40))
def test_garbage_is_counted_without_an_error(data: bytes) -> None:
    """Whatever the bytes are: no fewer entries are counted than decoding makes."""
    count = wire._count_entries(data, 100)
    with suppress(SessionError):
        assert len(unpack_manifest(data)) <= count


def test_too_many_entries_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest manifest that four files may need could name millions of empty ones, at forty times its size."""
    monkeypatch.setattr(wire, "bundle_pb2", None)
    with pytest.raises(LimitError) as caught:
        unpack_manifest(b"\x0a\x00" * MIB, max_files=4)
    assert caught.value.reason == "max_files"
