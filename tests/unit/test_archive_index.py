"""Indexes of archived conversations: they count for their own conversation only; no manifest can be swapped."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import ConfigurationError, SessionError
from host_client.stores.archive_codec import Codec
from host_client.stores.archive_index import (
    Index,
    Origin,
    Snapshot,
    decode_index,
    encode_index,
    manifest_sha256,
    new_snapshot_id,
    now,
    read_manifest,
)
from host_client.stores.archive_manifest import ChunkReference, FileReference, Manifest, Stream, encode_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

CODEC = Codec()
ABOUT = "conversations/n/claude/x/index"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SHA = "ab" * 32


def _id(number: int) -> str:
    return f"{number:032x}"


def _snapshot(number: int, parent: int | None = None, **more: Any) -> Snapshot:
    return Snapshot(
        snapshot_id=_id(number),
        parent="" if parent is None else _id(parent),
        digest=SHA,
        manifest_sha256=hashlib.sha256(b"%d" % number).hexdigest(),
        created_at=AT + timedelta(seconds=number),
        files_count=1,
        bytes_count=10,
        added_bytes=20,
        **more,
    )


def _index(*entries: Snapshot) -> Index:
    return Index(format="claude", namespace="n", id="x", native_id="native", entries=entries)


def _decode(data: bytes, format_name: str = "claude", namespace: str = "n", archive_id: str = "x") -> Index:
    stored = CODEC.encode(data, about=ABOUT)
    return decode_index(stored, CODEC, about=ABOUT, format_name=format_name, namespace=namespace, archive_id=archive_id)


def _told(index: Index) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(msgspec.json.encode(index))
    return told


def _refused(told: dict[str, Any]) -> str:
    with pytest.raises(SessionError) as caught:
        _decode(json.dumps(told).encode())
    assert caught.value.reason == "corrupt"
    return caught.value.message


def test_an_index_is_read_back() -> None:
    """Snapshots in their order, the newest at the end, with all that is known of them."""
    index = _index(_snapshot(1, origin=Origin("other", _id(9))), _snapshot(2, 1, diverged=True), _snapshot(3, 2))
    assert _decode(msgspec.json.encode(index)) == index
    assert index.head == index.entries[-1]
    assert index.with_snapshot(_snapshot(4, 3)).head.snapshot_id == _id(4)


@pytest.mark.parametrize(
    "other", [{"format_name": "codex"}, {"namespace": "m"}, {"archive_id": "y"}, {"archive_id": "native"}]
)
def test_an_index_in_another_place_is_refused(other: dict[str, str]) -> None:
    """An index that was copied to another conversation, format or namespace does not count there."""
    with pytest.raises(SessionError, match="another conversation") as caught:
        _decode(msgspec.json.encode(_index(_snapshot(1))), **other)
    assert caught.value.reason == "corrupt"


@pytest.mark.parametrize(
    "entries",
    [
        [_snapshot(1, 2), _snapshot(2)],
        [_snapshot(1, 1)],
        [_snapshot(1), _snapshot(2, 7)],
        [_snapshot(1), _snapshot(1)],
        [_snapshot(1), _snapshot(2, 1), _snapshot(1)],
    ],
)
def test_parents_come_first_and_ids_once(entries: list[Snapshot]) -> None:
    """No snapshot is its own ancestor, none has an unknown parent, none is there twice."""
    assert "snapshot" in _refused(_told(_index(*entries)))


@pytest.mark.parametrize("place", range(8))
def test_every_part_of_a_snapshot_is_needed(place: int) -> None:
    """One that is shorter, or has another type somewhere, is refused."""
    told = _told(_index(_snapshot(1)))
    told["entries"][0] = told["entries"][0][:place]
    _refused(told)
    told = _told(_index(_snapshot(1)))
    told["entries"][0][place] = []
    _refused(told)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 0),
        ("entries", []),
        ("native_id", "a/b"),
        ("native_id", ""),
        ("format", None),
        ("entries", {"x": 1}),
    ],
)
def test_an_index_that_cannot_be_is_refused(key: str, value: object) -> None:
    """Ids by their rule, at least one snapshot."""
    _refused({**_told(_index(_snapshot(1))), key: value})


@pytest.mark.parametrize(("format_name", "archive_id"), [(".x", "x"), ("claude", "a.b"), ("claude", "")])
def test_ids_that_no_conversation_has_are_refused(format_name: str, archive_id: str) -> None:
    """Even where somebody asks for them."""
    told = {**_told(_index(_snapshot(1))), "format": format_name, "id": archive_id}
    with pytest.raises(SessionError, match="unusable ids"):
        _decode(json.dumps(told).encode(), format_name, "n", archive_id)


def test_a_newer_index_is_named() -> None:
    """It is not taken for damage."""
    with pytest.raises(ConfigurationError, match="newer Outpost") as caught:
        _decode(b'{"version":2}')
    assert caught.value.reason == "not_supported"


def test_ten_thousand_snapshots_are_no_trouble() -> None:
    """They are read and written, and each costs about a hundred bytes: two digests and a random id."""
    entries = []
    for number in range(10_000):
        digest = hashlib.sha256(b"d%d" % number).hexdigest()
        parent = entries[-1].snapshot_id if entries else ""
        entry = msgspec.structs.replace(
            _snapshot(number), snapshot_id=new_snapshot_id(AT + timedelta(minutes=number)), parent=parent, digest=digest
        )
        entries.append(entry)
    stored = encode_index(_index(*entries), CODEC, about=ABOUT)
    assert 90 < len(stored) / len(entries) < 115
    read = decode_index(stored, CODEC, about=ABOUT, format_name="claude", namespace="n", archive_id="x")
    assert read.entries == tuple(entries)


def test_pruned_snapshots_leave_their_ancestors_as_parents() -> None:
    """The nearest one that stays is the parent of what came after; the newest always stays."""
    index = _index(_snapshot(1), _snapshot(2, 1), _snapshot(3, 2), _snapshot(4, 2), _snapshot(5, 3))
    pruned = index.without({_id(2), _id(3), _id(5)})
    assert [(entry.snapshot_id, entry.parent) for entry in pruned.entries] == [
        (_id(1), ""),
        (_id(4), _id(1)),
        (_id(5), _id(1)),
    ]
    assert [entry.parent for entry in index.without({_id(1)}).entries] == ["", _id(2), _id(2), _id(3)]
    assert index.without(()) == index


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=12).map(
        lambda parents: [None if parent >= place else parent for place, parent in enumerate(parents)]
    ),
    st.sets(st.integers(0, 12)),
)
def test_a_pruned_index_is_always_valid(parents: Sequence[int | None], going: set[int]) -> None:
    """Whatever the lines of history were and whatever goes."""
    index = _index(*(_snapshot(place, parent) for place, parent in enumerate(parents)))
    pruned = index.without({_id(number) for number in going})
    assert _decode(msgspec.json.encode(pruned)) == pruned
    assert pruned.head.snapshot_id == index.head.snapshot_id
    assert {entry.snapshot_id for entry in pruned.entries[:-1]} == {
        entry.snapshot_id for entry in index.entries[:-1]
    } - {_id(number) for number in going}


def test_snapshot_ids_sort_by_time() -> None:
    """And never meet."""
    ids = [new_snapshot_id(AT + timedelta(days=day)) for day in range(0, 25_000, 1000)]
    assert ids == sorted(ids)
    assert new_snapshot_id(AT) != new_snapshot_id(AT)
    assert all(len(snapshot_id) == 32 for snapshot_id in ids)
    assert now().tzinfo is UTC
    assert now().microsecond == 0


MANIFEST = Manifest(
    snapshot_id=_id(1),
    format="claude",
    conversation_id="native",
    source="/a",
    digest=SHA,
    created_at=AT,
    streams=(Stream((FileReference("a", 10, SHA),), (ChunkReference(SHA, 10),)),),
)


def _read(manifest: Manifest, snapshot: Snapshot, *, is_named: bool = True) -> Manifest:
    stored = encode_manifest(manifest, CODEC, about="m")
    if is_named:
        snapshot = msgspec.structs.replace(snapshot, manifest_sha256=manifest_sha256(stored))
    return read_manifest(stored, CODEC, about="m", index=_index(snapshot), snapshot=snapshot)


def test_an_index_accepts_its_own_manifest_only() -> None:
    """Another one in its place, undamaged in itself, is refused."""
    assert _read(MANIFEST, _snapshot(1)) == MANIFEST
    with pytest.raises(SessionError) as caught:
        _read(MANIFEST, _snapshot(1), is_named=False)
    assert caught.value.reason == "digest_mismatch"


@pytest.mark.parametrize(
    "change",
    [
        {"snapshot_id": _id(2)},
        {"format": "codex"},
        {"conversation_id": "x"},
        {"digest": "cd" * 32},
        {"streams": (Stream((FileReference("a", 9, SHA),), (ChunkReference(SHA, 9),)),)},
        {"streams": (Stream((FileReference("a", 10, SHA), FileReference("b", 0, SHA)), (ChunkReference(SHA, 10),)),)},
    ],
)
def test_manifest_and_index_say_the_same(change: dict[str, Any]) -> None:
    """Id, format, conversation, digest, number of files and bytes."""
    with pytest.raises(SessionError, match="something else") as caught:
        _read(msgspec.structs.replace(MANIFEST, **change), _snapshot(1))
    assert caught.value.reason == "corrupt"
