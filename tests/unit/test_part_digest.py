"""The digest of a stream in parts."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from host_client.session.part_digest import PartDigest


def _expected(content: bytes, part_bytes: int) -> list[tuple[int, bytes]]:
    pieces = [content[at : at + part_bytes] for at in range(0, len(content), part_bytes)]
    return [(len(piece), hashlib.sha256(piece).digest()) for piece in pieces]


@given(
    pieces=st.lists(st.lists(st.sampled_from([b"a", b"b", b"\n"]), max_size=12).map(b"".join), max_size=8),
    part_bytes=st.integers(1, 9),
)
def test_parts_do_not_depend_on_how_the_stream_comes(pieces: list[bytes], part_bytes: int) -> None:
    """Every part has its own digest; the lines end at the last newline, and the end covers the digests in order."""
    digest = PartDigest(part_bytes)
    for piece in pieces:
        digest.update(piece)
    content = b"".join(pieces)
    expected = _expected(content, part_bytes)
    assert list(digest.parts) == expected
    assert list(digest.line_parts) == _expected(content[: content.rfind(b"\n") + 1], part_bytes)
    assert digest.digest() == hashlib.sha256(b"".join(sha256 for _, sha256 in expected)).digest()
