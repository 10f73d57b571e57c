"""One target of a relay: a transcript conversation restored from the spool while the capture still writes it.

The one rule: the daemon is told to commit only after the capture was verified to its end, and what was read has the
digest of its record.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from host_client.errors import SessionError
from host_client.sandbox.progress import Progress, Reporter
from host_client.sandbox.transcript import TranscriptSource
from host_client.session.failure import named_failures
from host_client.session.relocate import Relocator
from host_client.stores.transcript_home import HostFiles
from host_client.stores.transcript_kept import kept_pieces
from host_client.stores.transcript_member import below, kept_digest
from host_client.stores.transcript_place import sandbox_place
from host_client.stores.transcript_restore import locks_of, outcome_of, refuse_copies, shown_paths
from sandbox_api.manifest import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import PurePosixPath

    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord, RestoreOutcome
    from host_client.stores.layout import Related, TranscriptLayout
    from host_client.stores.relay_spool import Spool, SpooledFile, SpoolReader


async def restore_spooled(
    layout: TranscriptLayout, conversation_id: str, reader: SpoolReader, context: ConversationContext
) -> RestoreOutcome:
    """Restore what a reader reads, relocated to the workspace of the context's sandbox.

    Raises:
        OutpostError: those of `TranscriptConversations.restore`.
    """
    started_seconds = time.perf_counter()
    place = await sandbox_place(layout, context)
    while not reader.has_begun:
        await reader.more()
    spool = reader.spool
    remote = layout.remote_path(conversation_id, place, spool.home.host_path / spool.main)
    main = below(place.home, remote, "the layout's remote_path")
    await refuse_copies(layout, context, place, {conversation_id: main})
    sending = _Sending(reader, main, str(place.root), layout.ends_with_newline)
    reporter = Reporter(context.progress)

    def after_chunk(size: int) -> None:
        sending.sent_bytes += size
        reporter.report(sending.progress)

    restored = await context.connected.transcripts.restore(
        place.home,
        layout.format,
        conversation_id,
        sending.sources(),
        wait=reader.more,
        before_commit=sending.check,
        full_durability=context.is_durable,
        owner=context.owner,
        force=context.force,
        locks=locks_of(layout, (conversation_id,)),
        expected_bytes=spool.expected_bytes,
        after_chunk=after_chunk,
    )
    reporter.finish(sending.finished)
    outcome = outcome_of(layout, conversation_id, place.home / main, restored, started_seconds)
    notices = [notice for notice in sending.record.notices if notice.reason == "no_origin"]
    return replace(outcome, relocated=shown_paths(sorted(sending.relocated)), notices=notices)


@dataclass
class _Sending:
    """What is sent to one target, in the order in which it comes. The methods block.

    Attributes:
        reader: Where it comes from.
        main: Where the main transcript goes, below the sandbox's home.
        destination: The workspace there.
        ends_with_newline: Whether each transcript must.
        entries: What was read of each file, by its path on this host.
        relocated: Where the files went in which relocation changed something.
        sent_bytes: What was sent so far; the sender counts.
    """

    reader: SpoolReader
    main: PurePosixPath
    destination: str
    ends_with_newline: bool
    entries: dict[PurePosixPath, Entry] = field(default_factory=dict)
    relocated: set[PurePosixPath] = field(default_factory=set)
    sent_bytes: int = 0

    @property
    def spool(self) -> Spool:
        """Where everything comes from."""
        return self.reader.spool

    @property
    def record(self) -> ConversationRecord:
        """What the capture has kept; it is over."""
        if self.spool.record is None:
            raise RuntimeError("the capture is not over")
        return self.spool.record

    @property
    def progress(self) -> Progress:
        """How far it is; there may be more than was expected."""
        bytes_total = max(self.spool.expected_bytes, self.sent_bytes)
        return Progress(len(self.entries), max(len(self.spool.files), len(self.entries)), self.sent_bytes, bytes_total)

    @property
    def finished(self) -> Progress:
        """The last progress, when all was sent."""
        return Progress(len(self.entries), len(self.entries), self.sent_bytes, self.sent_bytes)

    def sources(self) -> Iterator[TranscriptSource | None]:
        """Yield the files as they come, None where there is nothing yet; lines of shared files at the end."""
        for file in self.reader.files():
            if file is None:
                yield None
            else:
                is_main = file.path == self.spool.main
                place = self.main if is_main else self._places[file.path]
                yield TranscriptSource(place, partial(self._pieces, file, place), placed_last=is_main)
        files = HostFiles(self.spool.home)
        for member in self.spool.members.related:
            is_there = member.kind == "lines" and files.status(member.path) is not None
            if is_there and next(kept_pieces(files, member), None) is not None:
                yield TranscriptSource(
                    self._places[member.path], partial(self._lines, files, member), append_lines=True
                )

    def check(self) -> None:
        """Make sure that what was read is what the capture has kept.

        Raises:
            SessionError: `digest_mismatch`.
        """
        if kept_digest(self.entries.values()) != self.record.digest:
            raise SessionError("digest_mismatch", "what was read of the spool is not what was captured")

    @cached_property
    def _places(self) -> Mapping[PurePosixPath, PurePosixPath]:
        return self.spool.members.places(self.main)

    def _pieces(self, file: SpooledFile, place: PurePosixPath) -> Iterator[bytes]:
        pieces = self._counted(file.path, self.reader.pieces(file))
        if file.kind != "transcript":
            yield from pieces
            return
        # The capture has moved it to this host's folder, which nothing else names.
        relocator = Relocator(self.destination, origin=str(self.spool.home.repository))
        for piece in pieces:
            yield from filter(None, relocator.feed(piece)) if piece else (piece,)
        yield from filter(None, relocator.finish())
        if self.ends_with_newline and relocator.read_bytes and not relocator.ends_with_newline:
            yield b"\n"
        if relocator.changed_count:
            self.relocated.add(place)

    def _lines(self, files: HostFiles, member: Related) -> Iterator[bytes]:
        yield from self._counted(member.path, kept_pieces(files, member))

    def _counted(self, path: PurePosixPath, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield pieces; at the end the entry of the file is known."""
        sha256, size = hashlib.sha256(), 0
        with named_failures(path):
            for piece in pieces:
                sha256.update(piece)
                size += len(piece)
                yield piece
        self.entries[path] = Entry(os.fsencode(path), size, sha256.digest())
