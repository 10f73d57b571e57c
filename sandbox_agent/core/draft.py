"""The session that a restore is making: partly staged, partly still held by the session it will replace.

Only what arrives is staged at first, and what broken attempts at the same restore had staged. Whether anything has to
change at all is known after relocation, and only then the rest is copied.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from sandbox_agent.core.bundle_check import check_arrived, check_content
from sandbox_agent.core.copy import write_all
from sandbox_agent.core.disk import check_room
from sandbox_api.framing import Sections
from sandbox_api.manifest import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sandbox_agent.core.existing import Existing
    from sandbox_agent.core.hooks import HookRunner
    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.resume import Part
    from sandbox_agent.core.staging import Staging
    from sandbox_api.profile import Profile

_PIECE_BYTES = 1 << 20
MAX_RELOCATED_COUNT = 100
"""Files changed by relocation that are named."""


class Draft:
    """The session in the making, and its files as a hook sees them.

    Args:
        entries: The manifest.
        profile: The format.
        existing: The session in place; None: there is none.
        stage: Returns the staging directory, which is made when it is first asked for.
    """

    def __init__(
        self, entries: Sequence[Entry], profile: Profile, existing: Existing | None, stage: Callable[[], Staging]
    ) -> None:
        self.entries = list(entries)
        self.relocated: list[bytes] = []
        self._existing = existing
        self._stage = stage
        self._relocated = {entry.path for entry in entries if profile.is_relocated(entry.path.decode())}
        self._held = {
            entry.path: existing
            for entry in entries
            if existing is not None and entry.sha256 and entry.path not in self._relocated and existing.holds(entry)
        }
        self.lacking = [entry for entry in entries if entry.path not in self._held]
        self._parts: Mapping[bytes, Part] = {}
        self._sections = Sections(self.lacking_sizes_bytes)
        self._fd = -1
        self._content = sha256()

    @property
    def lacking_sizes_bytes(self) -> list[int]:
        """How much of each lacking content has to arrive."""
        return [entry.size - self._part_bytes(entry) for entry in self.lacking]

    @property
    def left_bytes(self) -> int:
        """How much is to be fed."""
        return sum(self.lacking_sizes_bytes)

    def add_staged(self, paths: Collection[bytes]) -> None:
        """Take note that these files are staged whole and verified: they are no longer lacking."""
        self.lacking = [entry for entry in self.lacking if entry.path not in paths]

    def go_on(self, parts: Mapping[bytes, Part]) -> None:
        """Take note, before anything arrives, what is staged of lacking files: they arrive from there on."""
        self._parts = parts
        self._sections = Sections(self.lacking_sizes_bytes)

    def drop(self, path: bytes) -> None:
        """Remove what is staged of a file that will arrive from its start."""
        with suppress(FileNotFoundError):
            self._stage().remove_file(path)

    def _part_bytes(self, entry: Entry) -> int:
        part = self._parts.get(entry.path)
        return part.size if part else 0

    def close(self) -> None:
        """Let go of the file being written."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the lacking contents; each file is checked when its last byte is there.

        Raises:
            SessionError: `digest_mismatch`, `protocol`.
            OSError: a file cannot be written.
        """
        for index, piece, is_last in self._sections.feed(data):
            entry = self.lacking[index]
            part = self._parts.get(entry.path)
            if is_last and self._fd < 0 and part is None:  # whole at once, as nearly all are
                self._stage().write(entry.path, piece)
                check_content(entry, sha256(piece).digest())
                continue
            if self._fd < 0:
                self._fd, self._content = self._opened(entry, part)
            write_all(self._fd, piece)
            self._content.update(piece)
            if is_last:
                self.close()
                check_content(entry, self._content.digest())

    def _opened(self, entry: Entry, part: Part | None) -> tuple[int, Any]:
        if part is None:
            return self._stage().create(entry.path), sha256()
        return self._stage().append(entry.path, part.size), part.content

    def check_arrived(self) -> None:
        """Refuse to go on before all lacking contents are there.

        Raises:
            SessionError: `incomplete`.
        """
        check_arrived(done=self._sections.done)

    def relocate(self, hooks: HookRunner, conversation_id: str, cwd: bytes, target: Callable[[], bytes]) -> None:
        """Rewrite the files of the format that name the working directory.

        The hook may look at the other files: it sees all of them as they came, whatever the order.

        Raises:
            SessionError: `hook_*`.
        """
        changed: list[tuple[int, Entry, bytes]] = []
        for index, entry in enumerate(self.entries):
            if entry.path in self._relocated:
                after, fresh = self._relocate(hooks, entry, conversation_id, cwd, target())
                if after.sha256 == entry.sha256:
                    self._stage().remove_file(fresh)
                else:
                    changed.append((index, after, fresh))
        # Only now: while a hook runs, it sees the session as it was before any of its files was rewritten.
        for index, after, fresh in changed:
            self._stage().replace(fresh, after.path)
            self.entries[index] = after
            self.relocated.append(after.path)

    def _relocate(
        self, hooks: HookRunner, entry: Entry, conversation_id: str, cwd: bytes, target: bytes
    ) -> tuple[Entry, bytes]:
        """Write the new text of one file beside it; return what it is and its path."""
        staging = self._stage()
        with ExitStack() as stack:
            source_fd = staging.open(entry.path)
            stack.callback(os.close, source_fd)
            target_fd, fresh = staging.create_beside(entry.path)
            stack.callback(os.close, target_fd)
            hooks.relocate(
                entry.path.decode(),
                source_fd,
                target_fd,
                conversation_id=conversation_id,
                cwd=cwd,
                target=target,
                files=self,
            )
            return _entry_of(entry.path, target_fd), fresh

    def is_in_place(self, owner: Owner | None) -> bool:
        """Tell whether the session in place is this one already."""
        return self._existing is not None and self._existing.equals(self.entries, self._held, owner)

    def complete(self) -> None:
        """Copy what is not staged yet from the session in place.

        Raises:
            ConflictError: `target_changed`.
            LimitError: `disk_full`.
        """
        staging = self._stage()
        check_room(staging.directory, [entry.size for entry in self.entries if entry.path in self._held])
        for entry in self.entries:
            if existing := self._held.get(entry.path):
                fd = staging.create(entry.path)
                try:
                    existing.copy(entry, fd)
                finally:
                    os.close(fd)

    def paths(self) -> list[str]:
        """Return all paths, for the hook."""
        return [entry.path.decode() for entry in self.entries]

    def open(self, path: str) -> int:
        """Return a descriptor of one of `paths`, for the hook."""
        name = path.encode()
        existing = self._held.get(name)
        return existing.open(name) if existing else self._stage().open(name)


def _entry_of(path: bytes, fd: int) -> Entry:
    digest = sha256()
    size = 0
    while piece := os.pread(fd, _PIECE_BYTES, size):
        digest.update(piece)
        size += len(piece)
    return Entry(path, size, digest.digest())
