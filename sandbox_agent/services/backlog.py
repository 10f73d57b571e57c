"""Blocking steps of one call that are waiting for the one that runs: many small ones share a turn in a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from sandbox_agent.services.worker import Worker

_MAX_STEPS_COUNT = 256


class Backlog:
    """Steps in their order. What they hold in memory is bounded by about two chunks.

    Args:
        worker: Where they run; nobody else starts steps on it before `finish`.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._steps: list[Callable[[], object]] = []
        self._size_bytes = 0
        self._turn: Future[None] | None = None

    async def add(self, step: Callable[[], object], size_bytes: int = 0) -> None:
        """Add a step; it runs when those before it have. Waits only when enough are waiting already.

        Args:
            step: What to run; its result is dropped.
            size_bytes: What it holds in memory.

        Raises:
            Exception: what an earlier step raised; none after that one has run or will.
        """
        self._steps.append(step)
        self._size_bytes += size_bytes
        is_full = self._size_bytes >= CHUNK_BYTES or len(self._steps) >= _MAX_STEPS_COUNT
        if is_full or self._turn is None or self._turn.done():
            await self._next_turn()

    async def finish(self) -> None:
        """Wait until all steps have run.

        Raises:
            Exception: as `add`.
        """
        while self._steps:
            await self._next_turn()
        if self._turn is not None:
            await asyncio.wrap_future(self._turn)

    async def _next_turn(self) -> None:
        if self._turn is not None:
            await asyncio.wrap_future(self._turn)
        steps, self._steps, self._size_bytes = self._steps, [], 0
        self._turn = self._worker.start(_run, steps)


def _run(steps: Sequence[Callable[[], object]]) -> None:
    for step in steps:
        step()
