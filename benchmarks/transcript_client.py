"""The client process of the transcripts' bench: captures by the public library on one daemon, timed inside.

Run as `python -m benchmarks.transcript_client TARGET HOST_HOME [TRANSCRIPT BYTES]`. It captures once, and when a
transcript is named appends a line of so many bytes to it and captures again, as after each turn. It
prints one line of JSON: the seconds of each call, on an open connection, and the peak memory.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.daemon import own_peak_mib
from benchmarks.transcript import CONVERSATION_ID, append_line
from host_client import ConversationContext, builtin_format, connect


async def captures(target: str, host_home: Path, grown: list[str]) -> list[float]:
    """Capture on an open connection, once or twice; return the seconds of each."""
    store = builtin_format("claude")
    async with connect(target) as sandbox:
        context = ConversationContext(sandbox=sandbox, conversation_home=host_home, durability="none")
        seconds = []
        for turn in range(2 if grown else 1):
            if turn:
                await asyncio.to_thread(_grow, Path(grown[0]), int(grown[1]))
            began = time.perf_counter()
            await store.capture(CONVERSATION_ID, context)
            seconds.append(time.perf_counter() - began)
        return seconds


def _grow(transcript: Path, size_bytes: int) -> None:
    """Append, and leave nothing dirty that would be written back during the timed part."""
    append_line(transcript, size_bytes)
    os.sync()


if __name__ == "__main__":
    _, daemon_target, host_home_text, *rest = sys.argv
    taken = asyncio.run(captures(daemon_target, Path(host_home_text), rest))
    print(json.dumps({"seconds": taken, "peak_mib": own_peak_mib()}))
