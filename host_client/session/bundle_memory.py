"""What this process knows of bundle files of the host, so that what was read once need not be again.

The one rule: a file is believed to be what was verified only while its device, inode, size, modification and change
time are those it had then, and only when its modification time was so old that any later write shows in it.

That holds at once for a file this process wrote: each of its contents had its digest checked on the way, and the file
gets a modification time `SETTLED_NS` in the past (`folder.Scratch.place`), which no clock will give to a later write,
however coarse the file system counts. Who writes and puts that time back changes the change time. Captures believe, to
copy what has not changed, and restores, so that many of one file share what is known of it; both check every byte that
they hand on. `locate` and `validate` read all of it anew. A file that fails anywhere is forgotten here.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.session.bundle_index import Item
    from sandbox_api.manifest import Entry
    from sandbox_api.profile import Profile

MAX_ENTRIES_COUNT = 16_384
"""Over all bundles, about 6 MiB; the oldest bundles go first."""

SETTLED_NS = 2_000_000_000
"""File systems count time in steps, at worst of two seconds: a write within a step of the last would not show."""


def file_identity(fd: int) -> tuple[int, ...]:
    """Return device, inode, size, modification and change time: what tells this state of a file from any other."""
    found = os.fstat(fd)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@dataclass(frozen=True, slots=True)
class KnownBundle:
    """A bundle file that was verified whole.

    Attributes:
        profile: The format whose rules its paths keep.
        conversation_id: Its id.
        source: Path of the session in the sandbox.
        entries: The manifest, every digest set.
        items: Where each entry lies, in the same order.
        extents: `Item.copyable` of each.
        digest: The bundle digest.
    """

    profile: Profile
    conversation_id: str
    source: str
    entries: tuple[Entry, ...]
    items: Sequence[Item]
    extents: Sequence[tuple[int, int] | None]
    digest: bytes


class BundleMemory:
    """Known bundles by `file_identity`; for all captures of a process, from any thread."""

    def __init__(self, max_entries_count: int = MAX_ENTRIES_COUNT) -> None:
        self._max_entries_count = max_entries_count
        self._lock = threading.Lock()
        self._known: dict[tuple[int, ...], KnownBundle] = {}
        self._entries_count = 0

    def get(self, identity: tuple[int, ...]) -> KnownBundle | None:
        """Return what is known of a file in that state, or None."""
        return self._known.get(identity)

    def note(self, identity: tuple[int, ...], known: KnownBundle, *, read_ns: int) -> None:
        """Remember a file, unless it was written to so shortly before that another write might not show.

        Args:
            identity: Of the file when its content was known to be this.
            known: What it is.
            read_ns: Wall time before the first of its content was read or written last, in nanoseconds.
        """
        modified_ns = identity[3]
        if modified_ns > read_ns - SETTLED_NS or len(known.entries) > self._max_entries_count:
            return
        with self._lock:
            self._drop(identity)
            self._known[identity] = known
            self._entries_count += len(known.entries)
            while self._entries_count > self._max_entries_count:
                self._drop(next(iter(self._known)))

    def forget(self, identity: tuple[int, ...]) -> None:
        """Drop what is known of a file that was replaced, or found to be damaged."""
        with self._lock:
            self._drop(identity)

    def _drop(self, identity: tuple[int, ...]) -> None:
        known = self._known.pop(identity, None)
        if known is not None:
            self._entries_count -= len(known.entries)


MEMORY = BundleMemory()
"""That of this process."""
