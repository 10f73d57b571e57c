"""A transport that tries again: `RetryingTransport`.

The one rule: a write whose answer was lost is never taken for one that failed, nor for somebody else's.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, TypeVar

from host_client.errors import ConflictError, OutpostError, SessionError, UnavailableError
from host_client.transports.contract import MAX_OBJECT_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from host_client.transports.contract import ObjectInfo, StoredObject, Transport

T = TypeVar("T")

_MAX_AGAIN_COUNT = 10_000
"""How many objects a listing of few may tell twice, before it is taken for one without an end."""


class RetryingTransport:
    """Repeat what failed and may be repeated (`retryable`), with growing pauses of random length.

    Before attempt n + 1 it waits between 0 and `base_seconds` * 2 ** (n - 1), at most `max_pause_seconds`. The last
    failure is raised. A conflict is one at once, unless an earlier attempt may have taken effect.

    Args:
        inner: What is asked.
        max_attempts_count: Of each call.
        base_seconds: See above.
        max_pause_seconds: See above.
        max_seconds: After this, measured from the call on, no attempt begins.
        sleep: Waits for so many seconds.
        clock: Tells seconds.
        jitter: Tells a number from 0 to 1.
    """

    def __init__(
        self,
        inner: Transport,
        *,
        max_attempts_count: int = 6,
        base_seconds: float = 0.25,
        max_pause_seconds: float = 10.0,
        max_seconds: float = 120.0,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._inner = inner
        self._max_attempts_count = max_attempts_count
        self._base_seconds = base_seconds
        self._max_pause_seconds = max_pause_seconds
        self._max_seconds = max_seconds
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter

    @property
    def name(self) -> str:
        """Return the name of what is asked."""
        return self._inner.name

    async def read(self, key: str, *, max_bytes: int = MAX_OBJECT_BYTES) -> StoredObject | None:
        """Read an object; see `Transport.read`."""
        return await self._repeated(lambda _: self._inner.read(key, max_bytes=max_bytes))

    async def stat(self, key: str) -> ObjectInfo | None:
        """Look at an object; see `Transport.stat`."""
        return await self._repeated(lambda _: self._inner.stat(key))

    async def write(self, key: str, data: bytes, *, if_revision: str | None) -> str:
        """Write an object; see `Transport.write`.

        When an attempt may have taken effect and a later one finds another revision, the object is read: if it has
        these bytes, they are taken for those of the earlier attempt.
        """

        async def attempt(is_repeated: bool) -> str:  # noqa: FBT001  one argument, named by its only caller
            try:
                return await self._inner.write(key, data, if_revision=if_revision)
            except ConflictError:
                if is_repeated:
                    found = await self.read(key)
                    if found is not None and found.data == data and found.revision != if_revision:
                        return found.revision
                raise

        return await self._repeated(attempt)

    async def remove(self, key: str, *, if_revision: str | None = None) -> None:
        """Remove an object; see `Transport.remove`. One that an earlier attempt has removed is gone: that is success.

        A conflict stays one also then: what is there now is somebody's, written since.
        """
        await self._repeated(lambda _: self._inner.remove(key, if_revision=if_revision))

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Yield what is below a prefix; see `Transport.list`. A listing that broke begins anew and tells the rest."""
        told: set[str] = set()
        begun, attempts_count = self._clock(), 0
        while True:
            listed_count = 0
            try:
                async for found in self._inner.list(prefix):
                    listed_count += 1
                    if listed_count > 2 * len(told) + _MAX_AGAIN_COUNT:
                        raise UnavailableError(
                            "store_unreachable", f"{self.name} lists the same objects again and again, without an end"
                        )
                    if found.key not in told:
                        told.add(found.key)
                        yield found
            except OutpostError as error:
                attempts_count += 1
                await self._pause(error, attempts_count, begun)
            else:
                return

    async def _repeated(self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """Make attempts; each is told whether another was before it that may have taken effect."""
        begun, attempts_count = self._clock(), 0
        while True:
            try:
                return await attempt(attempts_count > 0)
            except OutpostError as error:
                attempts_count += 1
                await self._pause(error, attempts_count, begun)

    async def _pause(self, error: OutpostError, attempts_count: int, begun: float) -> None:
        """Wait until the next attempt may begin, or raise the failure of the last one."""
        # Conflicts and damage are what they are: those who hear of them may repeat more than one call.
        is_final = isinstance(error, (ConflictError, SessionError)) or not error.retryable
        if is_final or attempts_count >= self._max_attempts_count:
            raise error
        longest = min(self._base_seconds * 2 ** (attempts_count - 1), self._max_pause_seconds)
        seconds = longest * self._jitter()
        if self._clock() - begun + seconds > self._max_seconds:
            raise error
        await self._sleep(seconds)
