"""Turns of agents, blocking."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from host_client.sync.blocking import PORTAL, Blocking, wait_for
from host_client.turns import result as _result
from host_client.turns import runner as _runner
from host_client.turns import turn as _turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from host_client.agents.adapter import Continuation
    from host_client.agents.event import AgentEvent
    from host_client.agents.harness import Agent
    from host_client.agents.usage import Usage
    from host_client.stores.contract import ConversationRecord, Notice
    from host_client.turns.provider import SandboxProvider
    from host_client.turns.turn import Observer


class TurnResult(Blocking[_result.TurnResult]):
    """A turn that ended well; see `host_client.turns.result.TurnResult`.

    Attributes:
        agent: Name of the agent.
        text: What it answered.
        events: What it told, in order.
        events_count: All events that it told.
        usage: Tokens.
        conversation_id: The conversation; None: the agent did not announce one.
        record: The conversation as it is kept on the host.
        duration_seconds: What the turn took.
        notices: What else should be known.
    """

    def __init__(self, asynchronous: _result.TurnResult) -> None:
        super().__init__(asynchronous)
        self.agent: str = asynchronous.agent
        self.text: str = asynchronous.text
        self.events: Sequence[AgentEvent] = asynchronous.events
        self.events_count: int = asynchronous.events_count
        self.usage: Usage | None = asynchronous.usage
        self.conversation_id: str | None = asynchronous.conversation_id
        self.record: ConversationRecord | None = asynchronous.record
        self.duration_seconds: float = asynchronous.duration_seconds
        self.notices: Sequence[Notice] = asynchronous.notices

    def __repr__(self) -> str:
        return repr(self.asynchronous)

    def resume(self, text: str) -> TurnResult:
        """Go on with the conversation, by the same runner."""
        return TurnResult(wait_for(partial(self.asynchronous.resume, text)))

    def fork(self, text: str) -> TurnResult:
        """Go on with a copy of the conversation, by the same runner."""
        return TurnResult(wait_for(partial(self.asynchronous.fork, text)))


class Turn(Blocking[_turn.Turn]):
    """A turn that runs; see `host_client.turns.turn.Turn`. Iterate it for its events; each is waited for."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AgentEvent:
        async def next_event() -> AgentEvent | None:
            return await anext(self.asynchronous, None)

        event = wait_for(next_event)
        if event is None:
            raise StopIteration
        return event

    def result(self) -> TurnResult:
        """Return what the turn came to, once it is over."""
        return TurnResult(wait_for(self.asynchronous.result))

    @property
    def conversation_id(self) -> str | None:
        """The conversation; None: it is not known yet."""
        return self.asynchronous.conversation_id

    @property
    def record(self) -> ConversationRecord | None:
        """The conversation as it was captured; None: it was not."""
        return self.asynchronous.record


class TurnRunner(Blocking[_runner.TurnRunner]):
    """Runs turns of one agent; see `host_client.turns.runner.TurnRunner`.

    Observers and the provider are called in the background thread; observers must not call a method of this module.

    Args:
        agent: The agent.
        provider: Has the sandboxes; for one that is connected here, give its `asynchronous`.
        options: The further parameters of the asynchronous one.
    """

    def __init__(self, agent: Agent, provider: SandboxProvider, **options: Any) -> None:
        super().__init__(_runner.TurnRunner(agent, provider, **options))

    def run(self, text: str, *, on_event: Observer | None = None) -> TurnResult:
        """Run a turn of a new conversation."""
        return TurnResult(wait_for(partial(self.asynchronous.run, text, on_event=on_event)))

    def resume(self, conversation_id: str, text: str, *, on_event: Observer | None = None) -> TurnResult:
        """Run a turn that goes on with a conversation, in whatever sandbox the provider has."""
        return TurnResult(wait_for(partial(self.asynchronous.resume, conversation_id, text, on_event=on_event)))

    def fork(self, conversation_id: str, text: str, *, on_event: Observer | None = None) -> TurnResult:
        """Run a turn that goes on with a copy of a conversation, which stays as it is."""
        return TurnResult(wait_for(partial(self.asynchronous.fork, conversation_id, text, on_event=on_event)))

    @contextmanager
    def turn(
        self, text: str, *, continuation: Continuation | None = None, on_event: Observer | None = None
    ) -> Iterator[Turn]:
        """Run a turn in the background of a block, to iterate its events; leaving the block early ends it."""
        turn = self.asynchronous.turn(text, continuation=continuation, on_event=on_event)
        with PORTAL as portal, portal.wrap_async_context_manager(turn) as running:
            yield Turn(running)
