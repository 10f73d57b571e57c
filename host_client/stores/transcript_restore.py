"""The restore of a transcript conversation: read once on this host, moved on the way, put in place as one step.

The one rule: the daemon is told to commit only after everything that was read has the digest of the record.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from host_client.errors import ConflictError, Offender, SessionError, printable
from host_client.sandbox.progress import Reporter
from host_client.sandbox.task import in_thread
from host_client.session.transcript_scan import TranscriptScan
from host_client.stores.contract import RestoreOutcome
from host_client.stores.transcript_copy import conversation_places
from host_client.stores.transcript_home import HostFiles, HostHome
from host_client.stores.transcript_kept import (
    effective_limits,
    kept_members,
    read_kept,
    transcript_notices,
)
from host_client.stores.transcript_member import below, kept_digest
from host_client.stores.transcript_move import Move
from host_client.stores.transcript_place import sandbox_place, transcripts
from host_client.stores.transcript_relative import find_relatives
from host_client.stores.transcript_sending import Sending
from sandbox_api.lock import MAX_SIGNS_COUNT, LockSign

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import PurePosixPath

    from host_client.sandbox.transcript_restore import RestoredTranscript
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord
    from host_client.stores.layout import SandboxPlace, TranscriptLayout

_MAX_RELOCATED_COUNT = 100
RECORD_HINT = "give the conversation_home that the record was captured or located with"


def host_context(context: ConversationContext) -> ConversationContext:
    """Return the context, with a repository even if it names nothing: what only reads keeps nothing on this host."""
    return context if context.conversation_home or context.repository else replace(context, repository=Path("/"))


def is_here(
    record: ConversationRecord,
    context: ConversationContext,
    home: HostHome,
    place: SandboxPlace,
    target: PurePosixPath,
) -> bool:
    """Tell whether the sandbox is this host itself, and the record's file the very file that is there; blocks."""
    return (
        context.connected.is_local
        and not record.reference
        and home.host_path.resolve() == Path(place.home)
        and home.repository == Path(place.root)
        and home.host_path / target == record.path
    )


def origin_scan(layout: TranscriptLayout, files: HostFiles, main: PurePosixPath) -> TranscriptScan:
    """Look at a main transcript: up to its origin, or to its end when the layout collects values; blocks."""
    scan = TranscriptScan(keys=layout.collected_keys)
    for piece in files.content(main):
        scan.feed(piece)
        if scan.origin is not None and not layout.collected_keys:
            return scan
    scan.finish()
    return scan


async def restore(layout: TranscriptLayout, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
    """Put a conversation of this host in place in a sandbox; see `TranscriptConversations.restore`."""
    return await _Restore(layout, record, context, time.perf_counter()).run()


@dataclass(frozen=True, slots=True)
class _Restore:
    layout: TranscriptLayout
    record: ConversationRecord
    context: ConversationContext
    started_seconds: float

    async def run(self) -> RestoreOutcome:
        layout, record, context = self.layout, self.record, self.context
        files = HostFiles(await in_thread(HostHome.of, layout, host_context(context)))
        main = below(files.home.host_path, record.path, "the path of the record", hint=RECORD_HINT)
        place = await sandbox_place(layout, context)
        remote = layout.remote_path(record.conversation_id, place, record.path)
        target = below(place.home, remote, "the layout's remote_path")
        if await in_thread(is_here, record, context, files.home, place, target):
            return await self._unchanged(files, main, place.home / target)
        scan = await in_thread(origin_scan, layout, files, main)
        named, missing = await kept_members(layout, record.conversation_id, files, main, scan.collected)
        places = named.places(target)
        await refuse_copies(layout, context, place, conversation_places(layout, named, places))
        notices = [*missing, *(note for note in transcript_notices(scan, main) if note.reason == "no_origin")]
        move = Move(layout, files.content, named.transcripts, destination=str(place.root), origin=scan.origin)
        sending = Sending(files, named, places, move)
        await in_thread(sending.expect, effective_limits(context))
        relatives = await find_relatives(layout, context.connected.files, place, sending)
        sending.leave(relatives.ahead)
        reporter = Reporter(context.progress)

        def after_chunk(size: int) -> None:
            sending.sent_bytes += size
            reporter.report(sending.progress)

        restored = await context.connected.transcripts.restore(
            place.home,
            layout.format,
            record.conversation_id,
            sending.sources(),
            before_commit=lambda: self._check_digest(kept_digest(sending.entries.values())),
            full_durability=context.is_durable,
            owner=context.owner,
            force=context.force,
            locks=locks_of(layout, (record.conversation_id, *relatives.different)),
            expected_bytes=sending.expected_bytes,
            after_chunk=after_chunk,
            restore_id=context.restore_id,
        )
        reporter.finish(sending.finished)
        notices += relatives.notices
        outcome = outcome_of(layout, record.conversation_id, place.home / target, restored, self.started_seconds)
        return replace(outcome, relocated=shown_paths(sending.relocated), notices=notices)

    async def _unchanged(self, files: HostFiles, main: PurePosixPath, target: PurePosixPath) -> RestoreOutcome:
        kept = await read_kept(
            self.layout, self.record.conversation_id, files, main, limits=effective_limits(self.context)
        )
        self._check_digest(kept.digest)
        return RestoreOutcome(
            format=self.layout.format,
            conversation_id=self.record.conversation_id,
            target=target,
            unchanged=True,
            recovery="",
            digest=kept.digest,
            files_count=len(kept.entries),
            bytes_count=kept.bytes_count,
            sent_bytes=0,
            relocated=(),
            not_atomic=False,
            duration_seconds=time.perf_counter() - self.started_seconds,
            notices=kept.notices,
        )

    def _check_digest(self, digest: str) -> None:
        if digest != self.record.digest:
            raise SessionError(
                "digest_mismatch",
                f"the conversation at {printable(str(self.record.path))} is no longer the one of the record",
                hint="locate the conversation again",
            )


def locks_of(layout: TranscriptLayout, conversation_ids: Iterable[str]) -> Sequence[LockSign]:
    """Return the signs that any of some conversations is open, at most as many as a daemon takes."""
    return [sign for one in conversation_ids for sign in layout.locks(one)][:MAX_SIGNS_COUNT]


async def refuse_copies(
    layout: TranscriptLayout,
    context: ConversationContext,
    place: SandboxPlace,
    targets: Mapping[str, PurePosixPath],
) -> None:
    """Refuse to put a second copy of a conversation beside one that the CLI may take instead.

    Args:
        layout: Tells which files are whose.
        context: Has the sandbox.
        place: Of the sandbox.
        targets: Where each conversation goes, by its id.

    Raises:
        ConflictError: `other_bucket`.
        OutpostError: those of `transcripts`.
    """
    copies: list[Offender] = []
    for conversation_id, target in targets.items():
        async for _, path, info in transcripts(layout, context, place, conversation_id):
            if path != target:
                copies.append(Offender(printable(str(info.path)), f"has the id {conversation_id}"))
    if copies:
        raise ConflictError(
            "other_bucket",
            f"{len(copies)} other transcript(s) at the target have the id of what would be restored",
            hint="remove or move them, or restore into a home of its own",
            offenders=copies,
        )


def shown_paths(paths: Sequence[PurePosixPath]) -> Sequence[str]:
    """Return the first hundred of some paths, printable."""
    return [printable(str(path)) for path in paths[:_MAX_RELOCATED_COUNT]]


def outcome_of(
    layout: TranscriptLayout,
    conversation_id: str,
    target: PurePosixPath,
    restored: RestoredTranscript,
    started_seconds: float,
) -> RestoreOutcome:
    """Return what came of a restore, without what was relocated and without notices."""
    return RestoreOutcome(
        format=layout.format,
        conversation_id=conversation_id,
        target=target,
        unchanged=restored.unchanged,
        recovery=restored.recovery,
        digest=kept_digest(restored.entries),
        files_count=restored.files_count,
        bytes_count=restored.bytes_count,
        sent_bytes=restored.sent_bytes,
        resumed_bytes=restored.resumed_bytes,
        relocated=(),
        not_atomic=False,
        duration_seconds=time.perf_counter() - started_seconds,
    )
