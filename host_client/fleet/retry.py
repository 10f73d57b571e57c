"""How often a target is tried again, and how long is waited before.

The one rule: only what may pass by itself is tried again. What needs somebody's decision comes out at once.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from host_client.errors import ConfigurationError, OutpostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_MAX_DOUBLINGS_COUNT = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a failure is `retryable`, up to so many attempts in all.

    Before each further one is a pause of random length, evenly between nothing and a bound that doubles: many targets
    that fail at the same moment do not come back at the same moment.

    Attributes:
        attempts_count: Most attempts at one target; 1: none is repeated.
        base_seconds: The bound of the first pause.
        max_seconds: The largest bound.

    Raises:
        ConfigurationError: `invalid_argument`: no attempt, or seconds that are negative or endless.
    """

    attempts_count: int = 4
    base_seconds: float = 0.5
    max_seconds: float = 10.0

    def __post_init__(self) -> None:
        seconds = (self.base_seconds, self.max_seconds)
        if self.attempts_count < 1 or not all(math.isfinite(one) and one >= 0 for one in seconds):
            raise ConfigurationError(
                "invalid_argument",
                f"{self} is no way to try again",
                hint="attempts_count is 1 or more, base_seconds and max_seconds 0 or more",
            )

    def bound_seconds(self, failures_count: int) -> float:
        """Return the longest pause after so many failures."""
        doublings_count = min(failures_count - 1, _MAX_DOUBLINGS_COUNT)
        return min(self.max_seconds, self.base_seconds * 2.0**doublings_count)


class Attempts:
    """The attempts at one target.

    Attributes:
        count: How many have begun.
        last_error: Why the last one that ended failed; None when none has.

    Args:
        retry: How many there may be.
        sleep: Waits that many seconds.
        draw: Draws a number between two.
    """

    def __init__(
        self,
        retry: Retry,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.count = 0
        self.last_error: OutpostError | None = None
        self._retry = retry
        self._sleep = sleep
        self._draw = draw

    async def run(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it succeeds, and return the result.

        Raises:
            OutpostError: the failure of the last attempt.
        """
        while True:
            self.count += 1
            try:
                return await attempt()
            except OutpostError as error:
                self.last_error = error
                if not error.retryable or self.count >= self._retry.attempts_count:
                    raise
            await self._sleep(self._draw(0.0, self._retry.bound_seconds(self.count)))
