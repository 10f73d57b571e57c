"""Payloads survive any split, and any damage to them is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_api.errors import LimitError, SessionError
from sandbox_api.framing import Batcher, PayloadCheck, Sections
from sandbox_api.limits import CHUNK_BYTES


def _batch(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    batcher = Batcher()
    chunks = []
    for piece in pieces:
        batcher.add(piece)
        chunks += batcher.full()
    chunks += batcher.rest()
    assert batcher.size == sum(map(len, pieces))
    return [(offset, b"".join(parts)) for offset, parts in chunks]


@given(st.lists(st.integers(0, 3 * CHUNK_BYTES), max_size=4), st.integers(0, 255))
def test_any_pieces_arrive_as_the_same_bytes_in_full_chunks(sizes: list[int], fill: int) -> None:
    """Chunks are contiguous, full but for the last, never empty, and join to what was added."""
    pieces = [bytes([fill ^ index]) * size for index, size in enumerate(sizes)]
    chunks = _batch(pieces)
    assert b"".join(data for _, data in chunks) == b"".join(pieces)
    assert [offset for offset, _ in chunks] == [CHUNK_BYTES * index for index in range(len(chunks))]
    assert all(len(data) == CHUNK_BYTES for _, data in chunks[:-1])
    assert all(data for _, data in chunks)


def test_many_small_files_share_a_message() -> None:
    """4,096 files of 1 KiB cost four messages."""
    assert len(_batch([b"x" * 1024] * 4096)) == 4


@given(st.binary(max_size=200), st.lists(st.integers(0, 50), max_size=8), st.integers(1, 40))
def test_sections_split_any_payload_at_their_boundaries(data: bytes, lengths: list[int], step: int) -> None:
    """Whatever the chunks, each section gets exactly its bytes, empty ones too, and the end is known."""
    total = sum(lengths)
    payload = (data * (total // max(len(data), 1) + 1))[:total].ljust(total, b"-")
    sections = Sections(lengths)
    got = [bytearray() for _ in lengths]
    ended: list[int] = []
    for chunk in [b"", *(payload[start : start + step] for start in range(0, total, step))]:
        for index, piece, last in sections.feed(chunk):
            got[index] += piece
            if last:
                ended.append(index)
    assert sections.done
    assert ended == list(range(len(lengths)))
    assert [len(part) for part in got] == lengths
    assert b"".join(got) == payload


@given(st.lists(st.integers(0, 9), max_size=4))
def test_bytes_after_the_last_section_are_refused(lengths: list[int]) -> None:
    """One byte too many is a broken protocol, not ignored."""
    sections = Sections(lengths)
    with pytest.raises(SessionError) as caught:
        list(sections.feed(b"x" * (sum(lengths) + 1)))
    assert caught.value.reason == "protocol"


def test_a_cut_payload_is_incomplete() -> None:
    """A trailer that speaks of more than what arrived is found."""
    check = PayloadCheck()
    check.accept(0, b"half")
    with pytest.raises(SessionError) as caught:
        check.finish(8)
    assert caught.value.reason == "incomplete"
    check.finish(4)


@pytest.mark.parametrize(
    ("offset", "data"),
    [(0, b"again"), (3, b"gap"), (5, b""), (5, b"x" * (CHUNK_BYTES + 1)), (2**63, b"x")],
    ids=["repeated", "gap", "empty", "oversized", "huge offset"],
)
def test_chunks_out_of_order_are_refused(offset: int, data: bytes) -> None:
    """Only the next chunk, of a legal size, is accepted."""
    check = PayloadCheck()
    check.accept(0, b"first")
    with pytest.raises(SessionError) as caught:
        check.accept(offset, data)
    assert caught.value.reason == "protocol"


def test_a_payload_longer_than_announced_is_refused() -> None:
    """Endless data ends at the announced size."""
    check = PayloadCheck(max_bytes=5)
    check.accept(0, b"12345")
    with pytest.raises(LimitError) as caught:
        check.accept(5, b"6")
    assert caught.value.reason == "max_bytes"
