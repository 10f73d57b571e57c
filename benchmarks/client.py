"""The client process of the bench: one operation of the public library on one daemon, timed inside.

Run as `python -m benchmarks.client capture|restore|turns TARGET REPOSITORY DURABILITY [CHANGED]`. It prints
one line of JSON. Timed is the call alone, on an open connection, as an orchestrator makes it; that it is the
first call of a fresh process counts against it. `turns` captures, changes the content of one file of the
session, and captures again, as an orchestrator does after each turn; it tells the seconds of both.
"""

import asyncio
import json
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path, PurePosixPath

from benchmarks.daemon import own_peak_mib
from benchmarks.tree import MAX_BUNDLE_BYTES, SESSION_ID
from host_client import (
    BundleRoot,
    ConversationContext,
    ConversationRecord,
    Limits,
    SessionBundleConversations,
    SessionBundleProfile,
    connect,
)

STORE = SessionBundleConversations(
    SessionBundleProfile(
        format="bench",
        root=BundleRoot(directory=".bench"),
        sessions="sessions",
        include=re.compile(r"^(?:session\.json|files(?:/|$))"),
        required=["session.json"],
        relocated=["session.json"],
        validate=lambda files, name: None if json.loads(files.text("session.json"))["id"] == name else "another id",
        relocate=lambda _path, text, context: json.dumps({**json.loads(text), "cwd": context.cwd}),
    )
)


async def capture(target: str, context: ConversationContext) -> tuple[float, ConversationRecord]:
    """Capture the bench session on an open connection; return the seconds of the call and the record."""
    async with connect(target) as sandbox:
        began = time.perf_counter()
        record = await STORE.capture(SESSION_ID, replace(context, sandbox=sandbox))
        return time.perf_counter() - began, record


async def turns(target: str, context: ConversationContext, changed_path: Path) -> tuple[float, float]:
    """Capture, change one file without changing its size, capture again; return the seconds of both calls."""
    async with connect(target) as sandbox:
        context = replace(context, sandbox=sandbox)
        began = time.perf_counter()
        await STORE.capture(SESSION_ID, context)
        first_seconds = time.perf_counter() - began
        await asyncio.to_thread(_change, changed_path)
        began = time.perf_counter()
        await STORE.capture(SESSION_ID, context)
        return first_seconds, time.perf_counter() - began


async def restore(target: str, context: ConversationContext, record: ConversationRecord) -> float:
    """Restore the record on an open connection; return the seconds of the call."""
    async with connect(target) as sandbox:
        began = time.perf_counter()
        await STORE.restore(record, replace(context, sandbox=sandbox))
        return time.perf_counter() - began


def main() -> None:
    """Run the operation that the command line names.

    A restore takes its record from a note that a capture has left, and does not locate it: what
    `locate` verifies is no part of a restore, which checks for itself all that it must.
    """
    operation, target, repository, durability, *changed = sys.argv[1:]
    note_path = Path(repository) / "record.json"
    context = ConversationContext(
        repository=Path(repository),
        durability="full" if durability == "full" else "none",
        limits=Limits(max_bytes=MAX_BUNDLE_BYTES),
    )
    seconds: float | tuple[float, float]
    if operation == "turns":
        seconds = asyncio.run(turns(target, context, Path(changed[0])))
    elif operation == "capture":
        seconds, record = asyncio.run(capture(target, context))
        note_path.write_text(json.dumps([str(record.path), record.digest, str(record.source)]))
    else:
        seconds = asyncio.run(restore(target, context, _noted_record(note_path)))
    print(json.dumps({"seconds": seconds, "peak_mib": own_peak_mib()}))


def _change(path: Path) -> None:
    """Write other bytes, and leave nothing dirty that would be written back during the timed part."""
    path.write_bytes(os.urandom(path.stat().st_size))
    os.sync()


def _noted_record(note_path: Path) -> ConversationRecord:
    host_path, digest, source = json.loads(note_path.read_text())
    return ConversationRecord(
        format=STORE.format,
        conversation_id=SESSION_ID,
        path=Path(host_path),
        digest=digest,
        files_count=0,
        bytes_count=0,
        source=PurePosixPath(source),
    )


if __name__ == "__main__":
    main()
