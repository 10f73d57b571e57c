"""The thread in which processes change."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.process_pump import Pump
from support.wait import MAX_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pump() -> Iterator[Pump]:
    """A pump."""
    pump = Pump()
    yield pump
    pump.close()


def test_calls_come_in_order(pump: Pump) -> None:
    """What is called from other threads runs in the pump's, in order; one that fails does not stop the others."""
    seen: list[object] = []
    done = threading.Event()
    pump.call(lambda: seen.append(threading.current_thread().name))
    pump.call(lambda: 1 // 0)
    for number in range(100):
        pump.call(lambda number=number: seen.append(number))  # type: ignore[misc]
    pump.call(done.set)
    assert done.wait(MAX_SECONDS)
    assert seen == ["pump", *range(100)]


def test_times(pump: Pump) -> None:
    """Calls come at their times and in their order; one that was taken back does not."""
    seen: list[str] = []
    done = threading.Event()

    def begin() -> None:
        now = time.monotonic()
        pump.at(now + 0.06, done.set)
        pump.at(now + 0.04, lambda: seen.append("second"))
        pump.at(now + 0.02, lambda: seen.append("first"))
        pump.at(now + 0.03, lambda: seen.append("never")).cancel()

    pump.call(begin)
    assert done.wait(MAX_SECONDS)
    assert seen == ["first", "second"]


def test_far_times(pump: Pump) -> None:
    """A time that is further away than the system can count does not end the thread."""
    done = threading.Event()
    pump.call(lambda: pump.at(time.monotonic() + 1e9, lambda: None))
    pump.call(lambda: pump.at(time.monotonic() + 0.02, done.set))
    assert done.wait(MAX_SECONDS)
    again = threading.Event()
    pump.call(again.set)
    assert again.wait(MAX_SECONDS)


def test_times_that_were_taken_back(pump: Pump) -> None:
    """They take no memory until they would have come; the others still come."""
    done = threading.Event()
    counts: list[int] = []

    def begin() -> None:
        soon = pump.at(time.monotonic() + 0.02, done.set)
        for _ in range(10_000):
            pump.at(time.monotonic() + 1e6, lambda: None).cancel()
        counts.append(len(pump._timers))
        assert soon.call is not None

    pump.call(begin)
    assert done.wait(MAX_SECONDS)
    assert counts[0] < 2_000


def test_descriptors(pump: Pump) -> None:
    """A ready descriptor is told until it is not watched any more; a handler that fails is not called again."""
    ends = [os.pipe() for _ in range(2)]
    seen: list[bytes] = []
    done, failed = threading.Event(), threading.Event()

    def read() -> None:
        seen.append(os.read(ends[0][0], 1))
        if len(seen) == 3:
            pump.unwatch(ends[0][0])
            pump.unwatch(ends[0][0])
            done.set()

    def fail() -> None:
        assert not failed.is_set()
        failed.set()
        raise ValueError

    pump.call(lambda: pump.watch(ends[0][0], select.EPOLLIN, read))
    pump.call(lambda: pump.watch(ends[1][0], select.EPOLLIN, fail))
    os.write(ends[0][1], b"abcd")
    os.write(ends[1][1], b"x")
    assert done.wait(MAX_SECONDS)
    assert failed.wait(MAX_SECONDS)
    idle = threading.Event()
    pump.call(lambda: pump.at(time.monotonic() + 0.02, idle.set))
    assert idle.wait(MAX_SECONDS)
    assert seen == [b"a", b"b", b"c"]
    for fd in (*ends[0], *ends[1]):
        os.close(fd)
