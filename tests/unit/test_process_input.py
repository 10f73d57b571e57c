"""What a process reads: in its order, once, and in little memory."""

from __future__ import annotations

import os
import pty
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox_agent.core import process_input
from sandbox_agent.core.process_input import Input
from sandbox_agent.core.process_pump import Pump
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

MIB = 1 << 20


@contextmanager
def input_into(fd: int, *, is_terminal: bool = False) -> Iterator[Input]:
    """Give the open input of a process that reads from the other end of a descriptor; closed at the end."""
    os.set_blocking(fd, False)
    pump = Pump()
    made: list[Input] = []
    pump.call(
        lambda: made.append(Input(pump, fd, is_open=True, is_terminal=is_terminal, first=b"", on_moved=lambda: None))
    )
    try:
        wait_until(lambda: made, "the input")
        yield made[0]
    finally:
        if made:
            pump.call(made[0].close)
        pump.close()


def test_input_that_is_sent_again_takes_no_memory() -> None:
    """Of large messages of which little is new that little is kept; of many small ones their bytes."""
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb", buffering=0) as process, input_into(writes) as offered:
        offered.offer(0, bytes(MIB), is_end=False)
        wait_until(lambda: offered.taken == 64 << 10, "a full pipe")
        tracemalloc.start()
        try:
            for number in range(1, 51):
                offered.offer(number, bytes(MIB), is_end=False)
            for number in range(10_000):
                offered.offer(MIB + 50 + number, b"x", is_end=False)
            used_bytes = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert used_bytes < 4 * MIB
        offered.offer(MIB + 10_050, b"", is_end=True)
        data = process.read(MIB)
        while piece := process.read(MIB):
            data += piece
    assert data == bytes(MIB + 50) + b"x" * 10_000


def test_last_input_comes_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is offered with the end, at the moment at which all before it was written, is written as well."""
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb") as process, input_into(writes) as offered:
        write = offered._write

        def write_and_be_met() -> None:
            write()
            if offered.taken == 1:
                monkeypatch.undo()
                offered.offer(1, b"b", is_end=True)

        monkeypatch.setattr(offered, "_write", write_and_be_met)
        offered.offer(0, b"a", is_end=False)
        assert process.read() == b"ab"


def test_end_that_does_not_fit_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The character that ends the input of a terminal waits for room, like all that is typed."""
    ours, theirs = pty.openpty()
    line = b"x" * 99 + b"\n"
    data = b""
    write = os.write

    def refuse_the_end(fd: int, data: bytes) -> int:
        if data == b"\x04":
            monkeypatch.undo()
            raise BlockingIOError
        return write(fd, data)

    monkeypatch.setattr(process_input.os, "write", refuse_the_end)
    try:
        with os.fdopen(theirs, "rb", buffering=0) as process, input_into(os.dup(ours), is_terminal=True) as offered:
            offered.offer(0, line * 300, is_end=True)
            while piece := process.read(4096):
                data += piece
    finally:
        os.close(ours)
    assert data == line * 300
