"""Manifests of snapshots: read back as written, and refused when a rule of theirs is broken."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import ConfigurationError, LimitError, SessionError
from host_client.stores import archive_manifest
from host_client.stores.archive_codec import Codec
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.archive_manifest import (
    MAX_CHUNK_BYTES,
    ChunkReference,
    FileReference,
    Manifest,
    Stream,
    decode_manifest,
    encode_manifest,
)
from sandbox_api.limits import MAX_FILES_COUNT

CODEC = Codec()
ABOUT = "conversations/n/claude/x/snapshots/" + "0" * 32
SHA = "ab" * 32
WHOLE: dict[str, Any] = {
    "version": 1,
    "snapshot_id": "0123456789abcdef" * 2,
    "format": "claude",
    "conversation_id": "x",
    "source": "/home/a/session",
    "digest": SHA,
    "created_at": "2026-01-02T03:04:05Z",
    "streams": [
        {"files": [["a", 3, SHA], ["b/c", 4, SHA]], "chunks": [[SHA, 7]]},
        {"files": [["big", 90, SHA]], "chunks": [[SHA, 50], [f"{SHA}.00000001", 40]]},
        {"files": [["empty", 0, SHA]], "chunks": []},
    ],
}


def _decode(told: object) -> Manifest:
    return decode_manifest(CODEC.encode(json.dumps(told).encode(), about=ABOUT), CODEC, about=ABOUT)


def _refused(told: object) -> str:
    with pytest.raises(SessionError) as caught:
        _decode(told)
    assert caught.value.reason == "corrupt"
    assert caught.value.facts["key"] == ABOUT
    return caught.value.message


@pytest.mark.parametrize("codec", [CODEC, Codec(ArchiveKey(b"k" * 32))])
def test_a_manifest_is_read_back(codec: Codec) -> None:
    """All that was written is there again."""
    manifest = _decode(WHOLE)
    assert manifest.created_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert decode_manifest(encode_manifest(manifest, codec, about=ABOUT), codec, about=ABOUT) == manifest


def test_a_manifest_tells_files_and_chunks() -> None:
    """In order; what a file has for itself; and every object by its content, with its generation."""
    manifest = _decode(WHOLE)
    assert [file.path for file in manifest.files] == ["a", "b/c", "big", "empty"]
    assert [chunk.size for chunk in manifest.chunks] == [7, 50, 40]
    assert manifest.chunks_of("big") == (ChunkReference(SHA, 50), ChunkReference(f"{SHA}.00000001", 40))
    assert manifest.chunks_of("a") == manifest.chunks_of("nothing") == ()
    assert manifest.references == {SHA: ChunkReference(f"{SHA}.00000001", 40)}
    assert next(iter(manifest.files)).entry == (b"a", 3, bytes.fromhex(SHA), 0)


@pytest.mark.parametrize("key", WHOLE)
def test_every_key_is_needed(key: str) -> None:
    """A manifest without one of them is refused, and so is one with another type in its place."""
    _refused({name: value for name, value in WHOLE.items() if name != key})
    for wrong in (None, [], {}, 1.5, True):
        _refused({**WHOLE, key: wrong})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 0),
        ("version", -1),
        ("snapshot_id", "0123456789abcdef"),
        ("snapshot_id", "0123456789ABCDEF" * 2),
        ("snapshot_id", "0123456789abcdef" * 2 + "\n"),
        ("digest", "ab"),
        ("digest", SHA.upper()),
        ("created_at", "yesterday"),
        ("created_at", "2026-01-02T03:04:05"),
        ("source", "x" * 4097),
        ("streams", []),
        ("streams", [{"files": [], "chunks": []}]),
    ],
)
def test_a_value_that_cannot_be_is_refused(key: str, value: object) -> None:
    """Ids, digests and times have their form; there is at least one file."""
    _refused({**WHOLE, key: value})


@pytest.mark.parametrize(
    ("files", "chunks"),
    [
        ([["a", 3, SHA]], [[SHA, 4]]),
        ([["a", 3, SHA]], []),
        ([["a", 0, SHA]], [[SHA, 0]]),
        ([["a", 3, SHA]], [[SHA, 4], [SHA, -1]]),
        ([["a", -1, SHA], ["b", 2, SHA]], [[SHA, 1]]),
        ([["a", 1 << 60, SHA]], [[SHA, 1 << 60]]),
        ([["a", MAX_CHUNK_BYTES + 1, SHA]], [[SHA, MAX_CHUNK_BYTES + 1]]),
        ([["a", 3.0, SHA]], [[SHA, 3]]),
        ([["a", "3", SHA]], [[SHA, 3]]),
        ([["a", 3]], [[SHA, 3]]),
        ([["a", 3, "short"]], [[SHA, 3]]),
        ([["a", 3, SHA]], [["short", 3]]),
        ([["a", 3, SHA]], [[f"{SHA}.x", 3]]),
        ([["a", 3, SHA]], [[f"../{SHA}"[:64], 3]]),
        ([["", 3, SHA]], [[SHA, 3]]),
        ([["../a", 3, SHA]], [[SHA, 3]]),
        ([["/a", 3, SHA]], [[SHA, 3]]),
        ([["a/./b", 3, SHA]], [[SHA, 3]]),
        ([[".git/config", 3, SHA]], [[SHA, 3]]),
        ([["a\\b", 3, SHA]], [[SHA, 3]]),
        ([["a\0", 3, SHA]], [[SHA, 3]]),
        ([["\ud800", 3, SHA]], [[SHA, 3]]),
        ([["x" * 256, 3, SHA]], [[SHA, 3]]),
        ([["b", 1, SHA], ["a", 1, SHA]], [[SHA, 2]]),
        ([["a", 1, SHA], ["a", 1, SHA]], [[SHA, 2]]),
        ([["a", 1, SHA], ["a/b", 1, SHA]], [[SHA, 2]]),
    ],
)
def test_files_that_cannot_be_are_refused(files: list[Any], chunks: list[Any]) -> None:
    """Sizes that do not add up, names no chunk can have, paths that no bundle may have, and wrong orders."""
    _refused({**WHOLE, "streams": [{"files": files, "chunks": chunks}]})


def test_order_holds_across_streams() -> None:
    """A path may not be twice, nor out of order, in different streams."""
    stream = {"files": [["a", 1, SHA]], "chunks": [[SHA, 1]]}
    before = {"files": [["B", 1, SHA]], "chunks": [[SHA, 1]]}
    assert "paths" in _refused({**WHOLE, "streams": [stream, stream]})
    assert "paths" in _refused({**WHOLE, "streams": [stream, before]})
    assert len(_decode({**WHOLE, "streams": [before, stream]}).streams) == 2


def test_too_many_files_are_refused() -> None:
    """As many as a conversation may have are read."""

    def stream(count: int) -> dict[str, Any]:
        return {"files": [[f"{number:06}", 0, SHA] for number in range(count)], "chunks": []}

    assert len(list(_decode({**WHOLE, "streams": [stream(MAX_FILES_COUNT)]}).files)) == MAX_FILES_COUNT
    assert "too many" in _refused({**WHOLE, "streams": [stream(MAX_FILES_COUNT + 1)]})


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[1]", b'"x"', b"\xff", b'{"version":1', b"[" * 100_000])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    """Whatever the bytes."""
    with pytest.raises(SessionError) as caught:
        decode_manifest(CODEC.encode(data, about=ABOUT), CODEC, about=ABOUT)
    assert caught.value.reason == "corrupt"


@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda some: st.lists(some, max_size=3), max_leaves=9)
)
def test_no_streams_break_the_reader(value: object) -> None:
    """Any other value in their place is a refusal and no other failure."""
    _refused({**WHOLE, "streams": value})


def test_unknown_keys_are_passed_over() -> None:
    """What a later version adds without changing the rest."""
    assert _decode({**WHOLE, "more": {"of": ["it"]}}) == _decode(WHOLE)


def test_a_newer_version_is_named() -> None:
    """Whatever else it holds."""
    with pytest.raises(ConfigurationError, match="newer Outpost, in version 2") as caught:
        _decode({"version": 2, "all": "new"})
    assert caught.value.reason == "not_supported"


def test_a_manifest_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be larger is neither written nor unpacked."""
    manifest = _decode(WHOLE)
    stored = encode_manifest(manifest, CODEC, about=ABOUT)
    monkeypatch.setattr(archive_manifest, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(LimitError) as caught:
        encode_manifest(manifest, CODEC, about=ABOUT)
    assert caught.value.reason == "max_manifest_bytes"
    with pytest.raises(SessionError, match="more than 100 bytes"):
        decode_manifest(stored, CODEC, about=ABOUT)


def test_a_manifest_costs_little() -> None:
    """A hundred chunks take under 5 KB: a digest cannot be made smaller than it is."""
    chunks = tuple(ChunkReference(Codec().object_name(bytes([number])), 1 << 20) for number in range(100))
    stream = Stream((FileReference("a", 100 << 20, SHA),), chunks)
    manifest = Manifest(**{**WHOLE, "created_at": datetime.now(UTC), "streams": (stream,)})
    assert len(encode_manifest(manifest, CODEC, about=ABOUT)) < 5000
