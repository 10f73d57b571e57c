"""The bytes of a stored object: as documented, never the same twice, and any damage is found."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import LimitError, SessionError
from host_client.transports.contract import MAX_OBJECT_BYTES
from host_client.transports.frame import HEADER_BYTES, check_size, make_header, open_frame, revision_of

# "OUTPOST", version 1; sixteen bytes 0x11; 5; the digest of these and of the data; "hello".
VECTOR = bytes.fromhex(
    "4f5554504f535401"
    "11111111111111111111111111111111"
    "0000000000000005"
    "99b21a3d9ab482c2fd905556a6dca3ef587a3e2cd412aa71c875dee1a228bac8"
    "68656c6c6f"
)


def test_the_form_is_the_documented_one() -> None:
    """A stored object of today is read for ever: recorded bytes, and a digest made by hand."""
    assert open_frame("key", VECTOR) == b"hello"
    assert VECTOR[32:64] == hashlib.sha256(VECTOR[:32] + VECTOR[64:]).digest()
    assert revision_of(VECTOR) == "11" * 16


@given(st.binary(max_size=300))
def test_what_is_framed_is_opened(data: bytes) -> None:
    """Any data comes back."""
    header = make_header(data)
    assert len(header) == HEADER_BYTES
    assert open_frame("key", header + data) == data
    assert open_frame("key", memoryview(header + data)) == data


def test_no_header_is_made_twice() -> None:
    """Equal data has another header each time, and so another digest in any store."""
    headers = {make_header(b"same") for _ in range(100)}
    assert len(headers) == len({revision_of(header) for header in headers}) == 100


@given(st.binary(max_size=40), st.data())
def test_any_flipped_bit_is_found(data: bytes, draw: st.DataObject) -> None:
    """One flipped bit anywhere is a failure."""
    stored = bytearray(make_header(data) + data)
    bit = draw.draw(st.integers(0, len(stored) * 8 - 1))
    stored[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SessionError) as caught:
        open_frame("key", bytes(stored))
    assert caught.value.reason in ("digest_mismatch", "incomplete")


@given(st.binary(max_size=40), st.data())
def test_any_missing_end_is_told(data: bytes, draw: st.DataObject) -> None:
    """A truncation at any place is told as one."""
    stored = make_header(data) + data
    with pytest.raises(SessionError) as caught:
        open_frame("key", stored[: draw.draw(st.integers(0, len(stored) - 1))])
    assert (caught.value.code, caught.value.reason) == ("session", "incomplete")


def test_a_later_form_is_not_guessed_at() -> None:
    """Another version is no object of ours."""
    with pytest.raises(SessionError) as caught:
        open_frame("key", VECTOR.replace(b"\x01", b"\x02", 1))
    assert (caught.value.reason, "on its way" in caught.value.hint) == ("digest_mismatch", True)
    assert revision_of(b"no header") == revision_of(b"x" * HEADER_BYTES) == ""


def test_sizes_are_limited() -> None:
    """No object is larger than the limit, nor than its reader allows."""
    check_size("key", HEADER_BYTES + 10, 10)
    with pytest.raises(LimitError) as caught:
        check_size("key", HEADER_BYTES + 11, 10)
    assert caught.value.reason == "max_bytes"
    with pytest.raises(LimitError) as caught:
        make_header(bytes(MAX_OBJECT_BYTES + 1))
    assert caught.value.reason == "max_bytes"
