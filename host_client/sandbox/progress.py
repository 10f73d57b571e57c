"""Progress of a call: how much of it is done, told often enough for people and seldom enough to cost nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_INTERVAL_SECONDS = 0.1
"""A callback runs at most ten times a second; the last report is never held back."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call is.

    Attributes:
        files_count: Files that are done.
        files_total: Files there are in all.
        bytes_count: Content bytes that are done, those the other side had already included.
        bytes_total: Content bytes there are in all.
    """

    files_count: int
    files_total: int
    bytes_count: int
    bytes_total: int

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return self.files_count == self.files_total and self.bytes_count == self.bytes_total


class Reporter:
    """Pass reports on to a callback at a bounded rate.

    The callback runs in the thread of the event loop; what it raises ends the call.

    Args:
        callback: Where reports go; None: nowhere.
        clock: Seconds that never go back.
    """

    def __init__(
        self, callback: Callable[[Progress], None] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._callback = callback
        self._clock = clock
        self._next_seconds = float("-inf")
        self._told: Progress | None = None

    def report(self, progress: Progress) -> None:
        """Tell where the call is, unless that was told less than `MIN_INTERVAL_SECONDS` ago."""
        if self._callback is None or (now := self._clock()) < self._next_seconds:
            return
        self._next_seconds = now + MIN_INTERVAL_SECONDS
        self._tell(progress)

    def finish(self, progress: Progress) -> None:
        """Tell the last report, unless it is the one that was told last."""
        if progress != self._told:
            self._tell(progress)

    def _tell(self, progress: Progress) -> None:
        if self._callback is not None:
            self._told = progress
            self._callback(progress)
