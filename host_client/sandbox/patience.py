"""How long something that goes on waits for a sandbox that is away.

The one rule: what is waited for is tried again ever less often, and a failure that lasts comes out.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from host_client.errors import DeadlineError, OutpostError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from host_client.sandbox.connection import Connection

R = TypeVar("R", bound=Message)

_FIRST_SECONDS, _MAX_SECONDS = 0.1, 2.0


class Patience:
    """The failures since the last success.

    Attributes:
        has_borne: Whether there ever was one.

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
        self.has_borne = False
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
        if not self.passes(error) or now >= self._end:
            raise error
        self.has_borne = True
        pause_seconds = min(self._pause_seconds, self._end - now)
        self._pause_seconds = min(_MAX_SECONDS, self._pause_seconds * 2)
        await self.sleep(pause_seconds)

    def passes(self, error: OutpostError) -> bool:
        """Tell whether a failure may pass: a daemon that is away may come back."""
        return isinstance(error, (UnavailableError, DeadlineError)) and error.retryable


class ConnectionPatience(Patience):
    """The failures of calls by one connection; when this side has closed it there is nothing to wait for.

    Args:
        connection: The calls go through it.
        seconds: How long its failures are borne.
    """

    def __init__(self, connection: Connection, seconds: float) -> None:
        super().__init__(seconds)
        self._connection = connection

    def passes(self, error: OutpostError) -> bool:
        """Tell whether a failure may pass."""
        return not self._connection.is_closed and super().passes(error)

    async def ask(self, method: str, request: Message, response: type[R], *, more_seconds: float = 0.0) -> R:
        """Make a call of one request and one answer that may be repeated, until it is answered.

        Args:
            method: As for `Connection.ask`.
            request: The request.
            response: Type of the answer.
            more_seconds: Time beside the stall limit for a daemon that has something long to do.

        Raises:
            OutpostError: as `Connection.ask`.
        """
        seconds = self._connection.stall_seconds + more_seconds
        while True:
            try:
                answer = await self._connection.ask(method, request, response, seconds=seconds)
            except OutpostError as error:
                await self.bear(error)
            else:
                self.succeed()
                return answer
