"""Blocks of whole lines, wherever the pieces of the stream end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import LimitError
from host_client.session import line_block
from host_client.session.line_block import LineBlocks, part


@given(pieces=st.lists(st.text("a\n\r\u2028", max_size=40).map(str.encode)), block_bytes=st.integers(1, 32))
def test_blocks_are_the_lines_of_the_stream(pieces: list[bytes], block_bytes: int) -> None:
    """Nothing is lost; each block ends with a newline; what is left has none; a long line is a block of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_block, "BLOCK_BYTES", block_bytes)
        lines = LineBlocks()
        blocks = [block for piece in pieces for block in lines.feed(piece)]
    assert b"".join([*blocks, lines.rest]) == b"".join(pieces)
    assert b"\n" not in lines.rest
    for block in blocks:
        assert block.endswith(b"\n")
        if isinstance(block, bytearray):
            assert block.count(b"\n") == 1
        else:
            assert len(block) <= 2 * block_bytes


def test_a_part_that_is_the_whole_is_no_copy() -> None:
    """A very long line is looked at where it lies."""
    line = bytearray(b"abc")
    assert part(line, 0, 3) is line
    assert part(line, 1, 3) == b"bc"


def test_a_line_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who makes a file of holes does not get the memory of who reads it; lines up to the limit are lines."""
    monkeypatch.setattr(line_block, "MAX_LINE_BYTES", 1000)
    lines = LineBlocks()
    assert list(lines.feed(bytes(999) + b"\n")) == [bytes(999) + b"\n"]
    assert not list(lines.feed(bytes(1000)))
    with pytest.raises(LimitError) as caught:
        list(lines.feed(b"\0"))
    assert caught.value.reason == "max_bytes"
