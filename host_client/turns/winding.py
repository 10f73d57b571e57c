"""How a turn is wound up: what must be done is done, whoever cancels, and no failure hides another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from host_client.errors import DeadlineError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

CANCELLED_SECONDS = 60.0
"""How long a cancelled turn may take to capture its conversation and give back its sandbox, for each."""


async def completed(work: Coroutine[Any, Any, T], *, is_cancelled: bool = False) -> T:
    """Wait for some work that a cancel must not stop at once.

    A cancel gives it `CANCELLED_SECONDS` more, then it is cancelled itself; when it has ended, the cancel goes on. A
    failure of the work is then noted at it, and its cause.

    Args:
        work: What must be done.
        is_cancelled: Who calls is cancelled already: the time runs from now on.

    Raises:
        DeadlineError: `deadline`: the time of a caller that was cancelled already is over.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)  # not in a group, which would cancel it; it never outlives this call
    cancel: asyncio.CancelledError | None = None
    ends = loop.time() + CANCELLED_SECONDS if is_cancelled else None
    while not task.done():
        left = None if ends is None or task.cancelling() else max(0.0, ends - loop.time())
        try:
            await asyncio.wait([task], timeout=left)
        except asyncio.CancelledError as error:
            if cancel is None:
                cancel, ends = error, ends or loop.time() + CANCELLED_SECONDS
        if ends is not None and loop.time() >= ends and not task.cancelling():
            task.cancel()
    if cancel is None:
        if task.cancelled():
            raise DeadlineError("deadline", f"a cancelled turn was not wound up within {CANCELLED_SECONDS:.0f} s")
        return task.result()
    if not task.cancelled() and (failure := task.exception()) is not None:
        raise joined(cancel, failure) from failure
    raise cancel


def joined(first: BaseException | None, second: BaseException) -> BaseException:
    """Return one error for two. A cancel stays what it is, with a note of the other."""
    if first is None or first is second:
        return second
    if isinstance(first, Exception) and isinstance(second, Exception):
        return ExceptionGroup("a turn failed, and so did what had to follow", (*_parts(first), *_parts(second)))
    stays, noted = (second, first) if isinstance(first, Exception) else (first, second)
    stays.add_note(f"and meanwhile: {noted}")
    return stays


def _parts(error: Exception) -> tuple[Exception, ...]:
    return error.exceptions if isinstance(error, ExceptionGroup) else (error,)
