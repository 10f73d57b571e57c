"""Archived objects: decoded is what was encoded, for that place, with that key, and no larger than asked for."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import ConfigurationError, LimitError, OutpostError, SessionError
from host_client.stores.archive_codec import HEAD_BYTES, MAX_OVERHEAD_BYTES, Codec
from host_client.stores.archive_key import ArchiveKey

KEY, OTHER = ArchiveKey(b"k" * 32), ArchiveKey(b"o" * 32)
PLAIN, ENCRYPTED = Codec(), Codec(KEY)
CODECS = [PLAIN, ENCRYPTED, Codec(compress=False), Codec(KEY, compress=False)]
TEXT = b'{"type":"user"}\n' * 100
ABOUT = "data/n/ab/abc"
BOUND_BYTES = HEAD_BYTES - 4


def _with_checksum(stored: bytes) -> bytes:
    """Return a changed object as somebody would write it who wants it to look undamaged."""
    checksum = zlib.crc32(stored[:BOUND_BYTES] + stored[HEAD_BYTES:])
    return stored[:BOUND_BYTES] + struct.pack(">I", checksum) + stored[HEAD_BYTES:]


def _plain_object(body: bytes, *, version: int = 1, flags: int = 0) -> bytes:
    return _with_checksum(b"OUTPOSTA" + bytes([version, flags]) + bytes(12) + body)


def _refusal(codec: Codec, stored: bytes, about: str = ABOUT, max_bytes: int = 1 << 20) -> tuple[str, str]:
    with pytest.raises(OutpostError) as caught:
        codec.decode(stored, about=about, max_bytes=max_bytes)
    assert caught.value.facts["key"] == about
    return caught.value.code, caught.value.reason


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.one_of(st.binary(max_size=300), st.builds(lambda data: data * 50, st.binary(max_size=30))))
def test_what_was_encoded_is_decoded(codec: Codec, data: bytes) -> None:
    """Empty, repeated and random content alike, and it never takes more than the documented bytes beside it."""
    stored = codec.encode(data, about=ABOUT)
    assert codec.decode(stored, about=ABOUT, max_bytes=len(data)) == data
    assert len(stored) <= len(data) + MAX_OVERHEAD_BYTES


@pytest.mark.parametrize("key", [None, KEY])
def test_content_is_compressed_only_where_that_helps(key: ArchiveKey | None) -> None:
    """Text becomes smaller, random bytes are stored as they are, and each kind is read by a codec of the other."""
    packing, copying, noise = Codec(key), Codec(key, compress=False), os.urandom(1000)
    assert len(packing.encode(TEXT, about=ABOUT)) < len(TEXT) // 4
    assert len(packing.encode(noise, about=ABOUT)) == len(copying.encode(noise, about=ABOUT))
    assert copying.decode(packing.encode(TEXT, about=ABOUT), about=ABOUT, max_bytes=len(TEXT)) == TEXT
    assert packing.decode(copying.encode(TEXT, about=ABOUT), about=ABOUT, max_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit_is_found(codec: Codec) -> None:
    """Damage anywhere, in the version's byte as well, is called damage and nothing else."""
    stored = codec.encode(b"content content content", about=ABOUT)
    for place in range(8 * len(stored)):
        damaged = bytearray(stored)
        damaged[place // 8] ^= 1 << place % 8
        assert _refusal(codec, bytes(damaged)) == ("session", "corrupt")


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_found(codec: Codec) -> None:
    """So is whatever follows an object."""
    stored = codec.encode(b"content content content", about=ABOUT)
    for size in range(len(stored)):
        assert _refusal(codec, stored[:size]) == ("session", "corrupt")
    assert _refusal(codec, stored + b"\0") == ("session", "corrupt")


def test_every_change_by_somebody_without_the_key_is_found() -> None:
    """An encrypted object that was changed and looks undamaged is called tampered; the head is bound as well."""
    stored = ENCRYPTED.encode(TEXT, about=ABOUT)
    for place in range(HEAD_BYTES, len(stored)):
        changed = bytearray(stored)
        changed[place] ^= 1
        assert _refusal(ENCRYPTED, _with_checksum(bytes(changed))) == ("session", "tampered")
    changed = bytearray(stored)
    changed[9] ^= 1  # whether it is compressed
    assert _refusal(ENCRYPTED, _with_checksum(bytes(changed))) == ("session", "tampered")


def test_an_encrypted_object_counts_in_its_place_only() -> None:
    """Moved to another key it is called tampered."""
    stored = ENCRYPTED.encode(TEXT, about=ABOUT)
    assert _refusal(ENCRYPTED, stored, "data/n/ab/other") == ("session", "tampered")


def test_an_encrypted_object_too_short_for_its_nonce_is_refused() -> None:
    """Also when it looks undamaged."""
    stored = ENCRYPTED.encode(TEXT, about=ABOUT)
    assert _refusal(ENCRYPTED, _with_checksum(stored[: HEAD_BYTES + 27])) == ("session", "corrupt")


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        (ENCRYPTED, PLAIN, "is encrypted with the key"),
        (ENCRYPTED, Codec(OTHER), "not with"),
        (PLAIN, ENCRYPTED, "is not encrypted"),
    ],
)
def test_the_wrong_key_is_told_from_damage(writer: Codec, reader: Codec, message: str) -> None:
    """None given, another one given, one given for what is not encrypted; the ids of keys are named."""
    stored = writer.encode(TEXT, about=ABOUT)
    with pytest.raises(ConfigurationError, match=message) as caught:
        reader.decode(stored, about=ABOUT, max_bytes=len(TEXT))
    assert caught.value.reason == "wrong_key"
    assert caught.value.hint
    assert caught.value.facts["key_id"] == (writer.key_id or bytes(8).hex())


def test_equal_contents_have_one_name() -> None:
    """Without a key it is their SHA-256; with one, only who has the key can tell."""
    assert PLAIN.object_name(TEXT) == hashlib.sha256(TEXT).hexdigest()
    assert ENCRYPTED.object_name(TEXT) == Codec(ArchiveKey(KEY.secret)).object_name(TEXT)
    names = {codec.object_name(TEXT) for codec in (PLAIN, ENCRYPTED, Codec(OTHER))}
    assert len(names) == 3
    assert PLAIN.key_id == ""
    assert ENCRYPTED.key_id == KEY.key_id.hex()


def test_encryption_hides_contents_and_differs_each_time() -> None:
    """Nothing of a content that does not compress is in the stored bytes, and equal ones are stored differently."""
    noise = os.urandom(100)
    one, other = (ENCRYPTED.encode(noise, about=ABOUT) for _ in range(2))
    assert noise[:16] not in one
    assert one != other


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_was_asked_for_is_refused(codec: Codec) -> None:
    """Compressed or not, before it is unpacked."""
    stored = codec.encode(bytes(1 << 20), about=ABOUT)
    with pytest.raises(LimitError) as caught:
        codec.decode(stored, about=ABOUT, max_bytes=(1 << 20) - 1)
    assert caught.value.reason == "max_bytes"


def test_a_bomb_is_not_unpacked() -> None:
    """A frame that does not say its size, or says a smaller one, or two frames: all are refused."""
    content = bytes(1 << 20)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(content)
    assert _refusal(PLAIN, _plain_object(unsized, flags=1)) == ("session", "corrupt")
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(content)
    assert _refusal(PLAIN, _plain_object(frame + frame, flags=1), max_bytes=8 << 20) == ("session", "corrupt")
    at = frame.index(struct.pack("<I", 1 << 20))
    lying = frame[:at] + struct.pack("<I", 1000 << 10) + frame[at + 4 :]
    assert _refusal(PLAIN, _plain_object(lying, flags=1)) == ("session", "corrupt")


@pytest.mark.parametrize("body", [b"", b"no frame at all", b"\x28\xb5\x2f\xfd"])
def test_what_is_no_frame_is_refused(body: bytes) -> None:
    """A flag alone makes nothing compressed."""
    assert _refusal(PLAIN, _plain_object(body, flags=1)) == ("session", "corrupt")


def test_what_is_not_ours_is_refused() -> None:
    """Other programs' objects, and flags that do not exist."""
    assert _refusal(PLAIN, b"SOMETHING ELSE THAT LIES THERE") == ("session", "corrupt")
    assert _refusal(PLAIN, _plain_object(b"x", flags=4)) == ("session", "corrupt")


def test_a_newer_version_is_named() -> None:
    """What to do about it is said."""
    with pytest.raises(ConfigurationError, match="newer Outpost, in version 2") as caught:
        PLAIN.decode(_plain_object(b"x", version=2), about=ABOUT, max_bytes=10)
    assert caught.value.reason == "not_supported"
    assert "update" in caught.value.hint


@pytest.mark.parametrize("codec", [PLAIN, ENCRYPTED])
def test_a_chunk_is_what_its_name_says(codec: Codec) -> None:
    """With a generation as without; another content, another size, or the object of another name: refused."""
    name = codec.object_name(TEXT)
    stored = codec.encode(TEXT, about=ABOUT)
    for given_name in (name, f"{name}.00c0ffee"):
        assert codec.decode_chunk(stored, about=ABOUT, name=given_name, size=len(TEXT)) == TEXT
    for wrong_name, size in ((codec.object_name(b"x"), len(TEXT)), (name, len(TEXT) + 1), (name, len(TEXT) - 1)):
        with pytest.raises(SessionError) as caught:
            codec.decode_chunk(stored, about=ABOUT, name=wrong_name, size=size)
        assert caught.value.reason == "digest_mismatch"
