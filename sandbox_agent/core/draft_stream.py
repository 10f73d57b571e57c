"""The session that a restore is making whose digests follow its contents.

All of it arrives and is staged: what the session in place has already can only be told at the end.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from sandbox_agent.core.bundle_check import check_content
from sandbox_agent.core.copy import write_all
from sandbox_agent.core.draft import Draft
from sandbox_api.framing import Sections
from sandbox_api.manifest import DIGEST_BYTES, bundle_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox_agent.core.existing import Existing
    from sandbox_agent.core.staging import Staging
    from sandbox_api.manifest import Entry
    from sandbox_api.profile import Profile


class StreamedDraft(Draft):
    """The session in the making; its entries get their digests as they arrive.

    Args:
        entries: The manifest, without digests.
        profile: The format.
        existing: The session in place; None: there is none.
        stage: Returns the staging directory, which is made when it is first asked for.
    """

    def __init__(
        self, entries: Sequence[Entry], profile: Profile, existing: Existing | None, stage: Callable[[], Staging]
    ) -> None:
        super().__init__(entries, profile, existing, stage)
        self._sections = Sections(length for entry in entries for length in (entry.size, DIGEST_BYTES))
        self._told = b""

    @property
    def left_bytes(self) -> int:
        """How much is to be fed."""
        return super().left_bytes + DIGEST_BYTES * len(self.entries)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of contents and digests; each file is checked when its digest is there.

        Raises:
            SessionError: `digest_mismatch`, `protocol`.
            OSError: a file cannot be written.
        """
        for number, piece, is_last in self._sections.feed(data):
            index, is_digest = divmod(number, 2)
            if is_digest:
                self._told += piece
                if is_last:
                    told, self._told = self._told, b""
                    self.entries[index] = self.entries[index]._replace(sha256=told)
                    check_content(self.entries[index], self._content.digest())
                continue
            if self._fd < 0:
                self._fd, self._content = self._stage().create(self.entries[index].path), sha256()
            write_all(self._fd, piece)
            self._content.update(piece)
            if is_last:
                self.close()

    def digest(self) -> bytes:
        """Return the bundle digest of all that arrived.

        Raises:
            SessionError: `incomplete`.
        """
        self.check_arrived()
        return bundle_digest(self.entries)
