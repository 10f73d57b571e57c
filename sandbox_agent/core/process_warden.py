"""The thread that ends what is left of processes: one look at /proc for all of them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from sandbox_agent import log
from sandbox_agent.core.process_remains import end_remains

if TYPE_CHECKING:
    from typing import Protocol

    from sandbox_agent.core.process_pump import Pump
    from sandbox_agent.core.process_remains import Remains

    class Report(Protocol):
        """Hears how many were left at some time, in the pump's thread; tells whether to look again."""

        def __call__(self, left_count: int, looked_at: float, *, is_final: bool) -> bool: ...  # noqa: D102


GIVE_UP_SECONDS = 5.0
"""After KILL; what is still there then waits for a device and cannot be ended by anybody."""

_LOOK_SECONDS, _MAX_LOOK_SECONDS = 0.01, 0.2


class Warden:
    """The thread; it sleeps while nothing is being ended."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._ended: list[tuple[Remains, Report]] = []
        self._changed = threading.Condition()
        self._is_pressed = False
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="warden", daemon=True)
        self._thread.start()

    def add(self, remains: Remains, report: Report) -> None:
        """End what is left of a process, until its report says that it is enough."""
        with self._changed:
            self._ended.append((remains, report))
            self._is_pressed = True
            self._changed.notify()

    def look_soon(self) -> None:
        """Look again at once, when anything is being ended."""
        with self._changed:
            if self._ended:
                self._is_pressed = True
                self._changed.notify()

    def close(self) -> None:
        """End the thread and wait for it."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        seconds = _LOOK_SECONDS
        while True:
            with self._changed:
                if not self._ended:
                    self._changed.wait_for(lambda: self._ended or self._is_closing)
                elif self._changed.wait_for(lambda: self._is_pressed or self._is_closing, seconds):
                    seconds = _LOOK_SECONDS
                if self._is_closing:
                    return
                self._is_pressed = False
                ended = list(self._ended)
            seconds = min(_MAX_LOOK_SECONDS, seconds * 1.5)
            self._look(ended)

    def _look(self, ended: list[tuple[Remains, Report]]) -> None:
        looked_at = time.monotonic()
        try:
            counts = end_remains([remains for remains, _ in ended])
        except OSError as error:  # no /proc: groups are signalled all the same, as a whole
            log.failure("processes cannot be looked for", error)
            counts = [0] * len(ended)
        done = threading.Event()

        def report() -> None:
            try:
                self._report(ended, counts, looked_at)
            finally:
                done.set()

        self._pump.call(report)
        done.wait()

    def _report(self, ended: list[tuple[Remains, Report]], counts: list[int], looked_at: float) -> None:
        for (remains, report), count in zip(ended, counts, strict=True):
            is_final = looked_at >= remains.kill_at + GIVE_UP_SECONDS
            if is_final and count:
                log.warning("something of a process is left", pid=remains.pid, count=count)
            if not report(count, looked_at, is_final=is_final):
                with self._changed:
                    self._ended = [pair for pair in self._ended if pair[0] is not remains]
