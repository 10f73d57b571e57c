"""Compressed transcripts: there and back, and what is no whole frame."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from host_client.session.compression import compressed, decompressed, is_compressed
from sandbox_api.errors import SessionError
from support.recorded import DATA

CONTENT = b'{"type":"session_meta"}\n' * 100


def split(data: bytes, step_bytes: int) -> list[bytes]:
    """Cut bytes into pieces."""
    return [data[start : start + step_bytes] for start in range(0, len(data), step_bytes)]


@given(st.binary(max_size=5000), st.integers(1, 3000), st.integers(1, 3000))
def test_there_and_back_is_the_identity(content: bytes, first_bytes: int, second_bytes: int) -> None:
    """However it is cut, equal content gives equal frames, and they give the content."""
    packed = b"".join(compressed(split(content, first_bytes)))
    assert packed == b"".join(compressed([content]))
    assert b"".join(decompressed(split(packed, second_bytes))) == content


def test_frames_follow_each_other() -> None:
    """A file of several frames is the content of all of them; the CLI appends so."""
    packed = zstandard.ZstdCompressor().compress(CONTENT)
    assert b"".join(decompressed([packed + packed])) == CONTENT * 2


def test_pieces_are_batched() -> None:
    """What comes out is in pieces large enough to send."""
    packed = b"".join(compressed([bytes(5 << 20)]))
    assert len(list(decompressed([packed]))) <= 5


@given(st.integers(0, len(zstandard.ZstdCompressor().compress(CONTENT)) - 1))
def test_a_file_that_was_cut_is_refused(size: int) -> None:
    """However little is missing, it is no content."""
    with pytest.raises(SessionError) as caught:
        b"".join(decompressed([zstandard.ZstdCompressor().compress(CONTENT)[:size]]))
    assert caught.value.reason == "corrupt"


@pytest.mark.parametrize("packed", [b"garbage, not a frame", zstandard.ZstdCompressor().compress(CONTENT) + b"more"])
def test_what_is_no_frame_is_refused(packed: bytes) -> None:
    """Bytes that are no frame, also behind one, are an error."""
    with pytest.raises(SessionError) as caught:
        b"".join(decompressed([packed]))
    assert caught.value.reason == "corrupt"


def test_a_rollout_that_codex_compressed_is_read() -> None:
    """What Codex 0.171.0 wrote decompresses to lines."""
    assert is_compressed(PurePosixPath("rollout.jsonl.zst"))
    assert not is_compressed(PurePosixPath("rollout.jsonl"))
    (packed,) = (DATA / "codex/0.171.0/compressed/home").rglob("*.jsonl.zst")
    content = b"".join(decompressed([packed.read_bytes()]))
    assert content.startswith(b"{")
    assert content.endswith(b"}\n")
