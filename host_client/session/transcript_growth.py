"""A transcript of the host that grows in place while the sandbox's does.

The one rule: at any moment, also after a kill, the host's file is a beginning of what it is going to be. Only whole
lines that were verified are added, only behind what a capture or this left there, and nothing else is written.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from host_client.session.bundle_memory import file_identity
from host_client.session.failure import host_failures
from host_client.session.placed_file import opened_file
from host_client.session.transcript_beginning import Beginning
from host_client.session.transcript_placement import APPEND_FLAGS, extend
from host_client.session.transcript_writer import MEMORY, LineDigest
from sandbox_api.errors import SessionError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from hashlib import _Hash

    from host_client.session.folder import Folder
    from host_client.session.transcript_state import SavedFile
    from host_client.session.transcript_stream import TranscriptStream


class OtherContentError(Exception):
    """What came, or what the host has, is not what was to be gone on with."""


class TranscriptGrowth:
    """One transcript that is gone on with behind its whole lines. Methods that say so block.

    After a failure nothing more can be added; `saved` is still right then.

    Args:
        saved: As a capture left it, with the parts that came of the sandbox's file.
        open_folder: Opens the folder that it lies in.
        name: Its name there.
        steps: Given what takes their output, returns the steps that what comes goes through; they hold back no line.

    Attributes:
        saved: As it is now, for the next capture.
        can_go_on: Whether more can be added.
    """

    def __init__(
        self,
        saved: SavedFile,
        open_folder: Callable[[], Folder],
        name: str,
        steps: Callable[[Callable[[bytes], object]], TranscriptStream],
    ) -> None:
        self.saved = saved
        self.can_go_on = True
        self._open_folder = open_folder
        self._name = name
        self._made: list[bytes] = []
        self._stream = steps(self._made.append)
        self._kept: _Hash | None = None  # of the host's whole lines, once they were read
        self.begin()

    def begin(self) -> None:
        """Take note that what comes from now on is marked from here: it becomes one more part."""
        self._parts = self.saved.parts
        self._came = hashlib.sha256()
        self._came_bytes = 0

    def is_marked(self, sha256: bytes) -> bool:
        """Tell whether that is the digest of what came since the beginning."""
        return self._came.digest() == sha256

    def prepare(self) -> _Hash:
        """Read the host's whole lines, unless that was done, and return their SHA-256; blocks.

        It takes as long as the file is large, and need not be done while others are kept from the folder.

        Raises:
            OtherContentError: it is not what was left there.
        """
        if self._kept is None:
            left = Beginning(self._open_folder, self._name, self.saved).hashed()
            if left is None:
                self.can_go_on = False
                raise OtherContentError
            self._kept = left.copy()  # captures go on with that one, too
        return self._kept

    def advance(self, data: bytes, sha256: bytes) -> None:
        """Add whole lines; blocks.

        Args:
            data: What came since the last call.
            sha256: SHA-256 of all that came since the beginning.

        Raises:
            OtherContentError: the digest is another, or somebody else changed the host's file; nothing was written.
            LimitError: `disk_full`, `read_only`, `descriptors`; what was written is taken back.
            WorkspaceError: `unsafe_path`, `not_a_file`, `access`.
            OutpostError: what the steps raise.
        """
        kept = self.prepare()
        self.can_go_on = False
        self._came.update(data)
        if not self.is_marked(sha256):
            raise OtherContentError
        self._stream.feed(data)
        text = b"".join(self._made)
        self._made.clear()
        identity = self._append(text)
        kept.update(text)
        self._came_bytes += len(data)
        size = self.saved.line_bytes + len(text)
        digest = kept.digest()
        self.saved = replace(
            self.saved,
            size=size,
            sha256=digest,
            identity=identity,
            parts=(*self._parts, (self._came_bytes, sha256)),
            line_bytes=size,
            line_sha256=digest,
        )
        self.can_go_on = True

    def remember(self) -> None:
        """Let the next capture of this process go on without reading the host's file."""
        if self._kept is not None and self.can_go_on:
            MEMORY.note(LineDigest(self._kept, self.saved.line_bytes))

    def force(self) -> None:
        """Force the host's file to the disk; blocks.

        Raises:
            UnavailableError: `io`.
            WorkspaceError: somebody else took the file away.
        """
        with (
            self._open_folder() as folder,
            host_failures(folder.host_path / self._name),
            opened_file(folder, self._name) as fd,
        ):
            os.fsync(fd)

    def _append(self, text: bytes) -> tuple[int, ...]:
        """Write whole lines; return the identity of the file then."""
        try:
            with self._open_folder() as folder:
                return self._write(folder, text)
        except FileNotFoundError:
            raise OtherContentError from None
        except (SessionError, WorkspaceError) as error:
            if error.reason not in ("changed", "not_found"):
                raise
            raise OtherContentError from None

    def _write(self, folder: Folder, text: bytes) -> tuple[int, ...]:
        host_path = folder.host_path / self._name
        with host_failures(host_path), opened_file(folder, self._name, APPEND_FLAGS) as fd, _in_memory(text) as new:
            if file_identity(fd) != self.saved.identity:
                raise OtherContentError
            before_bytes = os.fstat(fd).st_size
            try:
                extend(fd, new, self.saved.line_bytes, host_path, before_write=lambda _: None)
            except OSError:
                os.ftruncate(fd, before_bytes)  # part of a line, as on a full disk
                raise
            return file_identity(fd)


@contextmanager
def _in_memory(text: bytes) -> Iterator[int]:
    """Give a descriptor of an unnamed file with that content."""
    fd = os.memfd_create("outpost-lines", os.MFD_CLOEXEC)
    try:
        os.write(fd, text)
        yield fd
    finally:
        os.close(fd)
