"""How an archived object is written: perhaps compressed, perhaps encrypted, behind a short clear head.

The one rule: what is decoded was encoded by who has the key, for that very place; nothing larger than was asked for is
ever unpacked. `docs/archives.md` shows every byte.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
import zlib
from typing import TYPE_CHECKING

import zstandard

from host_client.errors import ConfigurationError, LimitError, SessionError
from host_client.stores.archive_key import KEY_ID_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from host_client.stores.archive_key import ArchiveKey

MAGIC = b"OUTPOSTA"
VERSION = 1
COMPRESSION_LEVEL = 3
NONCE_BYTES = 12
TAG_BYTES = 16

_COMPRESSED = 1
_ENCRYPTED = 2
_BOUND = struct.Struct(f">8sBB{KEY_ID_BYTES}s")
"""Magic, version, flags and key id: what an encrypted content is bound to, beside its place."""

_CHECKSUM = struct.Struct(">I")
HEAD_BYTES = _BOUND.size + _CHECKSUM.size
MAX_OVERHEAD_BYTES = HEAD_BYTES + NONCE_BYTES + TAG_BYTES
"""By how much an object may be larger than its content."""

_NO_KEY_ID = bytes(KEY_ID_BYTES)


class Codec:
    """Encodes and decodes the objects of one namespace. Safe to use from many threads; everything blocks.

    Args:
        key: Encrypts contents and hides names; None: neither.
        compress: Whether contents are compressed where that makes them smaller. What is read may be either.
    """

    def __init__(self, key: ArchiveKey | None = None, *, compress: bool = True) -> None:
        self._key = key
        self._compress = compress

    @property
    def key_id(self) -> str:
        """The id of the key, in hex; empty without one."""
        return self._key.key_id.hex() if self._key else ""

    def object_name(self, plain: bytes) -> str:
        """Return the 64 hex digits that name a content: equal ones have one name, to be told only with the key."""
        if self._key is None:
            return hashlib.sha256(plain).hexdigest()
        return hmac.digest(self._key.name_key, plain, "sha256").hex()

    def encode(self, plain: bytes, *, about: str) -> bytes:
        """Return the bytes that are stored of a content.

        Args:
            plain: The content.
            about: The key it is stored under: in another place it is not accepted, if encrypted.
        """
        body, flags, key_id = plain, 0, _NO_KEY_ID
        if self._compress:
            # Neither compressors nor ciphers may be shared by threads.
            packed = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True).compress(plain)
            if len(packed) < len(plain):
                body, flags = packed, _COMPRESSED
        if self._key is not None:
            flags |= _ENCRYPTED
            key_id = self._key.key_id
        bound = _BOUND.pack(MAGIC, VERSION, flags, key_id)
        if self._key is not None:
            nonce = os.urandom(NONCE_BYTES)
            body = nonce + _cipher(self._key).encrypt(nonce, body, bound + about.encode())
        return b"".join((bound, _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(bound))), body))

    def decode(self, stored: bytes, *, about: str, max_bytes: int) -> bytes:
        """Return the content of a stored object.

        Args:
            stored: All bytes of the object.
            about: The key it was read from.
            max_bytes: Most that the content may have.

        Raises:
            SessionError: `corrupt`: damaged, or no archived object; `tampered`: undamaged, but not made with the key
                for that place.
            ConfigurationError: `wrong_key`: encrypted with another key, or not encrypted although a key was given, or
                encrypted and none was given; `not_supported`: written by a newer version.
            LimitError: `max_bytes`.
        """
        if len(stored) < HEAD_BYTES:
            raise _corrupt(about, "is shorter than its head")
        magic, version, flags, key_id = _BOUND.unpack_from(stored)
        if magic != MAGIC:
            raise _corrupt(about, "is no object of an archive")
        view = memoryview(stored)
        # Checked before the version, whose byte may be the damaged one: later versions have it in the same place.
        checksum = zlib.crc32(view[HEAD_BYTES:], zlib.crc32(view[: _BOUND.size]))
        if _CHECKSUM.unpack_from(stored, _BOUND.size)[0] != checksum:
            raise _corrupt(about, "is damaged: its checksum differs")
        if version != VERSION:
            raise newer_version(about, version)
        if flags & ~(_COMPRESSED | _ENCRYPTED):
            raise _corrupt(about, "has flags that nobody knows")
        self._check_key(bool(flags & _ENCRYPTED), key_id, about)
        body = view[HEAD_BYTES:]
        if self._key is not None:
            body = memoryview(_decrypted(self._key, body, stored[: _BOUND.size], about))
        if flags & _COMPRESSED:
            return _unpacked(body, about, max_bytes)
        if len(body) > max_bytes:
            raise _too_large(about, max_bytes)
        return bytes(body)

    def decode_chunk(self, stored: bytes, *, about: str, name: str, size: int) -> bytes:
        """Return the content of a data object, which has that name and that many bytes.

        Args:
            stored: All bytes of the object.
            about: The key it was read from.
            name: Its name in a manifest, with or without a generation.
            size: Bytes of its content.

        Raises:
            SessionError: as `decode`; `digest_mismatch`: it is another content.
            ConfigurationError: as `decode`.
        """
        try:
            plain = self.decode(stored, about=about, max_bytes=size)
        except LimitError:
            plain = b""
        if len(plain) != size or self.object_name(plain) != name[:64]:
            raise SessionError(
                "digest_mismatch", f"the object '{about}' does not hold what its name says", facts={"key": about}
            )
        return plain

    def _check_key(self, is_encrypted: bool, key_id: bytes, about: str) -> None:  # noqa: FBT001 - a flag of the head
        facts = {"key": about, "key_id": key_id.hex()}
        if is_encrypted and self._key is None:
            raise ConfigurationError(
                "wrong_key",
                f"the object '{about}' is encrypted with the key {key_id.hex()}",
                hint="give the namespace's key (key=, or --key-file)",
                facts=facts,
            )
        if self._key is None:
            return
        if not is_encrypted:
            raise ConfigurationError(
                "wrong_key",
                f"the object '{about}' is not encrypted, and a key was given",
                hint="a namespace is encrypted as a whole or not at all: use it without a key; if it was encrypted, "
                "somebody else has written to it",
                facts=facts,
            )
        if key_id != self._key.key_id:
            raise ConfigurationError(
                "wrong_key",
                f"the object '{about}' is encrypted with the key {key_id.hex()}, not with {self.key_id}",
                hint="give the namespace's key; another key needs another namespace",
                facts=facts,
            )


def newer_version(about: str, version: int) -> ConfigurationError:
    """Return the refusal of what this version of the product cannot know."""
    return ConfigurationError(
        "not_supported",
        f"the object '{about}' was written by a newer Outpost, in version {version} of its format",
        hint="update Outpost on this host",
        facts={"key": about, "version": str(version)},
    )


def _decrypted(key: ArchiveKey, body: memoryview, bound: bytes, about: str) -> bytes:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only archives with a key pay for it

    if len(body) < NONCE_BYTES + TAG_BYTES:
        raise _corrupt(about, "is shorter than what encryption adds")
    try:
        return _cipher(key).decrypt(bytes(body[:NONCE_BYTES]), body[NONCE_BYTES:], bound + about.encode())
    except InvalidTag:
        raise SessionError(
            "tampered",
            f"the object '{about}' is undamaged, and was not encrypted with the key for this place",
            hint="somebody who does not have the key wrote or moved it: restore the store from a copy that is trusted",
            facts={"key": about},
        ) from None


def _cipher(key: ArchiveKey) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

    return AESGCM(key.content_key)


def _unpacked(packed: memoryview, about: str, max_bytes: int) -> bytes:
    try:
        size = zstandard.get_frame_parameters(packed).content_size
        if size > max_bytes and size not in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR):
            raise _too_large(about, max_bytes)
        # Nothing but one frame that says its size, so that no more than that is ever allocated.
        plain = zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False) if size <= max_bytes else None
    except zstandard.ZstdError:
        plain = None
    if plain is None:
        raise _corrupt(about, "cannot be unpacked")
    return plain


def _too_large(about: str, max_bytes: int) -> LimitError:
    return LimitError(
        "max_bytes",
        f"the object '{about}' unpacks to more than {max_bytes} bytes",
        facts={"key": about, "max_bytes": str(max_bytes)},
    )


def _corrupt(about: str, problem: str) -> SessionError:
    return SessionError("corrupt", f"the object '{about}' {problem}", facts={"key": about})
