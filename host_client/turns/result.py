"""What a turn came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from host_client.agents.adapter import Continuation
from host_client.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from host_client.agents.event import AgentEvent
    from host_client.agents.usage import Usage
    from host_client.stores.contract import ConversationRecord, Notice


@dataclass(frozen=True, kw_only=True)
class TurnResult:
    """A turn that ended well.

    Attributes:
        agent: Name of the agent.
        text: What it answered.
        events: What it told, in order: the last events, of at most 64 MiB of output.
        events_count: All events that it told.
        usage: Tokens; None: not recorded, or never told where nothing must be.
        conversation_id: The conversation; None: the agent did not announce one, and nothing can be resumed.
        record: The conversation as it is kept on the host; None: it was not captured.
        duration_seconds: What the turn took, from the request for a sandbox to its return.
        notices: What else should be known, of restore, output and capture.
    """

    agent: str
    text: str
    events: Sequence[AgentEvent]
    events_count: int
    usage: Usage | None
    conversation_id: str | None
    record: ConversationRecord | None
    duration_seconds: float
    notices: Sequence[Notice] = ()
    _continue: Callable[[str, Continuation], Awaitable[TurnResult]] = field(repr=False, compare=False)

    async def resume(self, text: str) -> TurnResult:
        """Go on with the conversation, by the same runner; see `TurnRunner.resume`.

        Raises:
            ConfigurationError: `no_conversation`: the agent did not announce one.
        """
        return await self._continue(text, self._continuation(fork=False))

    async def fork(self, text: str) -> TurnResult:
        """Go on with a copy of the conversation, by the same runner; see `TurnRunner.fork`.

        Raises:
            ConfigurationError: `no_conversation`: the agent did not announce one.
        """
        return await self._continue(text, self._continuation(fork=True))

    def _continuation(self, *, fork: bool) -> Continuation:
        if self.conversation_id is None:
            raise ConfigurationError(
                "no_conversation",
                f"{self.agent} did not announce the conversation of its turn, so it cannot go on",
                hint="the agent's adapter has to tell a ConversationEvent",
            )
        return Continuation(id=self.conversation_id, fork=fork)
