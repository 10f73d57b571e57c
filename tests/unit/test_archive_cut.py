"""Chunks of archives: a conversation that grows costs what it grew by, and equal content is stored once."""

from __future__ import annotations

import hashlib
import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_client.stores.archive_codec import Codec
from host_client.stores.archive_cut import (
    MAX_CUT_BYTES,
    MAX_SHARED_BYTES,
    MIN_CHUNK_BYTES,
    MIN_SHARED_BYTES,
    SEALED_BYTES,
    Chunk,
    Cutter,
    plan_streams,
)
from host_client.stores.archive_index import Index, Snapshot, encode_index, manifest_sha256, new_snapshot_id, now
from host_client.stores.archive_manifest import ChunkReference, FileReference, Manifest, Stream, encode_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KIB, MIB = 1 << 10, 1 << 20
CODEC = Codec()
SHA = "ab" * 32


def _lines(size: int, seed: int, line_bytes: int = 4096) -> bytes:
    """Return lines that cannot be compressed; the same ones for the same seed."""
    noise = random.Random(seed)  # noqa: S311 - no secret
    made = bytearray()
    while len(made) < size:
        count = min(size - len(made), line_bytes // 2 + noise.randrange(line_bytes))
        made += noise.randbytes(count - 1).replace(b"\n", b" ") + b"\n"
    return bytes(made)


BIG = _lines(8 * MIB, 1)


def _cut(data: bytes, predecessor: Sequence[ChunkReference] = (), step: int = MIB) -> list[Chunk]:
    pieces = (data[at : at + step] for at in range(0, len(data), step))
    chunks = list(Cutter(CODEC.object_name, predecessor).cut(pieces))
    assert b"".join(chunk.data for chunk in chunks) == data
    assert all(chunk.name == CODEC.object_name(chunk.data) for chunk in chunks)
    return chunks


def _references(chunks: Sequence[Chunk]) -> list[ChunkReference]:
    return [ChunkReference(chunk.name, len(chunk.data)) for chunk in chunks]


def _new_bytes(chunks: Sequence[Chunk], before: Sequence[Chunk]) -> int:
    known = {chunk.name for chunk in before}
    return sum(len(chunk.data) for chunk in chunks if chunk.name not in known)


def test_a_large_file_is_cut_at_its_lines() -> None:
    """Chunks have their sizes, and all but the last end with a line."""
    chunks = _cut(BIG)
    assert all(MIN_CHUNK_BYTES <= len(chunk.data) <= MAX_CUT_BYTES for chunk in chunks[:-1])
    assert all(chunk.data.endswith(b"\n") for chunk in chunks)
    assert 4 <= len(chunks) <= 16


@pytest.mark.parametrize("size", [1, MIN_CHUNK_BYTES, MAX_CUT_BYTES - 1, MAX_CUT_BYTES])
def test_what_fits_into_a_chunk_is_one(size: int) -> None:
    """Up to the largest size."""
    assert [len(chunk.data) for chunk in _cut(BIG[:size])] == [size]


def test_nothing_gives_no_chunk() -> None:
    """An empty file has none, after whatever predecessor."""
    assert _cut(b"") == _cut(b"", _references(_cut(BIG))) == []


@pytest.mark.parametrize(
    "data", [bytes(5 * MIB), b"\n" * (5 * MIB), b"ab\n" * (2 * MIB), b"x" * (3 * MIB) + b"\n" * 10]
)
def test_content_without_useful_lines_is_cut_all_the_same(data: bytes) -> None:
    """No lines, nothing but ends of lines, lines that are all alike: chunks keep their sizes."""
    assert all(MIN_CHUNK_BYTES <= len(chunk.data) <= MAX_CUT_BYTES for chunk in _cut(data)[:-1])


def test_an_insertion_costs_its_surroundings() -> None:
    """Whatever is put in front, or into the middle, the rest is found again, with and without a predecessor."""
    before = _cut(BIG)
    middle = BIG.index(b"\n", 4 * MIB) + 1
    for changed in (b"first\n" + BIG, BIG[:middle] + b"x" * 1000 + b"\n" + BIG[middle:], BIG[5000:]):
        for predecessor in ((), _references(before)):
            assert _new_bytes(_cut(changed, predecessor), before) <= 3 * MAX_CUT_BYTES // 2


def test_a_changed_first_line_costs_its_chunk() -> None:
    """All that comes after it is taken over from the predecessor."""
    before = _cut(BIG)
    chunks = _cut(b"changed" + BIG[7:], _references(before))
    assert [chunk.reference is None for chunk in chunks] == [True] + [False] * (len(before) - 1)


def test_equal_files_have_equal_chunks() -> None:
    """Two archives of one content share all of it; so does a snapshot that changed nothing."""
    before = _cut(BIG)
    assert _cut(BIG) == before
    again = _cut(BIG, _references(before))
    assert [chunk.reference for chunk in again] == _references(before)


@pytest.mark.parametrize("size", [100, SEALED_BYTES - 1, SEALED_BYTES, 300 * KIB])
def test_an_unchanged_file_is_taken_over_whole(size: int) -> None:
    """Its last chunk as well, however small."""
    before = _references(_cut(BIG[:size]))
    assert [chunk.reference for chunk in _cut(BIG[:size], before)] == before


def test_a_generation_is_told() -> None:
    """An object that was written again is taken over by the name that it has now."""
    again = [ChunkReference(f"{chunk.name}.00000001", len(chunk.data)) for chunk in _cut(BIG)]
    assert [chunk.reference for chunk in _cut(BIG, again)] == again


def test_what_is_appended_goes_on_with_a_small_last_chunk() -> None:
    """It is cut again while it has less than 64 KiB; a larger one is kept, and followed by a new one."""
    grown = _cut(BIG[: 30 * KIB + 10], _references(_cut(BIG[: 30 * KIB])))
    assert [len(chunk.data) for chunk in grown] == [30 * KIB + 10]
    grown = _cut(BIG[: SEALED_BYTES + 10], _references(_cut(BIG[:SEALED_BYTES])))
    assert [len(chunk.data) for chunk in grown] == [SEALED_BYTES, 10]
    assert [chunk.reference is None for chunk in grown] == [False, True]


def test_large_appends_give_large_chunks() -> None:
    """Turns of 100 KiB give chunks of some 400 KiB, each of which was sent again four times at most."""
    chunks: list[Chunk] = []
    sent_bytes = 0
    for size in range(100 * KIB, 4 * MIB, 100 * KIB):
        grown = _cut(BIG[:size], _references(chunks))
        sent_bytes += _new_bytes(grown, chunks)
        chunks = grown
    assert all(400 * KIB <= len(chunk.data) <= MIN_CHUNK_BYTES for chunk in chunks[:-1])
    assert sent_bytes <= 3 * 4 * MIB


def test_a_shorter_file_is_cut_anew_where_it_ends() -> None:
    """What both have in front is taken over."""
    before = _cut(BIG)
    shorter = _cut(BIG[: 5 * MIB], _references(before))
    assert [chunk.reference is None for chunk in shorter] == [False] * (len(shorter) - 1) + [True]


def test_a_predecessor_that_has_nothing_in_common_changes_nothing() -> None:
    """The chunks are those of a file without one."""
    other = _references(_cut(_lines(6 * MIB, 2)))
    assert _cut(BIG, other) == _cut(BIG)


def test_a_transcript_that_grows_costs_little_more_than_its_growth() -> None:
    """100 turns of 10 KiB each: at most 80 KiB for any, under ten times the growth in all, manifest and index included.

    The content cannot be compressed; most of it is there when the first snapshot is made.
    """
    turn_bytes, turns_count = 10 * KIB, 100
    whole = BIG[: 3 * MIB]
    start_bytes = len(whole) - turn_bytes * turns_count
    chunks, index, known, costs = [], None, set(), []
    for turn in range(turns_count + 1):
        chunks = _cut(whole[: start_bytes + turn * turn_bytes], _references(chunks))
        added = {chunk.name: len(CODEC.encode(chunk.data, about="data")) for chunk in chunks if chunk.name not in known}
        known.update(added)
        digest = hashlib.sha256(b"%d" % turn).hexdigest()
        file = FileReference("a", sum(len(chunk.data) for chunk in chunks), digest)
        made = {"snapshot_id": new_snapshot_id(now()), "digest": digest, "created_at": now()}
        stream = Stream((file,), tuple(_references(chunks)))
        manifest = Manifest(format="claude", conversation_id="x", source="/a", streams=(stream,), **made)
        stored = encode_manifest(manifest, CODEC, about="manifest")
        snapshot = Snapshot(
            parent=index.head.snapshot_id if index else "",
            manifest_sha256=manifest_sha256(stored),
            files_count=1,
            bytes_count=file.size,
            added_bytes=sum(added.values()),
            **made,
        )
        index = (
            index.with_snapshot(snapshot)
            if index
            else Index(format="claude", namespace="n", id="x", native_id="x", entries=(snapshot,))
        )
        costs.append(sum(added.values()) + len(stored) + len(encode_index(index, CODEC, about="index")))
    assert max(costs[1:]) <= 90 * KIB
    assert sum(costs[1:]) <= 6 * turn_bytes * turns_count
    # What restoring takes does not grow with the number of snapshots: one more chunk for each 64 KiB.
    assert len(chunks) - len(_cut(whole)) <= turn_bytes * turns_count // SEALED_BYTES
    assert all(len(chunk.data) >= SEALED_BYTES for chunk in chunks[:-1])


@settings(max_examples=15)
@given(
    sizes=st.lists(st.integers(0, 3 * MIB), max_size=8),
    start=st.sampled_from([0, 10 * KIB, 100 * KIB, 400 * KIB, 3 * MIB, 5 * MIB - 100 * KIB, 5 * MIB]),
    shift=st.sampled_from([0, 1, 5000]),
)
def test_how_bytes_arrive_changes_nothing(sizes: list[int], start: int, shift: int) -> None:
    """Whatever the pieces, empty ones as well, the chunks are the same, after the same predecessor."""
    predecessor = _references(_cut(BIG[:start]))
    data = BIG[shift : 5 * MIB]
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    pieces.append(data[at:])
    assert list(Cutter(CODEC.object_name, predecessor).cut(pieces)) == _cut(data, predecessor)


@settings(max_examples=20)
@given(
    turns=st.lists(
        st.tuples(st.integers(0, 3 * MIB), st.integers(0, 200 * KIB), st.integers(0, 300 * KIB)), min_size=1, max_size=5
    )
)
def test_any_history_is_kept_whole(turns: list[tuple[int, int, int]]) -> None:
    """Whatever is removed and put in from turn to turn: no byte is lost, and references are the predecessor's."""
    data, chunks = BIG[: 2 * MIB], _cut(BIG[: 2 * MIB])
    for place, removed, added in turns:
        before = _references(chunks)
        data = data[:place] + BIG[-added - 1 : -1] + data[place + removed :]
        chunks = _cut(data, before)
        assert {chunk.reference for chunk in chunks if chunk.reference} <= set(before)
        assert all(
            (chunk.reference.name, chunk.reference.size) == (chunk.name, len(chunk.data))
            for chunk in chunks
            if chunk.reference
        )


def test_memory_is_bounded() -> None:
    """A chunk is given as soon as the one after it may have begun."""
    taken = 0

    def pieces() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(64):
            taken += MIB // 2
            yield BIG[: MIB // 2]

    given_bytes = 0
    for chunk in Cutter(CODEC.object_name).cut(pieces()):
        assert taken - given_bytes <= MAX_CUT_BYTES + MIB
        given_bytes += len(chunk.data)
    assert given_bytes == taken == 32 * MIB


def _files(*sizes: int) -> list[FileReference]:
    return [FileReference(f"d/{number:05}", size, SHA) for number, size in enumerate(sizes)]


def _sizes(files: Sequence[FileReference]) -> list[int]:
    return [sum(file.size for file in stream) for stream in plan_streams(files)]


def test_small_files_share_streams() -> None:
    """4,096 files of 4 KiB are some hundred objects, each of them small enough to be cheap when one file changes."""
    sizes = _sizes(_files(*[4096] * 4096))
    assert 64 <= len(sizes) <= 256
    assert all(MIN_SHARED_BYTES <= size <= MAX_SHARED_BYTES for size in sizes[:-1])


def test_a_large_file_has_its_own_stream() -> None:
    """Those in front of it and those behind it do not share one, so that all are in the order of their paths."""
    assert _sizes(_files(1, 2, SEALED_BYTES, SEALED_BYTES, SEALED_BYTES - 1, 0)) == [
        3,
        SEALED_BYTES,
        SEALED_BYTES,
        SEALED_BYTES - 1,
    ]


def test_empty_files_have_streams_without_bytes() -> None:
    """As many as there are."""
    assert _sizes(_files(*[0] * 5000)) == [0]
    assert list(plan_streams([])) == []


@given(st.lists(st.sampled_from([0, 1, 5000, 40_000, SEALED_BYTES - 1, SEALED_BYTES, MIB]), max_size=40))
def test_streams_are_all_files_in_order(sizes: list[int]) -> None:
    """None is lost, none is empty, and what several files share is one chunk."""
    files = _files(*sizes)
    streams = list(plan_streams(files))
    assert [file for stream in streams for file in stream] == files
    assert all(streams)
    assert all(len(stream) == 1 or sum(file.size for file in stream) <= MAX_SHARED_BYTES for stream in streams)


def test_a_new_file_moves_few_streams() -> None:
    """One that comes, grows or goes changes what it shares a stream with, and soon no more."""
    before = _files(*[4096] * 2000)
    for after in (before[:700] + before[701:], [*before[:700], FileReference("d/00699x", 100, SHA), *before[700:]]):
        lost = set(plan_streams(before)) - set(plan_streams(after))
        assert 1 <= len(lost) <= 6
    grown = [FileReference(file.path, 9000 if number == 700 else 4096, SHA) for number, file in enumerate(before)]
    moved = set(plan_streams(before)) ^ set(plan_streams(grown))
    assert 2 <= len(moved) <= 12
    assert all(one != other for one, other in pairwise(plan_streams(grown)))
