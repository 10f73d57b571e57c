"""What came of one target among many, and how far all of them are together."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError
from host_client.sandbox.progress import MIN_INTERVAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from host_client.errors import OutpostError
    from host_client.sandbox.progress import Progress
    from host_client.sandbox.sandbox import Sandbox
    from host_client.stores.contract import RestoreOutcome


@dataclass(frozen=True, slots=True)
class Delivery:
    """What came of one target: an outcome or an error, never both.

    Attributes:
        target: The target as it was given.
        outcome: The committed restore; None when it failed.
        error: Why it failed; None when it did not.
        attempts_count: How often it was tried; 0 when it never was, or when its worker was lost and nobody knows.
    """

    target: Sandbox | str
    outcome: RestoreOutcome | None = None
    error: OutpostError | None = None
    attempts_count: int = 1


@dataclass(frozen=True, slots=True)
class DeliveryProgress:
    """How far many targets are, together. No number ever falls.

    Attributes:
        targets_count: Targets that have ended, well or not.
        targets_total: Targets there are in all.
        failed_count: Targets that have failed.
        bytes_count: Content bytes that have come to all targets, each counted once for a target: also those at targets
            that failed later.
        share: How much of everything is done, from 0 to 1; a target that failed is done. 1 only when all have ended.
        ended: What came of a target that has ended just now; None: some are further than before.
    """

    targets_count: int
    targets_total: int
    failed_count: int
    bytes_count: int
    share: float
    ended: Delivery | None = None


def check_bounds(concurrency_count: int, target_seconds: float | None) -> None:
    """Refuse bounds that nothing can keep.

    Raises:
        ConfigurationError: `invalid_argument`.
    """
    if concurrency_count < 1 or (target_seconds is not None and not target_seconds > 0):
        raise ConfigurationError(
            "invalid_argument",
            f"no target can be reached {concurrency_count} at a time, within {target_seconds} s",
            hint="concurrency_count is 1 or more, target_seconds above 0, or None",
        )


_MAX_RUNNING_SHARE = 0.99
"""What a target counts at most before its end: its commit, which can fail, is still to come."""


class DeliveryTally:
    """Adds up the progress of many targets and passes it on: each end at once, all else at a bounded rate.

    Args:
        targets_total: Targets there are in all.
        callback: Where reports go; None: nowhere. What it raises ends the call.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        targets_total: int,
        callback: Callable[[DeliveryProgress], None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._targets_total = targets_total
        self._callback = callback
        self._clock = clock
        self._next_seconds = float("-inf")
        self._running: dict[Hashable, tuple[int, float]] = {}  # the most of each: a further attempt begins at 0
        self._targets_count = self._failed_count = self._bytes_count = 0

    def watch(self, target_key: Hashable) -> Callable[[Progress], None] | None:
        """Return the progress callback of one target; None when nobody wants to know."""
        if self._callback is None:
            return None

        def note(progress: Progress) -> None:
            bytes_count, share = self._running.get(target_key, (0, 0.0))
            now_share = progress.bytes_count / progress.bytes_total if progress.bytes_total else 0.0
            now_share = min(now_share, _MAX_RUNNING_SHARE)
            self._running[target_key] = max(bytes_count, progress.bytes_count), max(share, now_share)
            if (now := self._clock()) >= self._next_seconds:
                self._next_seconds = now + MIN_INTERVAL_SECONDS
                self._tell(None)

        return note

    def end(self, target_key: Hashable, delivery: Delivery) -> None:
        """Take note of what came of a target, and tell it."""
        bytes_count, _ = self._running.pop(target_key, (0, 0.0))
        self._targets_count += 1
        if delivery.outcome is None:
            self._failed_count += 1
        else:
            bytes_count = max(bytes_count, delivery.outcome.bytes_count)
        self._bytes_count += bytes_count
        self._tell(delivery)

    def _tell(self, ended: Delivery | None) -> None:
        if self._callback is None:
            return
        running = self._running.values()
        done_count = self._targets_count + sum(share for _, share in running)
        self._callback(
            DeliveryProgress(
                targets_count=self._targets_count,
                targets_total=self._targets_total,
                failed_count=self._failed_count,
                bytes_count=self._bytes_count + sum(bytes_count for bytes_count, _ in running),
                share=done_count / self._targets_total,
                ended=ended,
            )
        )
