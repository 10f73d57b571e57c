"""How a method that blocks is made of an asynchronous one: by one event loop in one background thread."""

from __future__ import annotations

import asyncio
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, TypeVar

from anyio.from_thread import BlockingPortalProvider

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")

PORTAL = BlockingPortalProvider("asyncio")
"""Enter it to have the loop for longer than one call."""


class _Call(Generic[T]):
    """A call in the background thread, which can be cancelled before whoever starts it has learned that it runs.

    Its methods run in that thread.
    """

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False

    async def run(self) -> T:
        self._task = asyncio.current_task()
        if self._is_cancelled:
            raise asyncio.CancelledError
        return await self._function()

    async def cancel(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()


def wait_for(function: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function in the loop and return its result; an interrupt of this thread cancels it."""
    call = _Call(function)
    with PORTAL as portal:
        try:
            return portal.start_task_soon(call.run).result()
        except BaseException:
            portal.start_task_soon(call.cancel)  # does nothing unless we were interrupted
            raise


class Blocking(Generic[A]):
    """An object with blocking methods in front of an asynchronous one."""

    def __init__(self, asynchronous: A) -> None:
        self.asynchronous = asynchronous


def call(method: Callable[Concatenate[A, P], Awaitable[T]]) -> Callable[Concatenate[Blocking[A], P], T]:
    """Return the method of the façade that waits for the result of the asynchronous one of that name."""

    @wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound: Callable[P, Awaitable[T]] = getattr(self.asynchronous, method.__name__)
        return wait_for(partial(bound, *args, **kwargs))

    return call


def every(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Blocking[A], P], Sequence[T]]:
    """Return the method of the façade that collects all items of the asynchronous iterator of that name."""

    @wraps(method)
    def collect(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> Sequence[T]:
        bound: Callable[P, AsyncIterator[T]] = getattr(self.asynchronous, method.__name__)

        async def collected() -> Sequence[T]:
            return [item async for item in bound(*args, **kwargs)]

        return wait_for(collected)

    return collect


def each(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Yield the items of an asynchronous generator as they come, and close it at the end."""

    async def next_item() -> T | None:
        return await anext(items, None)

    with PORTAL:  # between two calls, too, it is the same loop
        try:
            while (item := wait_for(next_item)) is not None:
                yield item
        finally:
            wait_for(items.aclose)
