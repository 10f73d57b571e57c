"""Run the blocking steps of one call in threads, one after the other.

The one rule: what a step uses is closed in a thread after the last step has ended, however the call ends. A cancel
stops the waiting, never a step that is running.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import wait
from contextlib import ExitStack
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from sandbox_agent import log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor, Future
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Worker:
    """The thread side of one call; an async context manager.

    At most one step runs at a time: start the next only after waiting for the last.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._held = ExitStack()
        self._step: Future[object] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        closing = self._executor.submit(self._close, kind, error, trace)
        await _outlast(asyncio.wrap_future(closing))

    def start(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Begin a step and return at once."""
        step = self._executor.submit(function, *args, **kwargs)
        self._step = step  # type: ignore[assignment]  # only ever waited for
        return step

    async def run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run one step and return what it returns."""
        return await asyncio.wrap_future(self.start(function, *args, **kwargs))

    async def enter(self, manager: AbstractContextManager[_T]) -> _T:
        """Enter a context manager in a thread; it is left in a thread when the call ends."""
        return await self.run(self._held.enter_context, manager)

    def _close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A step that has not begun never will; one that runs has its own thread, so that waiting here cannot lock up.
        if self._step is not None and not self._step.cancel():
            wait([self._step])
        try:
            self._held.__exit__(kind, error, trace)
        except Exception as failure:
            # The first error is the one to report; what failed while cleaning up after it goes to the log.
            if error is None or failure is error:
                raise
            log.failure("cleaning up failed", failure)


async def _outlast(work: Awaitable[_T]) -> _T:
    """Wait for work to its end even when cancelled meanwhile, then pass the cancel on."""
    task = asyncio.ensure_future(work)
    cancel: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancel = error
    result = task.result()
    if cancel is not None:
        raise cancel
    return result
