"""Output waits for a moment while a process is being started.

A start is many small steps, each of which waits for the interpreter's lock; beside threads that carry output as fast as
they can, it takes many times as long as by itself.
"""

from __future__ import annotations

import threading
import time

MAX_SECONDS = 0.02
"""Longest pause; after it output goes on for as long at least, however many starts there are."""


class Pause:
    """Whether output waits; for any thread.

    Args:
        max_seconds: See `MAX_SECONDS`.
    """

    def __init__(self, max_seconds: float = MAX_SECONDS) -> None:
        self._max_seconds = max_seconds
        self._lock = threading.Lock()
        self._starts_count = 0
        self._until = 0.0

    @property
    def is_on(self) -> bool:
        """Whether output waits now."""
        return self._starts_count > 0 and time.monotonic() < self._until

    def begin(self) -> None:
        """Take note that a start has begun."""
        now = time.monotonic()
        with self._lock:
            self._starts_count += 1
            if now >= self._until + self._max_seconds:
                self._until = now + self._max_seconds

    def end(self) -> None:
        """Take note that a start is over."""
        with self._lock:
            self._starts_count -= 1
