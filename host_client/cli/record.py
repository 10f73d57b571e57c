"""Records and outcomes as documents and as notes for people."""

from __future__ import annotations

import os
import shlex
import string
from typing import TYPE_CHECKING

from host_client.cli.output import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import PurePosixPath

    from host_client.stores.contract import ConversationRecord, Notice, RestoreOutcome

_SHOWN_COUNT = 5
"""Left-out entries, and notices, that people are told; the document has all that are known."""


_PLAIN = string.ascii_letters + string.digits + "/._- "


def record_document(record: ConversationRecord) -> dict[str, object]:
    """Return a record as plain data."""
    return {
        "format": record.format,
        "id": record.conversation_id,
        "path": str(record.path),
        "digest": record.digest,
        "files": record.files_count,
        "bytes": record.bytes_count,
        "received_bytes": record.received_bytes,
        "unchanged": record.unchanged,
        "source": str(record.source),
        "duration_seconds": round(record.duration_seconds, 6),
        "in_use_pid": record.in_use_pid,
        "left_out": [{"path": item.path, "why": item.why} for item in record.left_out],
        "left_out_count": record.left_out_count,
        "notices": notice_documents(record.notices),
        "redactions": dict(record.redactions),
    }


def redaction_lines(record: ConversationRecord) -> Iterator[str]:
    """Tell people how often each rule of a redaction had a hit."""
    for name, count in record.redactions.items():
        yield f"redacted {name}: {count}"


def capture_notes(record: ConversationRecord) -> Iterator[str]:
    """Tell what a person should know about a capture that succeeded."""
    yield from notice_notes(record.notices)
    if record.in_use_pid and not any(notice.reason == "in_use" for notice in record.notices):
        yield f"note: in_use: process {record.in_use_pid} has the session open; this is its state as of now"
    shown = record.left_out[:_SHOWN_COUNT]
    for item in shown:
        yield f"note: left out ({item.why}): {item.path}"
    if record.left_out_count > len(shown):
        yield f"note: left out: {record.left_out_count - len(shown)} more"


def outcome_document(outcome: RestoreOutcome, resume: Sequence[str]) -> dict[str, object]:
    """Return a restore's outcome as plain data."""
    return {
        "format": outcome.format,
        "id": outcome.conversation_id,
        "target": str(outcome.target),
        "unchanged": outcome.unchanged,
        "recovery": outcome.recovery or None,
        "files": outcome.files_count,
        "bytes": outcome.bytes_count,
        "sent_bytes": outcome.sent_bytes,
        "resumed_bytes": outcome.resumed_bytes,
        "digest": outcome.digest,
        "relocated": list(outcome.relocated),
        "not_atomic": outcome.not_atomic,
        "notices": notice_documents(outcome.notices),
        "duration_seconds": round(outcome.duration_seconds, 6),
        "resume": list(resume),
    }


def outcome_lines(
    outcome: RestoreOutcome, resume: Sequence[str], sandbox_workspace: PurePosixPath, *, snapshot: str = ""
) -> list[str]:
    """Tell people of a restore: what it did, of which snapshot of an archive, and how to go on."""
    return [
        "already there, nothing changed"
        if outcome.unchanged
        else f"restored {outcome.files_count} files, {size(outcome.bytes_count)} "
        f"({size(outcome.sent_bytes)} sent) in {outcome.duration_seconds:.2f} s",
        *([f"snapshot {snapshot}"] if snapshot else []),
        f"target   {outcome.target}",
        *([f"recovery {outcome.recovery}"] if outcome.recovery else []),
        f"resume   {resume_line(resume, sandbox_workspace)}",
    ]


def notice_notes(notices: Sequence[Notice]) -> Iterator[str]:
    """Tell notices to people; most messages name the file themselves."""
    shown = notices[:_SHOWN_COUNT]
    for notice in shown:
        where = f"{notice.path}: " if notice.path and notice.path not in notice.message else ""
        at = "" if notice.offset is None else f" (at byte {notice.offset})"
        yield f"note: {notice.reason}: {where}{notice.message}{at}"
    if len(notices) > len(shown):
        yield f"note: {len(notices) - len(shown)} more"


def notice_documents(notices: Sequence[Notice]) -> list[dict[str, object]]:
    """Return notices as plain data."""
    return [
        {"reason": item.reason, "message": item.message, "path": item.path or None, "offset": item.offset}
        for item in notices
    ]


def resume_line(resume: Sequence[str], sandbox_workspace: PurePosixPath) -> str:
    """Return the shell line that resumes a restored conversation."""
    return f"cd {_quoted(str(sandbox_workspace))} && {words_line(resume)}"


def words_line(words: Sequence[str]) -> str:
    """Return words as a line for a shell."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Quote for a shell; what a terminal must not see as it is becomes an escape that bash and zsh understand."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(chr(byte) if chr(byte) in _PLAIN else f"\\x{byte:02x}" for byte in os.fsencode(word)) + "'"
