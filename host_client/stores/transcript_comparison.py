"""What a sandbox has of a transcript conversation, beside what this host keeps of it.

The one rule: neither side changes, and only what was compared byte for byte, by digest or by content, is told to be the
same or to have gone on.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from host_client.errors import SessionError
from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.session.compression import decompressed, is_compressed
from host_client.stores import transcript_capture
from host_client.stores.content_comparison import compare_contents
from host_client.stores.layout import Related
from host_client.stores.transcript_home import HostFiles, HostHome
from host_client.stores.transcript_kept import kept_members
from host_client.stores.transcript_member import below
from host_client.stores.transcript_move import Move
from host_client.stores.transcript_place import sandbox_place, transcripts
from host_client.stores.transcript_relative import is_there, state_of
from host_client.stores.transcript_restore import RECORD_HINT, host_context, is_here, origin_scan
from host_client.stores.transcript_sending import Sending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import PurePosixPath

    from host_client.sandbox.file import FileInfo
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import Comparison, ConversationRecord
    from host_client.stores.layout import TranscriptLayout


async def compare(layout: TranscriptLayout, record: ConversationRecord, context: ConversationContext) -> Comparison:
    """Compare a conversation of this host with the sandbox's; see `TranscriptConversations.compare`."""
    place = await sandbox_place(layout, context)
    conversation_id = record.conversation_id
    files = HostFiles(await in_thread(HostHome.of, layout, host_context(context)))
    main = below(files.home.host_path, record.path, "the path of the record", hint=RECORD_HINT)
    remote = layout.remote_path(conversation_id, place, record.path)
    target = below(place.home, remote, "the layout's remote_path")
    if await in_thread(is_here, record, context, files.home, place, target):
        return "same"
    found = {path: info async for _, path, info in transcripts(layout, context, place, conversation_id)}
    if not found:
        return "absent"
    ours = await _Side.of(layout, conversation_id, files, main, str(place.root))
    is_redacted = context.redaction is not None and bool(context.redaction.rules)
    if set(found) == {target} and not is_redacted and not is_compressed(target):
        comparison = await _by_digest(ours, context, found[target])
        if comparison == "same" and await _lacks_files(ours, context, place.home, target):
            return "behind"
        if comparison is not None:
            return comparison
    return await _by_content(layout, conversation_id, context, ours)


@dataclass(frozen=True, slots=True)
class _Side:
    """A conversation as files of this host, on its way to a working directory.

    Attributes:
        main: Its main transcript.
        sending: Reads and moves it.
        destination: The working directory.
    """

    main: PurePosixPath
    sending: Sending
    destination: str

    @classmethod
    async def of(
        cls, layout: TranscriptLayout, conversation_id: str, files: HostFiles, main: PurePosixPath, destination: str
    ) -> _Side:
        scan = await in_thread(origin_scan, layout, files, main)
        named, _ = await kept_members(layout, conversation_id, files, main, scan.collected)
        move = Move(layout, files.content, named.transcripts, destination=destination, origin=scan.origin)
        return cls(main, Sending(files, named, {}, move), destination)

    def pieces(self) -> Iterator[bytes]:
        """Yield the main transcript as it belongs at the destination, never compressed; blocks."""
        pieces = self.sending.pieces(Related(self.main, "transcript", required=True))
        return decompressed(pieces) if is_compressed(self.main) else pieces


async def _by_digest(ours: _Side, context: ConversationContext, theirs: FileInfo) -> Comparison | None:
    """Compare main transcripts by what the daemon says of the sandbox's; None when that settles nothing."""
    size, sha256, beginning = await in_thread(_digests, ours.pieces(), theirs.size)
    files = context.connected.files
    if size <= theirs.size:
        state = await state_of(files, theirs.path, size, sha256)
        return None if state == "different" else state
    state = await state_of(files, theirs.path, theirs.size, beginning)
    return "behind" if state == "same" else None


def _digests(pieces: Iterable[bytes], beginning_bytes: int) -> tuple[int, bytes, bytes]:
    """Return size and SHA-256 of a content, and the SHA-256 of so much of its beginning."""
    sha256, size, beginning = hashlib.sha256(), 0, b""
    for piece in pieces:
        before = beginning_bytes - size
        if 0 <= before < len(piece):
            sha256.update(piece[:before])
            beginning = sha256.digest()
            sha256.update(piece[before:])
        else:
            sha256.update(piece)
        size += len(piece)
    return size, sha256.digest(), beginning


async def _lacks_files(
    ours: _Side, context: ConversationContext, sandbox_home: PurePosixPath, target: PurePosixPath
) -> bool:
    """Tell whether a file that belongs to the conversation on this host is missing in the sandbox."""
    members = ours.sending.members
    places = members.places(target)
    for member in members.related:
        path = sandbox_home / places[member.path]
        if member.kind != "lines" and not await is_there(context.connected.files, path):
            return True
    return False


async def _by_content(
    layout: TranscriptLayout, conversation_id: str, context: ConversationContext, ours: _Side
) -> Comparison:
    """Compare main transcripts by having the sandbox's captured, as this host would keep it."""
    async with opened_in_thread(tempfile.TemporaryDirectory, prefix="outpost-") as directory:
        there = replace(context, conversation_home=Path(directory), durability="none", allow_empty=True, progress=None)
        try:
            captured = await transcript_capture.capture(layout, conversation_id, there)
        except SessionError as error:
            if error.reason not in ("not_found", "missing_required"):
                raise
            return "absent" if error.reason == "not_found" else "diverged"
        files = HostFiles(await in_thread(HostHome.of, layout, there))
        main = below(files.home.host_path, captured.path, "the path of the capture")
        theirs = await _Side.of(layout, conversation_id, files, main, ours.destination)
        return await in_thread(lambda: compare_contents(ours.pieces(), theirs.pieces()))
