"""All that one turn is made of, before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from host_client.agents.adapter import AgentAdapter, Continuation
    from host_client.agents.event import AgentEvent
    from host_client.agents.harness import Agent
    from host_client.turns.known import KnownConversations
    from host_client.turns.options import TurnOptions
    from host_client.turns.provider import SandboxProvider
    from host_client.turns.result import TurnResult


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnPlan:
    """One turn.

    Attributes:
        agent: The agent.
        adapter: The agent's adapter of this turn.
        provider: Has the sandbox.
        options: The runner's.
        known: The conversations that the runner knows; the turn's own is noted.
        text: What the user says.
        continuation: What the turn goes on with; None: a new conversation.
        emit: Told every event; waited for, so the agent waits when it takes long.
        resume: Goes on with the conversation, for the result.
    """

    agent: Agent
    adapter: AgentAdapter
    provider: SandboxProvider
    options: TurnOptions
    known: KnownConversations
    text: str
    continuation: Continuation | None
    emit: Callable[[AgentEvent], Awaitable[None]]
    resume: Callable[[str, Continuation], Awaitable[TurnResult]]
