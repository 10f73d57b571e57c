"""One thread for all processes: it waits for their pipes, their ends and their times.

The one rule: what a process is is changed in this thread alone, so that nothing of it needs a lock of its own.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from sandbox_agent import log

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], object]
    """Its result is dropped."""

_MAX_EVENTS_COUNT = 256
_MAX_WAIT_SECONDS = 3600.0  # the system counts milliseconds, and not far
_MANY_COUNT = 1024


class Timer:
    """A call that is still to come; `cancel` it at any time in the pump's thread."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call

    def cancel(self) -> None:
        """Do not call."""
        self.call = None


class Pump:
    """The thread. All methods but `call` and `close` are for itself."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._handlers: dict[int, Call] = {self._wake: self._woken}
        self._calls: deque[Call] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._max_timers_count = _MANY_COUNT
        self._order = itertools.count()
        self._is_ending = False
        self._epoll.register(self._wake, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="pump", daemon=True)
        self._thread.start()

    def call(self, call: Call) -> None:
        """Have something called in the thread, in the order of these calls. From any thread."""
        self._calls.append(call)
        os.eventfd_write(self._wake, 1)

    def at(self, moment: float, call: Call) -> Timer:
        """Have something called at a time of the monotonic clock."""
        if len(self._timers) >= self._max_timers_count:  # those that were cancelled would stay until their time
            self._timers = [entry for entry in self._timers if entry[2].call is not None]
            heapq.heapify(self._timers)
            self._max_timers_count = max(_MANY_COUNT, 2 * len(self._timers))
        timer = Timer(call)
        heapq.heappush(self._timers, (moment, next(self._order), timer))
        return timer

    def watch(self, fd: int, events: int, handler: Call) -> None:
        """Call a handler whenever a descriptor is ready, until `unwatch`."""
        self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def unwatch(self, fd: int) -> None:
        """Wait for a descriptor no longer; one that is not waited for is no error."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def change(self, fd: int, events: int) -> None:
        """Wait for other events of a descriptor."""
        self._epoll.modify(fd, events)

    def close(self) -> None:
        """End the thread and wait for it."""
        self.call(self._end)
        self._thread.join()
        self._epoll.close()
        os.close(self._wake)

    def _end(self) -> None:
        self._is_ending = True

    def _woken(self) -> None:
        os.eventfd_read(self._wake)

    def _run(self) -> None:
        while not self._is_ending:
            for fd, _ in self._epoll.poll(self._seconds_to_wait(), _MAX_EVENTS_COUNT):
                # What an earlier handler closed is not waited for any more.
                handler = self._handlers.get(fd)
                if handler is not None and not _safely(handler) and fd != self._wake:
                    self.unwatch(fd)  # or it would fail again at once
            while self._calls:
                _safely(self._calls.popleft())
            self._run_timers()

    def _seconds_to_wait(self) -> float:
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return -1
        return min(_MAX_WAIT_SECONDS, max(0.0, self._timers[0][0] - time.monotonic()))

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            call = timer.call
            timer.cancel()  # it has come
            if call is not None:
                _safely(call)


def _safely(call: Call) -> bool:
    """Call something; one process that makes trouble must not stop the others."""
    try:
        call()
    except Exception as error:  # noqa: BLE001  nobody else would see it
        log.failure("incident", error, thread="pump")
        return False
    return True
