"""Digests of files that were read before, so that what did not change is not read again.

The one rule: a digest is believed only for a file whose identity, size, modification and change time are those it had
while its content was hashed, and whose last change was long enough before that for another one to show in these times.
Writes through a shared memory mapping may be late to show there; no CLI is known to write its session that way.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DIGESTS_COUNT = 16_384
"""About 6 MiB; the oldest go first."""

SETTLED_NS = 2_000_000_000
"""File systems count time in steps, at worst of two seconds: a change within a step of the last would not show."""


class Digests:
    """SHA-256 of contents by file identity (`tree.file_identity`); for all calls of a daemon, from any thread."""

    def __init__(self, max_count: int = MAX_DIGESTS_COUNT) -> None:
        self._max_count = max_count
        self._lock = threading.Lock()
        self._known: dict[tuple[int, ...], bytes] = {}

    def get(self, identity: tuple[int, ...]) -> bytes | None:
        """Return the digest of a file in that state, or None."""
        return self._known.get(identity)

    def note(self, files: Iterable[tuple[tuple[int, ...], bytes]], *, read_ns: int) -> None:
        """Remember the digests of files, but for those that changed shortly before they were read.

        Args:
            files: Identity, whose last two numbers are times, and SHA-256 of each. The file was found unchanged after
                its content was hashed.
            read_ns: Wall time before the first content was read, in nanoseconds.
        """
        settled_ns = read_ns - SETTLED_NS
        with self._lock:
            known = self._known
            for identity, sha256 in files:
                if identity[-1] <= settled_ns and identity[-2] <= settled_ns:
                    known.pop(identity, None)
                    known[identity] = sha256
            while len(known) > self._max_count:
                del known[next(iter(known))]
