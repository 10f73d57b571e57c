"""One stream that a process prints, at its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandbox_agent.core.process_pause import Pause
from sandbox_agent.core.process_pump import Pump
from sandbox_agent.core.process_stream import Stream
from sandbox_agent.core.process_window import Window
from support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

PIPE_BYTES = 64 << 10


def test_what_is_there_is_taken_and_no_flood(tmp_path: Path) -> None:
    """At the end all is taken that a full pipe holds, but somebody who always prints more holds up nobody."""
    reads, writes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    pump = Pump()
    window = Window(64 * PIPE_BYTES, lambda: os.open(tmp_path, os.O_TMPFILE | os.O_RDWR))
    ended: list[bool] = []
    more_count = 1000

    def print_more() -> None:
        nonlocal more_count
        if more_count and not ended:
            more_count -= 1
            os.write(writes, b"more" * (PIPE_BYTES // 4))

    def begin() -> None:
        Stream(
            pump,
            Pause(),
            reads,
            window,
            floor=lambda: window.end,
            allowance=lambda count: count,
            on_moved=print_more,
            on_ended=lambda: ended.append(True),
        ).drain()

    os.write(writes, b"last" * (PIPE_BYTES // 4))
    pump.call(begin)
    try:
        wait_until(lambda: bool(ended), "the end of the stream")
        assert window.end >= PIPE_BYTES
        assert window.read(0, PIPE_BYTES) == b"last" * (PIPE_BYTES // 4)
        assert more_count > 900
    finally:
        pump.close()
        os.close(writes)
        window.close()
