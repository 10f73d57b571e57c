"""One turn, from the request for a sandbox to its return, in this order.

1. What cannot work is refused, and the host's copy of the conversation is located (`preparation.py`).
2. A sandbox is acquired. What happens in it is in `stay.py`.
3. However that ended, the sandbox goes back.

The one rule: no failure hides another.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from host_client.turns.ending import Failures
from host_client.turns.preparation import prepare
from host_client.turns.provider import AcquireContext
from host_client.turns.result import TurnResult
from host_client.turns.stay import Stay
from host_client.turns.winding import completed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.stores.contract import ConversationRecord
    from host_client.turns.plan import TurnPlan


class Execution:
    """A turn that runs once."""

    def __init__(self, plan: TurnPlan) -> None:
        self._plan = plan
        self._failures = Failures(plan.options.redaction)
        self._stay: Stay | None = None

    @property
    def conversation_id(self) -> str:
        """The conversation that the turn works on; empty: none that is known."""
        return self._stay.conversation_id if self._stay else ""

    @property
    def record(self) -> ConversationRecord | None:
        """What was captured."""
        return self._stay.record if self._stay else None

    @property
    def failures(self) -> Sequence[Exception]:
        """All that went wrong, in order; cancels are no failures."""
        return self._failures.all

    async def run(self) -> TurnResult:
        """Run the turn; see `TurnRunner.run` for what it raises."""
        continuation, known = self._plan.continuation, self._plan.known
        if continuation is None or continuation.fork:
            return await self._run()
        with self._failures.kept():
            known.begin(continuation.id)
        self._failures.raise_all()
        try:
            return await self._run()
        finally:
            known.end(continuation.id)

    async def _run(self) -> TurnResult:
        started = time.monotonic()
        plan, failures = self._plan, self._failures
        features, options, continuation = plan.agent.features, plan.options, plan.continuation
        continued_id = continuation.id if continuation else ""
        last_turn = plan.known.get(continued_id) if continued_id else None
        wanted = AcquireContext(agent=features.name, repository=options.repository, conversation_id=continued_id)
        with failures.kept():
            prepared = await prepare(features, options, plan.text, continuation, last_turn)
            sandbox = await plan.provider.acquire(wanted)
        failures.raise_all()
        stay = self._stay = Stay(plan, sandbox, prepared, last_turn, failures)
        with failures.kept():
            await stay.run()
        with failures.kept():
            await completed(plan.provider.release(sandbox), is_cancelled=failures.is_cancelled)
        failures.conversation_id = stay.conversation_id
        failures.raise_all()
        reading = stay.reading
        return TurnResult(
            agent=features.name,
            text=reading.text,
            events=reading.events,
            events_count=reading.events_count,
            usage=stay.usage,
            conversation_id=reading.conversation_id or None,
            record=stay.record,
            duration_seconds=time.monotonic() - started,
            notices=tuple(stay.notices),
            _continue=plan.resume,
        )
