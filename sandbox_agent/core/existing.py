"""The session that is in place when a restore begins: what it holds need not be sent.

What it cannot be walked for, links in it for example, is no obstacle: it is then no source, and set aside as it is.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from sandbox_agent.core.copy import write_all
from sandbox_agent.core.walk import walk
from sandbox_api.errors import ConflictError, OutpostError, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.tree import Tree
    from sandbox_api.limits import Limits
    from sandbox_api.manifest import Entry
    from sandbox_api.profile import Profile


class Existing:
    """A held session directory, its files pinned where that is possible.

    Args:
        directory: The session directory, which this object owns.
        profile: Selects its files.
        limits: Limits of a session that is worth looking at.
    """

    def __init__(self, directory: Directory, profile: Profile, limits: Limits) -> None:
        self.directory = directory
        status = os.fstat(directory.fd)
        self.identity = (status.st_dev, status.st_ino)
        self.changed_ns = status.st_ctime_ns
        self._trees: list[Tree] = []
        with suppress(OutpostError):
            self._trees.append(walk(directory, profile, limits, skip_links=False))
        self._pins = {pin.path: (tree, pin) for tree in self._trees for pin in tree.pins}

    def close(self) -> None:
        """Let go of all descriptors."""
        for tree in self._trees:
            tree.close()
        self.directory.close()

    def holds(self, entry: Entry) -> bool:
        """Tell whether the session has that file with that content."""
        if entry.path not in self._pins or self._pins[entry.path][1].size != entry.size:
            return False
        return self._read(entry.path, None) == entry.sha256

    def equals(self, entries: Sequence[Entry], known: Iterable[bytes], owner: Owner | None) -> bool:
        """Tell whether the session's selected files are these and no others, by now as when the restore began.

        Args:
            entries: What there should be.
            known: Paths whose content `holds` has told already to be equal.
            owner: User and group id that all of them must have; None: any.
        """
        if self._pins.keys() != {entry.path for entry in entries} or not self._is_owned(owner):
            return False
        equal = set(known)
        return all(entry.path in equal or self.holds(entry) for entry in entries) and self._is_unchanged()

    def open(self, path: bytes) -> int:
        """Open a file that the session holds, for reading; the caller closes it.

        Raises:
            SessionError: `changed`.
        """
        tree, pin = self._pins[path]
        return tree.open(pin)

    def copy(self, entry: Entry, fd: int) -> None:
        """Write the content of a file that the session held when the restore began.

        Raises:
            ConflictError: `target_changed`: it has other content now.
        """
        if self._read(entry.path, fd) != entry.sha256:
            path = printable(self.directory.join(entry.path))
            raise ConflictError(
                "target_changed",
                f"{path!r} changed while the restore was under way",
                hint="restore again when the CLI is idle",
                facts={"path": path},
            )

    def _read(self, path: bytes, copy_fd: int | None) -> bytes:
        """Return the digest of a file, or nothing when it cannot be read as it was; write its content when asked to."""
        tree, pin = self._pins[path]
        digest = sha256()
        try:
            for piece in tree.read(pin):
                digest.update(piece)
                if copy_fd is not None:
                    write_all(copy_fd, piece)
        except OutpostError:
            return b""
        return digest.digest()

    def _is_unchanged(self) -> bool:
        try:
            for tree in self._trees:
                tree.check_unchanged()
        except OutpostError:
            return False
        return True

    def _is_owned(self, owner: Owner | None) -> bool:
        if owner is None:
            return True
        folders = {path.rpartition(b"/")[0] for path in self._pins}
        statuses = (self.directory.stat(path) for path in {b"", *folders, *self._pins})
        return all((status.st_uid, status.st_gid) == owner for status in statuses)
