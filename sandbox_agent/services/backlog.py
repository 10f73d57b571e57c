"""Blocking steps of one call that wait for the one that runs: many small ones share a turn in a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from sandbox_agent.services.worker import Worker

_MAX_STEPS_COUNT = 256


class Backlog:
    """Steps in their order; a context manager. What they hold in memory is bounded by about two chunks.

    A step begins as soon as those before it have run, whether or not more are added. After the block none begins.

    Args:
        worker: Where they run; nobody else starts steps on it within the block.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._steps: list[Callable[[], object]] = []
        self._size_bytes = 0
        self._turn: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._steps.clear()

    async def add(self, step: Callable[[], object], size_bytes: int = 0) -> None:
        """Add a step. Waits only when enough are waiting already.

        Args:
            step: What to run; its result is dropped.
            size_bytes: What it holds in memory.

        Raises:
            Exception: what an earlier step raised; none after that one has run or will.
        """
        self._steps.append(step)
        self._size_bytes += size_bytes
        if self._turn is None:
            self._begin()
        elif self._turn.done():
            self._turn.result()
            self._begin()
        elif self._size_bytes >= CHUNK_BYTES or len(self._steps) >= _MAX_STEPS_COUNT:
            await self._turn

    async def finish(self) -> None:
        """Wait until all steps have run.

        Raises:
            Exception: as `add`.
        """
        while self._turn is not None:
            await self._turn
            if self._turn.done():
                if not self._steps:
                    return
                self._begin()

    def _begin(self) -> None:
        steps, self._steps, self._size_bytes = self._steps, [], 0
        self._turn = asyncio.wrap_future(self._worker.start(_run, steps))
        self._turn.add_done_callback(self._go_on)

    def _go_on(self, turn: asyncio.Future[None]) -> None:
        # Called a moment after the turn's end: by then another may have begun.
        if turn is self._turn and not turn.cancelled() and turn.exception() is None and self._steps:
            self._begin()


def _run(steps: Sequence[Callable[[], object]]) -> None:
    for step in steps:
        step()
