"""How long something that keeps a conversation up to date waits for a sandbox that is away.

The one rule: what is waited for is tried again ever less often, and a failure that lasts comes out.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from host_client.errors import DeadlineError, OutpostError, SessionError, UnavailableError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_FIRST_SECONDS, _MAX_SECONDS = 0.1, 2.0

_PASSING = (
    (SessionError, ("changed", "empty", "not_found")),
    (WorkspaceError, ("changed", "not_found")),
)
"""What a conversation is while its CLI writes it anew, or its sandbox is brought back."""


class Patience:
    """The failures since the last success.

    Args:
        seconds: How long they are borne.
        clock: Tells the time, in seconds.
        sleep: Waits that many seconds.
    """

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.clock = clock
        self.sleep = sleep
        self._seconds = seconds
        self._end: float | None = None
        self._pause_seconds = _FIRST_SECONDS

    def succeed(self) -> None:
        """Take note that all is well."""
        self._end = None
        self._pause_seconds = _FIRST_SECONDS

    async def bear(self, error: OutpostError) -> None:
        """Wait before the next attempt.

        Raises:
            OutpostError: the failure itself, when it is none that passes or there were only such for too long.
        """
        now = self.clock()
        if self._end is None:
            self._end = now + self._seconds
        if not _passes(error) or now >= self._end:
            raise error
        pause_seconds = min(self._pause_seconds, self._end - now)
        self._pause_seconds = min(_MAX_SECONDS, self._pause_seconds * 2)
        await self.sleep(pause_seconds)


def _passes(error: OutpostError) -> bool:
    if isinstance(error, (UnavailableError, DeadlineError)):
        return error.retryable
    return any(isinstance(error, family) and error.reason in reasons for family, reasons in _PASSING)
