"""How an object lies in a store: a header that makes each write unlike all others and its damage known, then the data.

```
offset  bytes
     0      8  magic: "OUTPOST" and the version of this form, 1
     8     16  random bytes, made anew by each write
    24      8  number of bytes of the data, big-endian
    32     32  SHA-256 of all of the rest: bytes 0 to 31 and the data
    64         the data
```

The random bytes make the revision that a store derives from content change on equal data as well.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from typing import Final

from host_client.errors import LimitError, SessionError
from host_client.transports.contract import MAX_OBJECT_BYTES

MAGIC: Final = b"OUTPOST\x01"
_NONCE_BYTES: Final = 16
_BEGINNING = struct.Struct(f">8s{_NONCE_BYTES}sQ")
HEADER_BYTES: Final = _BEGINNING.size + hashlib.sha256().digest_size


def make_header(data: bytes) -> bytes:
    """Return the header of a new write of some data.

    Raises:
        LimitError: `max_bytes`: it is more than one object may have.
    """
    if len(data) > MAX_OBJECT_BYTES:
        raise LimitError("max_bytes", f"an object has {len(data)} bytes; it may have {MAX_OBJECT_BYTES}")
    beginning = _BEGINNING.pack(MAGIC, secrets.token_bytes(_NONCE_BYTES), len(data))
    return beginning + _digest(beginning, data)


def check_size(key: str, stored_bytes: int, max_bytes: int) -> None:
    """Refuse an object whose data is larger than its reader allows, before it is read.

    Raises:
        LimitError: `max_bytes`.
    """
    if stored_bytes - HEADER_BYTES > max_bytes:
        raise LimitError(
            "max_bytes", f"the object {key} has {stored_bytes - HEADER_BYTES} bytes; {max_bytes} are allowed"
        )


def open_frame(key: str, stored: bytes | bytearray | memoryview) -> bytes:
    """Return the data of a stored object.

    Raises:
        SessionError: as `check_frame`.
    """
    view = memoryview(stored)
    data = bytes(view[HEADER_BYTES:])
    check_frame(key, bytes(view[:HEADER_BYTES]), data)
    return data


def check_frame(key: str, header: bytes, data: bytes) -> None:
    """Make sure that a stored object's data is what was written with its header.

    Raises:
        SessionError: `incomplete`: its end is missing; `digest_mismatch`: it is anything else than what was written.
    """
    if len(header) < HEADER_BYTES:
        if MAGIC.startswith(header[: len(MAGIC)]):
            raise SessionError("incomplete", f"the object {key} ends within its header")
        raise _damaged(key)
    magic, _, data_bytes = _BEGINNING.unpack_from(header)
    if magic == MAGIC and len(data) < data_bytes <= MAX_OBJECT_BYTES:
        raise SessionError("incomplete", f"the object {key} has {len(data)} of its {data_bytes} bytes")
    wanted = header[_BEGINNING.size :]
    if magic != MAGIC or len(data) != data_bytes or _digest(header[: _BEGINNING.size], data) != wanted:
        raise _damaged(key)


def revision_of(header: bytes) -> str:
    """Return a name of one write, made of its header; empty when that is none."""
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        return ""
    return header[len(MAGIC) : len(MAGIC) + _NONCE_BYTES].hex()


def _digest(beginning: bytes, data: bytes) -> bytes:
    digest = hashlib.sha256(beginning)
    digest.update(data)
    return digest.digest()


def _damaged(key: str) -> SessionError:
    return SessionError(
        "digest_mismatch",
        f"the object {key} is damaged",
        hint="read it again, from another host too: it may be damaged on its way; if it stays so, restore it from a "
        "copy of the store",
    )
