"""One file of a conversation on its way out of the sandbox: as a whole, or what was appended to it.

The one rule: what counts has been verified. A part of a file is taken only behind what the daemon has compared with
what was taken before, and put only behind what the host's file still is.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from host_client.errors import Offender, SessionError, WorkspaceError, printable
from host_client.sandbox.task import in_thread, task_group
from host_client.session.bundle_memory import file_identity
from host_client.session.compression import is_compressed
from host_client.session.line_block import LineBlocks
from host_client.session.line_selection import selected_lines
from host_client.session.redactor import DocumentRedactor, Redactor, redactor_for
from host_client.session.relocate import Relocator
from host_client.session.transcript_placement import KnownFile, Placing, opened_file, relation_of
from host_client.session.transcript_scan import TranscriptScan
from host_client.session.transcript_state import MAX_PARTS_COUNT, SavedFile
from host_client.session.transcript_stream import Digits, TranscriptStream
from host_client.session.transcript_writer import LineDigest
from host_client.stores.contract import Notice
from sandbox_api.limits import CHUNK_BYTES
from sandbox_api.manifest import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from hashlib import _Hash
    from pathlib import PurePosixPath

    from host_client.sandbox.file import ReadFile
    from host_client.session.redaction import Redaction
    from host_client.session.transcript_state import SavedScan
    from host_client.session.transcript_writer import StagedFile, Staging
    from host_client.stores.context import ConversationContext
    from host_client.stores.layout import Reference, Related, TranscriptLayout
    from host_client.stores.transcript_home import HostHome
    from host_client.stores.transcript_tally import Tally


class NoTailError(Exception):
    """A file cannot be gone on with, it must be captured whole; the text says why."""


class _MoreError(Exception):
    """A file that was to be the same has more."""


@dataclass(frozen=True, slots=True)
class Order:
    """A file to fetch.

    Attributes:
        member: The file.
        place: Where it goes on the host, below the home.
        origin: What relocation replaces; None: it names it itself.
        saved: What the last capture left of it, if that can be gone on with.
        known: The same, only to tell whether the host's file may go.
        cuts: Offsets that other transcripts refer to.
        reference: What its own first line refers to, and the place of that on the host.
        is_main: Whether it is the main transcript: it is scanned.
        saved_scan: What the last capture found in the part that can be gone on with.
    """

    member: Related
    place: PurePosixPath
    origin: str | None
    saved: SavedFile | None = None
    known: SavedFile | None = None
    cuts: frozenset[int] = frozenset()
    reference: tuple[Reference, int] | None = None
    is_main: bool = False
    saved_scan: SavedScan | None = None

    @property
    def saved_reference(self) -> tuple[str, int, int] | None:
        """The reference as the state keeps it."""
        if self.reference is None:
            return None
        reference, position = self.reference
        return str(reference.path), reference.offset, position


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that is complete and verified, and not in place yet.

    Attributes:
        member: The file.
        place: Where it goes on the host, below the home.
        placing: How; None for shared lines.
        entry: For the record; None for shared lines.
        saved: For the next capture, without the identity; None for shared lines.
        origin: The working directory that it names first, or that was asked for.
        scan: Of a main transcript.
        lines: Shared lines, each with its newline.
        notices: What should be known of it.
        redactions: Hits of each rule.
        is_refused: It is not text, and must be to be redacted.
    """

    member: Related
    place: PurePosixPath
    placing: Placing | None = None
    entry: Entry | None = None
    saved: SavedFile | None = None
    origin: str | None = None
    scan: TranscriptScan | None = None
    lines: Sequence[bytes] = ()
    notices: Sequence[Notice] = ()
    redactions: Mapping[str, int] = field(default_factory=dict)
    is_refused: bool = False


class Fetcher:
    """Fetches the files of one conversation into a staging folder.

    Args:
        layout: Of the conversation.
        context: Where and how.
        sandbox_home: The home of the layout in the sandbox.
        home: The home of the layout on the host.
        staging: Where new content goes.
        tally: Counts.
        in_use: Whether a process has the conversation open: what has no newline yet is not taken.
    """

    def __init__(
        self,
        layout: TranscriptLayout,
        context: ConversationContext,
        *,
        sandbox_home: PurePosixPath,
        home: HostHome,
        staging: Staging,
        tally: Tally,
        in_use: bool,
    ) -> None:
        self._layout = layout
        self._files = context.connected.files
        self._retries = context.retries
        self._durable = context.is_durable
        self._rules: Redaction | None = context.redaction if context.redaction and context.redaction.rules else None
        self._sandbox_home = sandbox_home
        self._home = home
        self._staging = staging
        self._tally = tally
        self._in_use = in_use
        self._destination = os.fspath(home.repository)

    async def fetch(self, order: Order) -> Fetched:
        """Fetch one file, again when it changed meanwhile.

        Raises:
            NoTailError: of the main transcript or of one with references there is a saved state that does not fit.
            SessionError: `changed`: as often as the context allows; `corrupt`; `protocol`, `incomplete`,
                `digest_mismatch`.
            WorkspaceError: `not_found`, `not_a_file`, `access`.
            LimitError: `max_bytes`, `disk_full`, `read_only`.
        """
        left = self._retries
        while True:
            try:
                fetched = await self._attempt(order)
            except WorkspaceError as error:
                if error.reason != "changed":
                    raise
                if not left:
                    raise SessionError("changed", error.message, hint=error.hint, facts=error.facts) from None
                left -= 1
            else:
                self._tally.end_file(fetched.entry.size if fetched.entry else sum(map(len, fetched.lines)))
                return fetched

    async def _attempt(self, order: Order) -> Fetched:
        if order.member.kind == "lines":
            return await self._lines(order)
        is_stream = order.member.kind == "transcript" and not is_compressed(order.member.path)
        whole = self._transcript if order.member.kind == "transcript" else self._plain
        if order.saved is None:
            return await whole(order)
        if not is_stream:
            return await self._same(order) or await whole(order)
        try:
            return await self._tail(order, order.saved)
        except NoTailError as error:
            if order.is_main or order.cuts or order.reference:
                raise
            fetched = await whole(order)
            notice = full_capture(printable(str(order.member.path)), str(error))
            return replace(fetched, notices=[notice, *fetched.notices])

    async def _transcript(self, order: Order) -> Fetched:
        """Fetch a transcript whole."""
        packed = is_compressed(order.member.path)
        redactor = Redactor(self._rules) if self._rules else None
        scan = TranscriptScan(keys=self._layout.collected_keys, is_record=self._layout.is_record)
        relocator = Relocator(self._destination, origin=order.origin)
        staged = await in_thread(self._staging.new)
        # What is packed cannot be packed again to the same bytes: when nothing changes, it goes as it came.
        raw = await in_thread(self._staging.new) if packed and redactor is None else None
        stream = TranscriptStream(
            self._counted(staged),
            relocator,
            redactor=redactor,
            scan=scan if order.is_main else None,
            digits=_digits(order),
            cuts=order.cuts,
            is_compressed=packed,
        )
        source = LineDigest()

        def take(data: bytes) -> None:
            if raw is not None:
                raw.write(data)
            stream.feed(data)

        try:
            read = await self._read(order, take, source)
            if packed and read.grew:
                raise WorkspaceError("changed", f"{printable(str(read.info.path))} grew while it was read")
            await in_thread(stream.finish, whole_lines=not packed and (read.grew or self._in_use))
            kept = staged if raw is None or stream.is_changed else raw
            await in_thread(kept.finish, durable=self._durable)
        finally:
            await in_thread(_close, staged, raw)
        parts = ((source.size_bytes, source.digest()),) if packed else ((source.line_bytes, source.line_digest()),)
        saved = SavedFile(
            place=str(order.place),
            size=kept.size_bytes,
            sha256=kept.digest.digest(),
            parts=parts if parts[0][0] and not self._rules else (),
            line_bytes=kept.size_bytes if packed else kept.digest.line_bytes,
            line_sha256=kept.digest.digest() if packed else kept.digest.line_digest(),
            cuts={cut: stream.cut_positions[cut] for cut in order.cuts},
            reference=order.saved_reference,
        )
        return replace(
            _fetched(order, Placing(order.place, kept.name, known=_known(order)), saved, redactor),
            origin=relocator.origin,
            scan=scan if order.is_main else None,
            notices=_grown(order, read),
        )

    async def _tail(self, order: Order, saved: SavedFile) -> Fetched:
        """Fetch what was appended to a transcript."""
        if order.saved_reference != saved.reference or len(saved.parts) >= MAX_PARTS_COUNT:
            raise NoTailError("the transcript that it refers to has changed")
        new_cuts = order.cuts.difference(saved.cuts)
        if any(cut < saved.parts_bytes for cut in new_cuts):
            raise NoTailError("another transcript refers to it anew")
        scan = TranscriptScan(keys=self._layout.collected_keys, is_record=self._layout.is_record)
        if order.saved_scan is not None:
            scan.resume(
                read_bytes=saved.line_bytes,
                origin=order.saved_scan.origin,
                has_record=order.saved_scan.has_record,
                nul_at=order.saved_scan.nul_at,
                collected=order.saved_scan.collected,
            )
        relocator = Relocator(self._destination, origin=order.origin)
        staged = await in_thread(self._staging.new)
        stream = TranscriptStream(
            self._counted(staged),
            relocator,
            scan=scan if order.is_main else None,
            cuts=new_cuts,
            start=(saved.parts_bytes, saved.line_bytes),
        )
        source = LineDigest()
        try:
            # While the daemon hashes what was taken before, so that on two processors it costs no time.
            async with task_group() as group:
                is_believed = await in_thread(self._is_as_left, order.place, saved)
                looks = order.is_main or not is_believed
                hashing = group.create_task(in_thread(self._beginning, order.place, saved)) if looks else None
                try:
                    read = await self._read(order, stream.feed, source, saved.parts)
                except SessionError as error:
                    if error.reason != "digest_mismatch":
                        raise
                    raise NoTailError("the sandbox's file does not begin with what was captured before") from None
            await in_thread(stream.finish, whole_lines=read.grew or self._in_use)
            await in_thread(staged.finish, durable=self._durable)
        finally:
            await in_thread(_close, staged)
        if not staged.size_bytes and is_believed and saved.size == saved.line_bytes:
            kept = saved
            placing = Placing(order.place, "")
            if hashing is not None and hashing.result() is None:
                raise NoTailError("the copy on the host was changed")
        else:
            start = hashing.result() if hashing else await in_thread(self._beginning, order.place, saved)
            relation = await in_thread(self._relation, order.place, saved, staged) if start else "other"
            if start is None or relation == "other":
                raise NoTailError("the copy on the host was changed")
            digest = await in_thread(self._going_on, start, saved, staged)
            kept = SavedFile(
                place=saved.place,
                size=digest.size_bytes,
                sha256=digest.digest(),
                line_bytes=digest.line_bytes,
                line_sha256=digest.line_digest(),
            )
            placing = Placing(order.place, "" if relation == "equal" else staged.name, saved.line_bytes, _known(order))
        added = ((source.line_bytes, source.line_digest()),) if source.line_bytes else ()
        cuts = {**saved.cuts, **stream.cut_positions}
        kept = replace(
            kept,
            parts=(*saved.parts, *added),
            cuts={cut: cuts[cut] for cut in order.cuts},
            reference=saved.reference,
        )
        return replace(
            _fetched(order, placing, kept),
            origin=relocator.origin,
            scan=scan if order.is_main else None,
            notices=_grown(order, read),
        )

    async def _plain(self, order: Order) -> Fetched:
        """Fetch a file that is no transcript, whole."""
        redactor = redactor_for(str(order.member.path), self._rules) if self._rules else None
        staged = await in_thread(self._staging.new)
        write, source = self._counted(staged), LineDigest()

        def take(data: bytes) -> None:
            for piece in redactor.feed(data) if redactor else (data,):
                write(piece)

        def finish() -> bool:
            rest = list(redactor.finish()) if redactor else []
            if isinstance(redactor, DocumentRedactor) and redactor.is_binary and self._refuses_binary:
                return True
            for piece in rest:
                write(piece)
            staged.finish(durable=self._durable)
            return False

        try:
            await self._read(order, take, source)
            is_refused = await in_thread(finish)
        finally:
            await in_thread(_close, staged)
        size, sha256 = staged.size_bytes, staged.digest.digest()
        saved = SavedFile(
            place=str(order.place),
            size=size,
            sha256=sha256,
            parts=((source.size_bytes, source.digest()),) if source.size_bytes and not redactor else (),
            line_bytes=size,
            line_sha256=sha256,
        )
        fetched = _fetched(order, Placing(order.place, staged.name, known=_known(order)), saved, redactor)
        return replace(fetched, is_refused=is_refused)

    async def _same(self, order: Order) -> Fetched | None:
        """Look whether a file is what it was on both sides; None when it is not."""
        saved = order.saved
        if saved is None or order.cuts.difference(saved.cuts) or order.saved_reference != saved.reference:
            return None
        is_believed = await in_thread(self._is_as_left, order.place, saved)
        if not is_believed and await in_thread(self._beginning, order.place, saved) is None:
            return None
        try:
            await self._read(order, _no_more, None, saved.parts)
        except (_MoreError, SessionError) as error:
            if isinstance(error, SessionError) and error.reason != "digest_mismatch":
                raise
            return None
        return _fetched(order, Placing(order.place, ""), saved)

    async def _lines(self, order: Order) -> Fetched:
        """Fetch the lines of a shared file that belong to the conversation."""
        member, blocks, lines = order.member, LineBlocks(), list[bytes]()

        def select(data: bytes | bytearray) -> None:
            lines.extend(selected_lines((bytes(data),), member.key, member.values))
            self._tally.check(sum(map(len, lines)))

        def take(data: bytes) -> None:
            for block in blocks.feed(data):
                select(block)

        read = await self._read(order, take, None)
        if not (read.grew or self._in_use):
            await in_thread(select, blocks.rest)
        if self._rules is None:
            return Fetched(member, order.place, lines=lines)
        redactor = Redactor(self._rules)
        redacted = await in_thread(lambda: [b"".join(redactor.feed(line)) for line in lines])
        return Fetched(member, order.place, lines=redacted, redactions=redactor.counts)

    @property
    def _refuses_binary(self) -> bool:
        return self._rules is not None and self._rules.binary == "refuse"

    def _counted(self, staged: StagedFile) -> Callable[[bytes], None]:
        def write(data: bytes) -> None:
            staged.write(data)
            self._tally.check(staged.size_bytes)

        return write

    async def _read(
        self,
        order: Order,
        write: Callable[[bytes], object],
        digest: LineDigest | None,
        parts: Sequence[tuple[int, bytes]] = (),
    ) -> ReadFile:
        held_bytes = sum(size for size, _ in parts)
        self._tally.skip(held_bytes)
        return await self._files.read(
            self._sandbox_home / order.member.path,
            write,
            offset=held_bytes,
            prefix_sha256=b"".join(sha256 for _, sha256 in parts),
            prefix_sizes=[size for size, _ in parts] if len(parts) > 1 else (),
            max_bytes=self._tally.limits.max_bytes,
            after_chunk=self._tally.add,
            digest=digest,
        )

    def _is_as_left(self, place: PurePosixPath, saved: SavedFile) -> bool:
        """Tell whether the host's file is believed to be what a capture left there."""
        try:
            with self._home.open(place.parent.parts) as folder, opened_file(folder, place.name) as fd:
                return file_identity(fd) == saved.identity
        except (OSError, WorkspaceError):
            return False

    def _beginning(self, place: PurePosixPath, saved: SavedFile) -> _Hash | None:
        """Hash what a capture left on the host, to go on with; None when it is not there any more."""
        sha256, left_bytes = hashlib.sha256(), saved.line_bytes
        try:
            with self._home.open(place.parent.parts) as folder, opened_file(folder, place.name) as fd:
                at = 0
                while left_bytes and (data := os.pread(fd, min(left_bytes, CHUNK_BYTES), at)):
                    sha256.update(data)
                    at += len(data)
                    left_bytes -= len(data)
        except (OSError, WorkspaceError):
            return None
        return sha256 if not left_bytes and sha256.digest() == saved.line_sha256 else None

    def _relation(self, place: PurePosixPath, saved: SavedFile, staged: StagedFile) -> str:
        """Tell what the host has behind the part that is gone on with, compared with what is new."""
        try:
            with (
                self._home.open(place.parent.parts) as folder,
                opened_file(folder, place.name) as old,
                opened_file(self._staging.folder, staged.name) as new,
            ):
                return relation_of(old, new, saved.line_bytes)
        except OSError:
            return "other"

    def _going_on(self, start: _Hash, saved: SavedFile, staged: StagedFile) -> LineDigest:
        digest = LineDigest(start, saved.line_bytes)
        with opened_file(self._staging.folder, staged.name) as fd:
            at = 0
            while data := os.pread(fd, CHUNK_BYTES, at):
                digest.update(data)
                at += len(data)
        return digest


def _fetched(
    order: Order, placing: Placing, saved: SavedFile, redactor: Redactor | DocumentRedactor | None = None
) -> Fetched:
    return Fetched(
        order.member,
        order.place,
        placing,
        Entry(os.fsencode(order.place), saved.size, saved.sha256),
        saved,
        redactions=redactor.counts if redactor else {},
    )


def full_capture(path: str, why: str) -> Notice:
    """Say that a file was captured whole although a part of it was there, and why."""
    return Notice("full_capture", f"{path} was captured whole: {why}", path)


def refused(fetched: Sequence[Fetched]) -> SessionError | None:
    """Return the failure about files that are not text and had to be redacted; None when there are none."""
    found = [item.member.path for item in fetched if item.is_refused]
    if not found:
        return None
    return SessionError(
        "redaction_unsupported",
        f"{len(found)} file(s) are not text and cannot be redacted",
        hint="let them pass as they are, by an explicit choice",
        offenders=(Offender(printable(str(path)), "is not UTF-8 text") for path in found),
    )


def redactions_of(fetched: Sequence[Fetched], rules: Redaction | None) -> Mapping[str, int]:
    """Return the hits of each rule in all files."""
    counts = Counter({rule.name: 0 for rule in rules.rules} if rules else {})
    for item in fetched:
        counts.update(item.redactions)
    return dict(counts)


def _no_more(data: bytes) -> None:
    if data:
        raise _MoreError


def _close(*files: StagedFile | None) -> None:
    for file in files:
        if file is not None:
            file.close()


def _digits(order: Order) -> Digits | None:
    if order.reference is None:
        return None
    reference, position = order.reference
    if position == reference.offset:
        return None
    return Digits(*reference.span, b"%d" % position)


def _known(order: Order) -> KnownFile | None:
    known = order.known
    return None if known is None else KnownFile(known.size, known.sha256, known.identity)


def _grown(order: Order, read: ReadFile) -> Sequence[Notice]:
    if not read.grew:
        return ()
    path = printable(str(order.member.path))
    return (Notice("grew", f"{path} grew while it was read and is captured up to the last whole line then", path),)
