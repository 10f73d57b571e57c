"""Concurrent steps of one call: threads that end with it, tasks that fail as one.

Nothing started here outlives the call that started it, also when that call is cancelled.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from contextlib import AbstractContextManager

P = ParamSpec("P")
T = TypeVar("T")


async def to_its_end(coroutine: Coroutine[object, object, T]) -> T:
    """Wait for a coroutine that ends soon and must not be cancelled, such as one that cleans up.

    A cancel waits for it before it goes on.
    """
    return await _outlast(asyncio.ensure_future(coroutine))


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking function in a thread and return its result.

    A cancel waits for the function before it goes on, so what the function works on is never used by two threads. It
    drops the result: for a function that opens something there is `opened_in_thread`.
    """
    return await _outlast(asyncio.get_running_loop().run_in_executor(None, partial(function, *args, **kwargs)))


async def _outlast(future: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:  # a second cancel does not make it end sooner; the first goes on below
                continue
        if not future.cancelled():
            future.exception()  # the cancel is what the caller learns of
        raise


@asynccontextmanager
async def opened_in_thread(
    function: Callable[P, AbstractContextManager[T]], *args: P.args, **kwargs: P.kwargs
) -> AsyncIterator[T]:
    """Enter what a blocking function returns, and leave it at the end, both in threads.

    It is left in any case, also when a cancel comes while the function runs.
    """
    stack = ExitStack()

    def enter() -> T:
        return stack.enter_context(function(*args, **kwargs))

    try:
        yield await in_thread(enter)
    finally:
        await in_thread(stack.close)


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a `TaskGroup` whose first failure is raised as itself, not inside an `ExceptionGroup`."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as group_error:
        first = group_error.exceptions[0]
        raise first from first.__cause__
