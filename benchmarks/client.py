"""The client process of the bench: one operation of the public library on one daemon, timed inside.

Run as `python -m benchmarks.client capture|restore TARGET REPOSITORY DURABILITY`. It prints one
line of JSON. Timed is the call alone, on an open connection, as an orchestrator makes it; that it is
the first call of a fresh process counts against it.
"""

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.daemon import own_peak_mib
from benchmarks.tree import SESSION_ID
from host_client import (
    BundleRoot,
    ConversationContext,
    SessionBundleConversations,
    SessionBundleProfile,
    connect,
)

PROFILE = SessionBundleProfile(
    format="bench",
    root=BundleRoot(directory=".bench"),
    sessions="sessions",
    include=re.compile(r"^(?:session\.json|files(?:/|$))"),
    required=["session.json"],
    relocated=["session.json"],
    validate=lambda files, name: None if json.loads(files.text("session.json"))["id"] == name else "another id",
    relocate=lambda _path, text, context: json.dumps({**json.loads(text), "cwd": context.cwd}),
)


async def operate(operation: str, target: str, context_fields: dict[str, Any]) -> dict[str, float]:
    """Capture or restore the bench session once and return what the harness records of it."""
    store = SessionBundleConversations(PROFILE)
    before_connect = time.perf_counter()
    async with connect(target) as sandbox:
        context = ConversationContext(sandbox=sandbox, **context_fields)
        connect_seconds = time.perf_counter() - before_connect
        record = await store.locate(SESSION_ID, context) if operation == "restore" else None
        began = time.perf_counter()
        if record is None:
            await store.capture(SESSION_ID, context)
        else:
            await store.restore(record, context)
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "connect_seconds": connect_seconds, "peak_mib": own_peak_mib()}


def main() -> None:
    """Run the operation that the command line names."""
    operation, target, repository, durability = sys.argv[1:]
    fields = {"repository": Path(repository), "durability": durability}
    print(json.dumps(asyncio.run(operate(operation, target, fields))))


if __name__ == "__main__":
    main()
