"""What a transport is: a place that keeps objects by key, replaced only by who knows their revision.

The one rule: a read gives all of an object as some write put it there, or fails; a write is there whole, or not at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from host_client.errors import ConfigurationError, ConflictError, printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

MAX_KEY_CHARACTERS_COUNT = 512
MAX_OBJECT_BYTES = 64 << 20
"""Most that one object may have; what is larger is kept as several."""

_SEGMENT = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"
_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it was read.

    Attributes:
        data: All of its bytes.
        revision: Names this write of it; every write makes another one, also of equal bytes.
    """

    data: bytes
    revision: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a transport knows of an object without reading it.

    Attributes:
        key: Its key.
        stored_bytes: What it takes in the store, which may be a little more than its data.
        modified: When it was written, by the clock of the store.
    """

    key: str
    stored_bytes: int
    modified: datetime


class Transport(Protocol):
    """Keeps objects by key. Safe to use from many tasks, processes and hosts at once.

    A key has 1 to 512 characters: segments joined by `/`; each begins with a letter, a digit, `_` or `-` and goes on
    with those or `.`. One key may continue another: `a/b` and `a/b/c` are two objects. On cancel a write is there whole
    or not at all.

    Every method may raise:
        ConfigurationError: `invalid_key`; `store_access`: the store refuses the credentials or the access;
            `no_such_store`: the bucket or directory is not there.
        UnavailableError: `store_unreachable`, safe to repeat; `io`.
        WorkspaceError: `unsafe_path`, `not_a_file`: in a directory, a link or something else is in an object's place.

    Attributes:
        name: The place, for people; without credentials.
    """

    @property
    def name(self) -> str:
        """Return the place, for people."""

    async def read(self, key: str, *, max_bytes: int = MAX_OBJECT_BYTES) -> StoredObject | None:
        """Read an object; None when there is none.

        Raises:
            LimitError: `max_bytes`: it is larger.
            SessionError: `digest_mismatch`: the object is damaged; `incomplete`: less than all of it came.
        """

    async def stat(self, key: str) -> ObjectInfo | None:
        """Look at an object without reading it; None when there is none."""

    async def write(self, key: str, data: bytes, *, if_revision: str | None) -> str:
        """Write an object and return its new revision.

        Args:
            key: Its key.
            data: All of it, at most `MAX_OBJECT_BYTES`.
            if_revision: The revision that is replaced; None: no object of that key may be there.

        Raises:
            ConflictError: `stale_revision`: the object has another revision, is there already, or is gone; it is as it
                was.
            ConfigurationError: `no_conditional_writes`: the store cannot keep that promise.
            LimitError: `max_bytes`, `disk_full`, `read_only`.
        """

    async def remove(self, key: str, *, if_revision: str | None = None) -> None:
        """Remove an object; nothing happens when there is none.

        Args:
            key: Its key.
            if_revision: Only that revision, as far as the store can tell at that moment; None: any.

        Raises:
            ConflictError: `stale_revision`: the object has another revision.
        """

    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Yield the objects whose keys begin with the prefix and a `/`, in no order; all of them without a prefix.

        What is written or removed meanwhile may or may not be among them; everything else is, once.
        """


def check_key(key: str, what: str = "key") -> str:
    """Return a key that may be used, or refuse it.

    Raises:
        ConfigurationError: `invalid_key`.
    """
    if len(key) > MAX_KEY_CHARACTERS_COUNT or not _KEY.fullmatch(key):
        raise ConfigurationError(
            "invalid_key",
            f"{printable(key[:MAX_KEY_CHARACTERS_COUNT])!r} cannot be a {what}",
            hint="1 to 512 characters: segments joined by '/', of letters, digits, '_', '-' and, not first, '.'",
        )
    return key


def stale_revision(key: str) -> ConflictError:
    """Return the failure of a write or removal that came too late."""
    return ConflictError(
        "stale_revision",
        f"the object {key} is not as it was when it was read",
        hint="somebody else wrote to it meanwhile: read it again, and decide anew",
    )
