"""The files of a transcript conversation on their way out of this host, each read once and moved as it is read.

The one rule: an entry is made of the very bytes that were sent, so that who compares it with a record compares those.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from host_client.sandbox.progress import Progress
from host_client.sandbox.transcript import TranscriptSource
from host_client.session.failure import named_failures
from host_client.stores.transcript_kept import kept_pieces
from sandbox_api.manifest import Entry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import PurePosixPath

    from host_client.stores.layout import Related
    from host_client.stores.transcript_home import HostFiles
    from host_client.stores.transcript_member import Members
    from host_client.stores.transcript_move import Move
    from sandbox_api.limits import Limits


@dataclass(slots=True)
class Sending:
    """What is sent, in the order in which it takes its place. The methods block.

    Attributes:
        files: The files of this host.
        members: Those of the conversation.
        places: Where each goes, below the sandbox's home.
        move: Relocates the transcripts.
        entries: What was read of each file, by its path on this host.
        sent_bytes: What was sent so far; the sender counts.
        expected_bytes: About how much there is to send.
    """

    files: HostFiles
    members: Members
    places: Mapping[PurePosixPath, PurePosixPath]
    move: Move
    entries: dict[PurePosixPath, Entry] = field(default_factory=dict)
    sent_bytes: int = 0
    expected_bytes: int = 0
    _left: Collection[PurePosixPath] = ()

    def expect(self, limits: Limits) -> None:
        """Find out about how much there is to send.

        Raises:
            LimitError: `max_files`, `max_bytes`.
        """
        sizes = [status.st_size for member in self.members.all if (status := self.files.status(member.path))]
        self.expected_bytes = sum(sizes)
        limits.check(bytes_count=self.expected_bytes, files_count=len(sizes))

    def leave(self, paths: Collection[PurePosixPath]) -> None:
        """Do not send these files; they must have been read."""
        self._left = paths

    @property
    def progress(self) -> Progress:
        """How far it is; relocation may make it more or less than was expected."""
        files_total = len(self.members.all)
        return Progress(len(self.entries), files_total, self.sent_bytes, max(self.expected_bytes, self.sent_bytes))

    @property
    def finished(self) -> Progress:
        """The last progress, when all was sent."""
        files_total = len(self.members.all)
        return Progress(files_total, files_total, self.sent_bytes, self.sent_bytes)

    @property
    def relocated(self) -> Sequence[PurePosixPath]:
        """Where the files went in which relocation changed something."""
        return sorted(self.places[path] for path in self.move.relocated if path not in self._left)

    def sources(self) -> Iterator[TranscriptSource]:
        """Yield the files, companions first."""
        for member in self.members.all:
            if member.path in self._left:
                continue
            if member.kind == "lines" and next(kept_pieces(self.files, member), None) is None:
                continue  # a file of others, in which nothing belongs to this one
            yield TranscriptSource(
                self.places[member.path], partial(self.pieces, member), append_lines=member.kind == "lines"
            )

    def pieces(self, member: Related) -> Iterator[bytes]:
        """Yield a file as it goes to the sandbox; at the end its entry is known."""
        sha256, size = hashlib.sha256(), 0

        def read() -> Iterator[bytes]:
            nonlocal size
            for piece in kept_pieces(self.files, member):
                sha256.update(piece)
                size += len(piece)
                yield piece

        with named_failures(member.path):
            yield from self.move.pieces(member.path, read()) if member.kind == "transcript" else read()
        self.entries[member.path] = Entry(os.fsencode(member.path), size, sha256.digest())
