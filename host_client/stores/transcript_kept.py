"""A conversation as this host keeps it: found, read whole and counted, with all that belongs to it.

The one rule: what is told of it is what its files hold now, not what some capture once wrote.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from host_client.errors import Offender, SessionError, printable
from host_client.sandbox.place import LeftOut
from host_client.sandbox.task import in_thread
from host_client.session.compression import decompressed, is_compressed
from host_client.session.failure import named_failures
from host_client.session.line_selection import selected_lines
from host_client.session.transcript_scan import TranscriptScan
from host_client.stores.contract import Notice
from host_client.stores.layout import Conversation
from host_client.stores.transcript_member import kept_digest, members
from sandbox_api.limits import MAX_FILES_COUNT, Limits
from sandbox_api.manifest import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import PurePosixPath

    from host_client.stores.context import ConversationContext
    from host_client.stores.layout import Related, TranscriptLayout
    from host_client.stores.transcript_home import HostFiles
    from host_client.stores.transcript_member import Members

MAX_LEFT_OUT_COUNT = 100
"""Entries of `left_out` that a record names."""

TRANSCRIPT_LIMITS = Limits(max_bytes=64 << 30, max_files=MAX_FILES_COUNT)
"""Of a conversation that is a transcript, unless the caller says otherwise."""
_NONE_KNOWN: Mapping[PurePosixPath, Entry] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Kept:
    """A conversation on this host.

    Attributes:
        conversation_id: Its id.
        members: Its files that are there.
        entries: Path, size and digest of each of them: what `digest` is made of.
        scan: What the main transcript holds.
        missing: Notices of files that the layout names and that are not there; none of them is required.
    """

    conversation_id: str
    members: Members
    entries: Mapping[PurePosixPath, Entry]
    scan: TranscriptScan
    missing: Sequence[Notice]

    @property
    def digest(self) -> str:
        """The digest of all files, in hex; see `kept_digest`."""
        return kept_digest(self.entries.values())

    @property
    def bytes_count(self) -> int:
        """Sum of the sizes."""
        return sum(entry.size for entry in self.entries.values())

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """What lies with it and is not carried."""
        return [LeftOut(_shown(item.path), item.why) for item in self.members.skipped]

    @property
    def notices(self) -> Sequence[Notice]:
        """What should be known of it."""
        return [*transcript_notices(self.scan, self.members.main), *self.missing]


@dataclass(frozen=True, slots=True)
class Found:
    """Where a conversation's main transcript lies on this host, and the other files that have its id."""

    main: PurePosixPath
    others: Sequence[PurePosixPath]

    @property
    def notices(self) -> Sequence[Notice]:
        """The other copies, as notices."""
        return [
            Notice("other_copy", f"{_shown(path)} has the same id and was left alone", _shown(path))
            for path in self.others
        ]

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """The other copies, as entries that were left out."""
        return [LeftOut(_shown(path), "another copy of the conversation") for path in self.others]


def effective_limits(context: ConversationContext) -> Limits:
    """Return the limits of the context, or those of transcripts: 64 GiB and 65,536 files."""
    return context.limits or TRANSCRIPT_LIMITS


def transcript_notices(scan: TranscriptScan, path: PurePosixPath) -> Sequence[Notice]:
    """Tell what is unusual about a transcript, none of which is an error: the CLIs read it all the same."""
    shown = _shown(path)
    found = []
    if scan.torn_at is not None:
        found.append(Notice("torn_tail", "the last line is not whole, as after a crash", shown, scan.torn_at))
    if scan.nul_at is not None:
        found.append(Notice("nul_bytes", "the transcript has NUL bytes, as after a power loss", shown, scan.nul_at))
    if scan.read_bytes and scan.origin is None:
        found.append(Notice("no_origin", "no line names a working directory; nothing is relocated", shown))
    return found


def find_kept(layout: TranscriptLayout, conversation_id: str, files: HostFiles) -> Found | None:
    """Find the main transcript of a conversation on this host; None when there is none. Blocks.

    The one that the CLI itself would look for first, by the repository's resolved path or else by the path that the
    caller named, wins over others.

    Raises:
        SessionError: `ambiguous`: several have the id and none of them is that one; all are named.
        ConfigurationError: `invalid_argument`: the layout names a place outside of the home.
    """
    home = files.home
    directory = home.below(layout.search_root(home.host_path), "the layout's search_root", or_home=True)
    found = sorted(path for path in files.walk(directory) if layout.matches(home.host_path / path, conversation_id))
    if not found:
        return None
    if len(found) == 1:
        return Found(found[0], ())
    for repository in (home.repository, home.named_repository):
        preferred = layout.preferred_path(conversation_id, repository, home.host_path)
        if preferred is None:
            continue
        main = home.below(preferred, "the layout's preferred_path")
        if main in found:
            return Found(main, [path for path in found if path != main])
    raise SessionError(
        "ambiguous",
        f"{len(found)} transcripts on this host have the id {conversation_id}",
        hint="ask from the repository that the one you mean belongs to, or move the others away",
        offenders=(Offender(printable(str(home.host_path / path)), _described(files, path)) for path in found),
    )


async def read_kept(
    layout: TranscriptLayout,
    conversation_id: str,
    files: HostFiles,
    main: PurePosixPath,
    *,
    limits: Limits,
    known: Mapping[PurePosixPath, Entry] = _NONE_KNOWN,
    scan: TranscriptScan | None = None,
) -> Kept:
    """Read a conversation of this host, whole.

    Args:
        layout: Its layout.
        conversation_id: Its id.
        files: The files of this host.
        main: Its main transcript.
        limits: What it may hold.
        known: Entries of files that were read or written just now, and are not read again.
        scan: Of the main transcript, when that is among `known`.

    Raises:
        SessionError: `missing_required`, `unsafe_name`; `corrupt`: a compressed transcript is damaged.
        WorkspaceError: `not_found`, `not_a_file`, `unsafe_path`, `access`.
        LimitError: `max_bytes`, `max_files`.
    """
    entries: dict[PurePosixPath, Entry] = {}
    if scan is None or main not in known:
        scan = TranscriptScan(keys=layout.collected_keys, is_record=layout.is_record)
        entries[main] = await in_thread(_scanned, files, main, scan)
    else:
        entries[main] = known[main]
    named, missing = await kept_members(layout, conversation_id, files, main, scan.collected)

    def read() -> None:
        bytes_count = entries[main].size
        limits.check(bytes_count=bytes_count, files_count=1 + len(named.related))
        for member in named.related:
            entry = known.get(member.path) or entry_of(member.path, kept_pieces(files, member))
            if member.kind == "lines" and not entry.size:
                continue  # a file of others, in which nothing belongs to this one
            entries[member.path] = entry
            bytes_count += entry.size
            limits.check(bytes_count=bytes_count, files_count=len(entries))

    await in_thread(read)
    there = [member for member in named.related if member.path in entries]
    return Kept(conversation_id, replace(named, related=there), entries, scan, missing)


async def kept_members(
    layout: TranscriptLayout,
    conversation_id: str,
    files: HostFiles,
    main: PurePosixPath,
    collected: Mapping[str, frozenset[str]],
) -> tuple[Members, Sequence[Notice]]:
    """Name the files of a conversation that are on this host, and tell which are not.

    Raises:
        SessionError: `missing_required`: one that it is useless without; `unsafe_name`.
        WorkspaceError: `unsafe_path`, `access`.
    """
    named = await members(layout, Conversation(conversation_id, main, files, collected))
    missing = await in_thread(lambda: [member for member in named.related if files.status(member.path) is None])
    if required := [member for member in missing if member.required]:
        raise SessionError(
            "missing_required",
            f"{len(required)} file(s) that the conversation {conversation_id} needs are not on this host",
            offenders=(Offender(_shown(member.path), "is missing") for member in required),
        )
    there = [member for member in named.related if member not in missing]
    notices = [
        Notice("missing_companion", f"{shown} belongs to the conversation and is not there", shown)
        for shown in (_shown(member.path) for member in missing)
    ]
    return replace(named, related=there), notices


def kept_pieces(files: HostFiles, member: Related) -> Iterator[bytes]:
    """Yield the bytes of a member that count for the digest: the file, or the lines of it that belong; blocks."""
    pieces = files.pieces(member.path)
    return selected_lines(pieces, member.key, member.values) if member.kind == "lines" else pieces


def entry_of(path: PurePosixPath, pieces: Iterable[bytes]) -> Entry:
    """Return the entry of a file with that content; blocks."""
    sha256, size = hashlib.sha256(), 0
    for piece in pieces:
        sha256.update(piece)
        size += len(piece)
    return Entry(os.fsencode(path), size, sha256.digest())


def _scanned(files: HostFiles, path: PurePosixPath, scan: TranscriptScan) -> Entry:
    """Read a transcript once, for its entry and for the scan of its content."""
    sha256, size = hashlib.sha256(), 0

    def read() -> Iterator[bytes]:
        nonlocal size
        for piece in files.pieces(path):
            sha256.update(piece)
            size += len(piece)
            yield piece

    with named_failures(path):
        for piece in decompressed(read()) if is_compressed(path) else read():
            scan.feed(piece)
        scan.finish()
    return Entry(os.fsencode(path), size, sha256.digest())


def _described(files: HostFiles, path: PurePosixPath) -> str:
    status = files.status(path)
    if status is None:
        return "is gone"
    return described(status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def described(size_bytes: int, modified: datetime) -> str:
    """Tell a candidate's size and time, by which people know which one they mean."""
    return f"{size_bytes} bytes, changed {modified:%Y-%m-%d %H:%M:%S} UTC"


def _shown(path: PurePosixPath) -> str:
    return printable(str(path))
