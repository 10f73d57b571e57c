"""Who reads what a process prints or waits for its end, and how long it waits for them.

The one rule: nothing is dropped that a reader has still to get, nor what one may still come for.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from sandbox_agent.core.process_reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox_agent.core.process_window import Window


class Audience:
    """The readers of one process; for any thread.

    Attributes:
        hold_until: Until when, of the monotonic clock, nothing is dropped though nobody reads.

    Args:
        windows: What is read.
        hold_seconds: How long nobody is waited for, from now and from the last reader.
        on_moved: Called when a reader has got something.
        on_left: Called when one went.
    """

    def __init__(
        self,
        windows: Sequence[Window],
        hold_seconds: float,
        *,
        on_moved: Callable[[], None],
        on_left: Callable[[], None],
    ) -> None:
        self.hold_until = time.monotonic() + hold_seconds
        self._windows = windows
        self._hold_seconds = hold_seconds
        self._on_moved = on_moved
        self._on_left = on_left
        self._lock = threading.Lock()
        self._readers: set[Reader] = set()
        self._wakes: set[Callable[[], None]] = set()
        self._is_discarding = False
        self._left_at = time.monotonic()

    @property
    def is_empty(self) -> bool:
        """Whether nobody reads."""
        return not self._readers

    @property
    def left_at(self) -> float:
        """When the process was over or the last reader went, whichever was later; infinite while somebody reads."""
        with self._lock:
            return math.inf if self._readers else self._left_at

    def read_from(self, offsets: Sequence[int], wake: Callable[[], None]) -> Reader:
        """Begin to read; the caller closes the reader.

        Args:
            offsets: What of each stream the reader has already.
            wake: Called, in another thread, whenever there may be more.

        Raises:
            ProcessError: `output_lost`.
            ConfigurationError: `invalid_argument`: an offset behind the end.
        """
        with self._lock:
            reader = Reader(self._windows, offsets, wake, on_moved=self._on_moved, on_closed=self._closed)
            self._readers.add(reader)
        return reader

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have something called whenever anything happens."""
        with self._lock:
            self._wakes.add(wake)

    def wake_no_more(self, wake: Callable[[], None]) -> None:
        """Take back `wake_by`."""
        with self._lock:
            self._wakes.discard(wake)

    def wake(self) -> None:
        """Tell everybody that something has happened."""
        with self._lock:
            wakes = [*(reader.wake for reader in self._readers), *self._wakes]
        for wake in wakes:
            wake()

    def floor(self, index: int) -> int:
        """Return from where on nothing of a stream may be dropped."""
        with self._lock:
            if not self._is_discarding:
                if self._readers:
                    sent = min(reader.sent[index] for reader in self._readers)
                    return sent - self._windows[index].reserve_bytes
                if time.monotonic() < self.hold_until:
                    return 0
        return self._windows[index].end

    def discard(self) -> None:
        """Wait for nobody any more."""
        self._is_discarding = True

    def begin_to_forget(self) -> None:
        """Count the time without a reader from now on: the process is over."""
        with self._lock:
            self._left_at = time.monotonic()

    def _closed(self, reader: Reader) -> None:
        with self._lock:
            self._readers.discard(reader)
            if not self._readers:
                self._left_at = time.monotonic()
                self.hold_until = self._left_at + self._hold_seconds
        self._on_left()
