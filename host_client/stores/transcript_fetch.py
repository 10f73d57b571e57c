"""One file of a conversation on its way out of the sandbox: as a whole, or what was appended to it.

The one rule: what counts has been verified. A part of a file is taken only behind what the daemon has compared with
what was taken before, and put only behind what the host's file still is.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from host_client.errors import LimitError, SessionError, WorkspaceError, printable
from host_client.sandbox.task import in_thread, opened_in_thread, task_group
from host_client.session.compression import is_compressed
from host_client.session.failure import named_failures
from host_client.session.line_block import LineBlocks
from host_client.session.line_selection import selected_lines
from host_client.session.part_digest import PART_BYTES, PartDigest
from host_client.session.redactor import DocumentRedactor, Redactor, redactor_for
from host_client.session.relocate import Relocator
from host_client.session.transcript_beginning import Beginning
from host_client.session.transcript_scan import TranscriptScan
from host_client.session.transcript_state import MAX_PARTS_COUNT, SavedFile
from host_client.session.transcript_stream import TranscriptStream
from host_client.session.transcript_writer import WriteBehind, close_all, teed
from host_client.stores.contract import Notice
from host_client.stores.transcript_order import Fetched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import PurePosixPath

    from host_client.sandbox.file import ReadFile
    from host_client.session.redaction import Redaction
    from host_client.session.transcript_writer import StagedFile, Staging
    from host_client.stores.context import ConversationContext
    from host_client.stores.layout import TranscriptLayout
    from host_client.stores.relay_spool import Spool
    from host_client.stores.transcript_home import HostHome
    from host_client.stores.transcript_order import Order
    from host_client.stores.transcript_tally import Tally


_MAX_LINES_BYTES = 16 << 20
"""Most of a shared file that belongs to one conversation: it is held in memory, and written at once."""


class NoTailError(Exception):
    """A file cannot be gone on with, it must be captured whole; the text says why."""


class _MoreError(Exception):
    """A file that was to be the same has more."""


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
        spool: What others read the new content from while it comes; None: nobody does.
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
        spool: Spool | None = None,
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
        self._spool = spool
        self._destination = os.fspath(home.repository)

    async def fetch(self, order: Order) -> Fetched:
        """Fetch one file, again when it changed meanwhile.

        Raises:
            NoTailError: what the last capture left of a transcript cannot be gone on with.
            SessionError: `changed`: as often as the context allows; `corrupt`; `protocol`, `incomplete`,
                `digest_mismatch`.
            WorkspaceError: `not_found`, `not_a_file`, `access`.
            LimitError: `max_bytes`, `disk_full`, `read_only`.
        """
        left = self._retries
        while True:
            try:
                with named_failures(order.member.path):
                    fetched = await self._attempt(order)
            except WorkspaceError as error:
                if error.reason != "changed":
                    raise
                if not left:
                    raise SessionError("changed", error.message, hint=error.hint, facts=error.facts) from None
                left -= 1
            else:
                self._tally.end_file(fetched.entry.size if fetched.entry else sum(map(len, fetched.lines)))
                if self._spool is not None:
                    self._spool.end(fetched, self._staging)
                return fetched

    async def _attempt(self, order: Order) -> Fetched:
        if order.member.kind == "lines":
            return await self._lines(order)
        is_transcript = order.member.kind == "transcript"
        if order.saved is None:
            return await (self._transcript if is_transcript else self._plain)(order)
        if is_transcript and not is_compressed(order.member.path):
            return await self._tail(order, order.saved)
        same = await self._same(order, order.saved)
        if same is None and is_transcript:
            raise NoTailError("a compressed transcript was changed")
        return same or await self._plain(order)

    async def _transcript(self, order: Order) -> Fetched:
        """Fetch a transcript whole."""
        packed = is_compressed(order.member.path)
        redactor = Redactor(self._rules) if self._rules else None
        scan = TranscriptScan(keys=self._layout.collected_keys, is_record=self._layout.is_record)
        relocator = Relocator(self._destination, origin=order.origin)
        staged = await in_thread(self._staging.new)
        # What is packed cannot be packed again to the same bytes: when nothing changes, it goes as it came.
        raw = await in_thread(self._staging.new) if packed and redactor is None else None
        source = PartDigest()
        stream = TranscriptStream(
            self._spooled(staged, order) or self._counted(staged),
            relocator,
            redactor=redactor,
            scan=scan if order.is_main else None,
            digits=order.digits,
            cuts=order.cuts,
            is_compressed=packed,
            check=self._tally.check,
        )
        try:
            # The steps take more time than the receipt: they run beside it, some pieces behind.
            async with opened_in_thread(WriteBehind, teed(raw, stream.feed)) as behind:
                read = await self._read(order, behind.write, source)
                if packed and read.grew:
                    raise WorkspaceError("changed", f"{printable(str(read.info.path))} grew while it was read")
                await in_thread(behind.finish)
            await in_thread(stream.finish, whole_lines=not packed and (read.grew or self._in_use))
            kept = staged if raw is None or stream.is_changed else raw
            await in_thread(kept.finish, durable=self._durable)
        finally:
            await in_thread(close_all, staged, raw)
        parts = source.parts if packed else source.line_parts
        saved = SavedFile(
            place=str(order.place),
            size=kept.size_bytes,
            sha256=kept.digest.digest(),
            parts=tuple(parts),
            line_bytes=kept.size_bytes if packed else kept.digest.line_bytes,
            line_sha256=kept.digest.digest() if packed else kept.digest.line_digest(),
            cuts={cut: stream.cut_positions[cut] for cut in order.cuts},
            reference=order.saved_reference,
        )
        return replace(
            order.fetched(
                order.placing(kept.name, size_bytes=kept.size_bytes), saved, redactor.counts if redactor else None
            ),
            origin=relocator.origin,
            scan=scan if order.is_main else None,
            notices=_grown(order, read),
        )

    async def _tail(self, order: Order, saved: SavedFile) -> Fetched:
        """Fetch what was appended to a transcript."""
        if order.saved_reference != saved.reference:
            raise NoTailError("the transcript that it refers to has changed")
        if len(saved.parts) >= MAX_PARTS_COUNT:
            raise NoTailError(f"it came in {len(saved.parts)} parts by now")
        new_cuts = order.cuts.difference(saved.cuts)
        if any(cut < saved.parts_bytes for cut in new_cuts):
            raise NoTailError("another transcript refers to it anew")
        scan = TranscriptScan(keys=self._layout.collected_keys, is_record=self._layout.is_record)
        if order.saved_scan is not None:
            order.saved_scan.resume(scan, saved.line_bytes)
        relocator = Relocator(self._destination, origin=order.origin)
        staged = await in_thread(self._staging.new)
        stream = TranscriptStream(
            self._counted(staged),
            relocator,
            scan=scan if order.is_main else None,
            cuts=new_cuts,
            start=(saved.parts_bytes, saved.line_bytes),
        )
        source, beginning = PartDigest(), self._beginning(order, saved)
        try:
            # While the daemon hashes what was taken before, so that on two processors it costs no time.
            async with task_group() as group:
                is_believed = await in_thread(beginning.is_believed)
                looks = order.is_main or not is_believed
                hashing = group.create_task(in_thread(beginning.hashed)) if looks else None
                try:
                    read = await self._read(order, stream.feed, source, saved.parts)
                except SessionError as error:
                    if error.reason != "digest_mismatch":
                        raise
                    raise NoTailError("the sandbox's file does not begin with what was captured before") from None
            await in_thread(stream.finish, whole_lines=read.grew or self._in_use)
            await in_thread(staged.finish, durable=self._durable)
        finally:
            await in_thread(close_all, staged)
        if not staged.size_bytes and is_believed and saved.size == saved.line_bytes:
            kept = saved
            placing = order.placing("")
            if hashing is not None and hashing.result() is None:
                raise NoTailError("the copy on the host was changed")
        else:
            start = hashing.result() if hashing else await in_thread(beginning.hashed)
            relation = await in_thread(beginning.relation, self._staging.folder, staged.name) if start else "other"
            if start is None or relation == "other":
                raise NoTailError("the copy on the host was changed")
            digest = await in_thread(beginning.gone_on, start, self._staging.folder, staged.name)
            kept = SavedFile(
                place=saved.place,
                size=digest.size_bytes,
                sha256=digest.digest(),
                line_bytes=digest.line_bytes,
                line_sha256=digest.line_digest(),
            )
            placing = order.placing("" if relation == "equal" else staged.name, saved.line_bytes)
        cuts = {**saved.cuts, **stream.cut_positions}
        kept = replace(
            kept,
            parts=(*saved.parts, *source.line_parts),
            cuts={cut: cuts[cut] for cut in order.cuts},
            reference=saved.reference,
        )
        return replace(
            order.fetched(placing, kept),
            origin=relocator.origin,
            scan=scan if order.is_main else None,
            notices=_grown(order, read),
        )

    async def _plain(self, order: Order) -> Fetched:
        """Fetch a file that is no transcript, whole."""
        redactor = redactor_for(str(order.member.path), self._rules) if self._rules else None
        staged = await in_thread(self._staging.new)
        write, source = self._counted(staged), PartDigest()

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
            await in_thread(close_all, staged)
        size, sha256 = staged.size_bytes, staged.digest.digest()
        saved = SavedFile(
            place=str(order.place),
            size=size,
            sha256=sha256,
            parts=tuple(source.parts),
            line_bytes=size,
            line_sha256=sha256,
        )
        fetched = order.fetched(order.placing(staged.name), saved, redactor.counts if redactor else None)
        return replace(fetched, is_refused=is_refused)

    async def _same(self, order: Order, saved: SavedFile) -> Fetched | None:
        """Look whether a file is what it was on both sides; None when it is not."""
        if order.cuts.difference(saved.cuts) or order.saved_reference != saved.reference:
            return None
        if len(saved.parts) >= MAX_PARTS_COUNT:  # more than a daemon takes
            return None
        beginning = self._beginning(order, saved)
        if not await in_thread(beginning.is_believed) and await in_thread(beginning.hashed) is None:
            return None
        try:
            await self._read(order, _no_more, None, saved.parts)
        except (_MoreError, SessionError) as error:
            if isinstance(error, SessionError) and error.reason != "digest_mismatch":
                raise
            return None
        return order.fetched(order.placing(""), saved)

    async def _lines(self, order: Order) -> Fetched:
        """Fetch the lines of a shared file that belong to the conversation."""
        member, blocks, lines, lines_bytes = order.member, LineBlocks(), list[bytes](), 0

        def select(data: bytes | bytearray) -> None:
            nonlocal lines_bytes
            for line in selected_lines((bytes(data),), member.key, member.values):
                lines.append(line)
                lines_bytes += len(line)
            self._tally.check(lines_bytes)
            if lines_bytes > _MAX_LINES_BYTES:
                problem = f"more than {_MAX_LINES_BYTES >> 20} MiB of its lines belong to the conversation"
                raise LimitError("max_bytes", f"{printable(str(member.path))}: {problem}")

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

    def _beginning(self, order: Order, saved: SavedFile) -> Beginning:
        return Beginning(lambda: self._home.open(order.place.parent.parts), order.place.name, saved)

    @property
    def _refuses_binary(self) -> bool:
        return self._rules is not None and self._rules.binary == "refuse"

    def _spooled(self, staged: StagedFile, order: Order) -> Callable[[bytes], None] | None:
        """Return what writes a main transcript that others read while it comes; None where they must not yet."""
        if self._spool is None or not order.is_main or self._retries:
            return None
        spool, write = self._spool, self._counted(staged)
        file = spool.begin(order.place, "transcript", self._staging, staged.name)

        def take(data: bytes) -> None:
            write(data)
            spool.grow(file, staged)

        return take

    def _counted(self, staged: StagedFile) -> Callable[[bytes], None]:
        def write(data: bytes) -> None:
            staged.write(data)
            self._tally.check(staged.size_bytes)

        return write

    async def _read(
        self,
        order: Order,
        write: Callable[[bytes], object],
        digest: PartDigest | None,
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
            part_bytes=PART_BYTES if digest else 0,
            max_bytes=self._tally.limits.max_bytes,
            after_chunk=self._tally.add,
            before_chunk=self._spool.pace if self._spool else None,
            digest=digest,
        )


def _no_more(data: bytes) -> None:
    if data:
        raise _MoreError


def _grown(order: Order, read: ReadFile) -> Sequence[Notice]:
    if not read.grew:
        return ()
    path = printable(str(order.member.path))
    return (Notice("grew", f"{path} grew while it was read and is captured up to the last whole line then", path),)
