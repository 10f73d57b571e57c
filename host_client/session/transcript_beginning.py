"""What a capture left of a file on the host, looked at before it is gone on with.

The one rule: the host's file is only believed to be what it was while its identity says so (`bundle_memory`), and gone
on with by a process that has hashed it: the one that wrote it, or one that reads it first.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from host_client.session.bundle_memory import file_identity
from host_client.session.placed_file import opened_file
from host_client.session.transcript_placement import relation_of
from host_client.session.transcript_writer import MEMORY, LineDigest
from sandbox_api.errors import WorkspaceError
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from hashlib import _Hash

    from host_client.session.folder import Folder
    from host_client.session.transcript_placement import Relation
    from host_client.session.transcript_state import SavedFile


class Beginning:
    """A file of the host that a capture left, and that may have been changed. Methods block.

    Args:
        open_folder: Opens the folder that it lies in.
        name: Its name there.
        saved: As it was left.
    """

    def __init__(self, open_folder: Callable[[], Folder], name: str, saved: SavedFile) -> None:
        self._open_folder = open_folder
        self._name = name
        self._saved = saved

    def is_believed(self) -> bool:
        """Tell by its identity whether it is as it was left."""
        try:
            with self._open_folder() as folder, opened_file(folder, self._name) as fd:
                return file_identity(fd) == self._saved.identity
        except (OSError, WorkspaceError):
            return False

    def hashed(self) -> _Hash | None:
        """Return the SHA-256 of its whole lines, to go on with; None when they are not what was left."""
        if (known := MEMORY.get(self._saved.line_sha256)) is not None and self.is_believed():
            return known
        sha256, left_bytes = hashlib.sha256(), self._saved.line_bytes
        try:
            with self._open_folder() as folder, opened_file(folder, self._name) as fd:
                at = 0
                while left_bytes and (data := os.pread(fd, min(left_bytes, CHUNK_BYTES), at)):
                    sha256.update(data)
                    at += len(data)
                    left_bytes -= len(data)
        except (OSError, WorkspaceError):
            return None
        return sha256 if not left_bytes and sha256.digest() == self._saved.line_sha256 else None

    def relation(self, staging: Folder, staged: str) -> Relation:
        """Tell what it has behind its whole lines, compared with what was staged to come there."""
        try:
            with (
                self._open_folder() as folder,
                opened_file(folder, self._name) as old,
                opened_file(staging, staged) as new,
            ):
                return relation_of(old, new, self._saved.line_bytes)
        except (OSError, WorkspaceError):
            return "other"

    def gone_on(self, sha256: _Hash, staging: Folder, staged: str) -> LineDigest:
        """Return the digest of its whole lines with what was staged behind them."""
        digest, at = LineDigest(sha256, self._saved.line_bytes), 0
        with opened_file(staging, staged) as fd:
            while data := os.pread(fd, CHUNK_BYTES, at):
                digest.update(data)
                at += len(data)
        MEMORY.note(digest)
        return digest
