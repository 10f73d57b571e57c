"""A turn that runs: its events as they come, and its result.

The one rule: it runs in a task of its own, which is over when the context is left, whatever happens in between.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from host_client.errors import UnavailableError
from host_client.turns.winding import joined

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from typing import Self

    from host_client.agents.event import AgentEvent
    from host_client.stores.contract import ConversationRecord
    from host_client.turns.execution import Execution
    from host_client.turns.result import TurnResult

    Observer = Callable[[AgentEvent], Awaitable[None] | None]

MAX_WAITING_COUNT = 256
"""Events that wait for whoever iterates. When there are more the agent waits, too."""


class Turn:
    """A turn that runs, made by `TurnRunner.turn`. Iterate it for its events; it ends, or fails, when they do.

    Args:
        observers: Told every event first.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        self._waiting: asyncio.Queue[AgentEvent | None] = asyncio.Queue(MAX_WAITING_COUNT)
        self._execution: Execution | None = None
        self._outcome: TurnResult | BaseException = asyncio.CancelledError("the turn was left before it began")
        self._is_over = False
        self._is_told = False

    @property
    def conversation_id(self) -> str | None:
        """The conversation; None: it is not known yet. Of a turn that failed, what can be resumed."""
        return (self._execution.conversation_id if self._execution else "") or None

    @property
    def record(self) -> ConversationRecord | None:
        """The conversation as it was captured, after a failed turn as well; None: it was not."""
        return self._execution.record if self._execution else None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        event = await self._next()
        if event is None:
            self._told_result()
            raise StopAsyncIteration
        return event

    async def result(self) -> TurnResult:
        """Return what the turn came to, once it is over. Events that were not iterated are passed over.

        Raises:
            OutpostError: as `TurnRunner.run`; `unavailable`/`cancelled`: the context was left before the turn was over.
        """
        while await self._next() is not None:
            pass
        return self._told_result()

    async def emit(self, event: AgentEvent) -> None:
        """Tell an event to all observers, then to whoever iterates."""
        for observer in self._observers:
            told = observer(event)
            if inspect.isawaitable(told):
                await told
        await self._waiting.put(event)

    @asynccontextmanager
    async def running(self, execution: Execution) -> AsyncIterator[Self]:
        """Run the turn for as long as the context lasts; leaving it early ends the turn and captures it."""
        self._execution = execution
        error: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self._run(execution))
                try:
                    yield self
                except BaseException as raised:  # noqa: BLE001  raised below, when the turn is over
                    error = raised
                if not task.done():
                    task.cancel()
        except asyncio.CancelledError as cancel:  # while the turn was wound up; of two cancels the first goes on
            error = error if isinstance(error, asyncio.CancelledError) else joined(error, cancel)
        self._end()
        if not self._is_told:
            # Nobody has learned yet of what went wrong; that it was left is what was wanted.
            for failure in execution.failures:
                error = joined(error, failure)
        if error is not None:
            raise error

    async def _run(self, execution: Execution) -> None:
        try:
            self._outcome = await execution.run()
        except BaseException as error:  # noqa: BLE001  raised by whoever asks for the turn
            self._outcome = error
        finally:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        if not self._waiting.full():
            self._waiting.put_nowait(None)  # somebody may be waiting for an event

    async def _next(self) -> AgentEvent | None:
        """Return the next event; None: there are no more, and the turn is over."""
        if self._is_over and self._waiting.empty():
            return None
        event = await self._waiting.get()
        if event is None:
            self._waiting.put_nowait(None)  # for another task that waits
        return event

    def _told_result(self) -> TurnResult:
        self._is_told = True
        if isinstance(self._outcome, asyncio.CancelledError):
            # Who asks was not cancelled: a cancel from nowhere would end their task without a word.
            raise UnavailableError("cancelled", "the turn was left before it was over") from self._outcome
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome
