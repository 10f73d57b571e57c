"""Output that waits for a start."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandbox_agent.core.process_pause import Pause
from sandbox_agent.core.process_plan import Plan
from sandbox_agent.core.process_pump import Pump
from sandbox_agent.core.process_stream import Stream
from sandbox_agent.core.process_window import Window
from support.process_sandbox import processes_in
from support.wait import MAX_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path


class Counted(Pause):
    """A pause that counts how often it was asked for."""

    asked_count = 0

    @property
    def is_on(self) -> bool:
        """Whether output waits now."""
        self.asked_count += 1
        return super().is_on


def test_as_long_as_anything_starts() -> None:
    """From the first start to the end of the last."""
    pause = Pause(60)
    assert not pause.is_on
    pause.begin()
    pause.begin()
    pause.end()
    assert pause.is_on
    pause.end()
    assert not pause.is_on


def test_not_for_longer() -> None:
    """After the longest pause further starts begin none at once."""
    pause = Pause(60)
    pause.begin()
    pause._until -= 60
    assert not pause.is_on
    pause.begin()
    assert not pause.is_on
    pause._until -= 60
    pause.begin()
    assert pause.is_on


def test_output_waits(tmp_path: Path) -> None:
    """Nothing is read during the pause, all of it afterwards."""
    reads, writes = os.pipe()
    pump, pause = Pump(), Counted(60)
    window = Window(1 << 20, lambda: os.open(tmp_path, os.O_TMPFILE | os.O_RDWR))
    streams: list[Stream] = []

    def begin() -> None:
        stream = Stream(
            pump,
            pause,
            reads,
            window,
            floor=lambda: 0,
            allowance=lambda count: count,
            on_moved=lambda: None,
            on_ended=lambda: None,
        )
        streams.append(stream)

    pause.begin()
    os.write(writes, b"abc")
    pump.call(begin)
    try:
        wait_until(lambda: pause.asked_count > 3, "it to be asked")
        assert window.end == 0
        pause.end()
        wait_until(lambda: window.end == 3, "the output")
    finally:
        os.close(writes)
        pump.call(streams[0].end)
        pump.close()


def test_nothing_starts_any_more(tmp_path: Path) -> None:
    """The pause is over after a start, also after one that failed."""
    with processes_in(tmp_path) as processes:
        processes.start("p", Plan(argv=(b"true",)), b"").result(MAX_SECONDS)
        processes.start("q", Plan(argv=(b"/none",)), b"").exception(MAX_SECONDS)
        assert processes._pause._starts_count == 0
