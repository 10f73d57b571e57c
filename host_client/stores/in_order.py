"""Reading many things from a store, several at a time, and using them one after the other.

The one rule: no more is under way, or waits to be used, than the caller allows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from host_client.session.task import task_group

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")

CONCURRENCY_COUNT = 8
"""Reads that are under way at a time, unless the caller says otherwise."""


async def each(
    items: Iterable[T], work: Callable[[T], Awaitable[None]], *, concurrency_count: int = CONCURRENCY_COUNT
) -> None:
    """Do some work for each item, for several at a time; the first failure ends it."""

    async def nothing(_: None) -> None:
        """Have no result."""

    await in_order(items, work, nothing, concurrency_count=concurrency_count)


async def in_order(
    items: Iterable[T],
    read: Callable[[T], Awaitable[R]],
    use: Callable[[R], Awaitable[None]],
    *,
    concurrency_count: int = CONCURRENCY_COUNT,
) -> None:
    """Read items, several at a time, and use what was read in their order, one at a time.

    No more than that many are read or wait to be used.
    """
    room = asyncio.Semaphore(concurrency_count)
    waiting: asyncio.Queue[asyncio.Task[R] | None] = asyncio.Queue(concurrency_count)

    async def reading(item: T) -> R:
        return await read(item)

    async def fill() -> None:
        for item in items:
            await room.acquire()
            await waiting.put(group.create_task(reading(item)))
        await waiting.put(None)

    async with task_group() as group:
        group.create_task(fill())
        while (task := await waiting.get()) is not None:
            await use(await task)
            room.release()
