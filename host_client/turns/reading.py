"""What a turn's events add up to, as they come."""

from __future__ import annotations

from collections import deque
from dataclasses import fields
from itertools import islice
from typing import TYPE_CHECKING, TypeGuard

from host_client.agents.event import (
    AgentEvent,
    ConversationEvent,
    FailureEvent,
    FinishedEvent,
    RawEvent,
    ResultEvent,
    TextEvent,
    UsageEvent,
)
from host_client.errors import ProcessError, printable
from host_client.stores.contract import Notice
from host_client.turns.account import Account, is_sound
from sandbox_api.names import CONVERSATION_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.agents.adapter import AgentAdapter

MAX_KEPT_BYTES = 64 << 20
"""Output whose events a result keeps; of more, the first ones are forgotten."""

MAX_LINE_EVENTS_COUNT = 1 << 16
"""Events of one line; an adapter may be a generator that never ends."""

_EVENT_BYTES = 200
"""What an event takes beside its text, more or less."""


class Reading:
    """The output of one turn, read line by line.

    Args:
        adapter: Knows what lines mean.
        resumed_id: Conversation that the agent was told to go on with, or to fork; empty: a new one.
        is_fork: The agent was told to fork.

    Attributes:
        conversation_id: The conversation of the turn, once it is known; else empty.
        finished: The agent said that its turn ended well.
        failure: What the agent said when its turn failed; None: it did not fail.
        account: Tokens.
        notices: What should be known of the output.
        events_count: All events so far.
    """

    def __init__(self, adapter: AgentAdapter, resumed_id: str = "", *, is_fork: bool = False) -> None:
        self._adapter = adapter
        self._resumed_id = resumed_id
        self._is_fork = is_fork
        self._text: list[str] = []
        self._result: str | None = None
        self._kept: deque[tuple[int, AgentEvent]] = deque()
        self._kept_bytes = 0
        self.conversation_id = "" if is_fork else resumed_id
        self.finished = False
        self.failure: str | None = None
        self.account = Account()
        self.notices: list[Notice] = []
        self.events_count = 0

    @property
    def text(self) -> str:
        """What the agent said: its final answer where it told one, else all pieces."""
        return "".join(self._text) if self._result is None else self._result

    @property
    def events(self) -> Sequence[AgentEvent]:
        """The last events, of at most `MAX_KEPT_BYTES` of output."""
        return tuple(event for _, event in self._kept)

    def line(self, line: str) -> Sequence[AgentEvent]:
        """Return what a line means. One that the adapter fails at is one `RawEvent`."""
        if not line:
            return ()
        events: Sequence[object]
        try:
            events = tuple(islice(self._adapter.events(line), MAX_LINE_EVENTS_COUNT + 1))
        except Exception:  # noqa: BLE001  an agent may print anything, and adapters are written by users
            return (RawEvent(line),)
        sound = [event for event in events if _is_sound(event)]
        return sound if len(sound) == len(events) <= MAX_LINE_EVENTS_COUNT else (RawEvent(line),)

    def take(self, event: AgentEvent, size_bytes: int) -> None:
        """Note what an event says, before it is told to anybody.

        Raises:
            ProcessError: `reported_failure`: the agent does not work on the conversation that it was told to go on
                with, or did not fork it.
        """
        self._keep(event, size_bytes)
        match event:
            case TextEvent(text):
                self._text.append(text)
            case ResultEvent(text):
                self._result = text
            case UsageEvent():
                self.account.add(event)
            case FinishedEvent():
                self.finished = True
            case FailureEvent(message):
                self.failure = self.failure or message or "it did not say why"
            case ConversationEvent(conversation_id):
                self._announced(conversation_id)
            case _:
                pass  # for whoever watches

    def _announced(self, conversation_id: str) -> None:
        if not CONVERSATION_ID.fullmatch(conversation_id):
            shown = printable(conversation_id)[:140]
            self.notices.append(Notice("unusable_id", f"the agent announced '{shown}', which is no conversation id"))
            return
        was_told = self._resumed_id
        if was_told and (conversation_id == was_told) is self._is_fork:
            self.conversation_id = conversation_id
            what = "did not fork it" if self._is_fork else f"works on {conversation_id} instead"
            raise ProcessError(
                "reported_failure",
                f"{self._adapter.name} was told to {'fork' if self._is_fork else 'resume'} {was_told} and {what}",
                hint="the agent does not know the conversation, or its adapter asks for it in a wrong way",
                facts={"resumed": was_told},
            )
        self.conversation_id = conversation_id

    def _keep(self, event: AgentEvent, size_bytes: int) -> None:
        self.events_count += 1
        self._kept.append((size_bytes + _EVENT_BYTES, event))
        self._kept_bytes += size_bytes + _EVENT_BYTES
        while self._kept_bytes > MAX_KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popleft()[0]


def _is_sound(event: object) -> TypeGuard[AgentEvent]:
    """Tell whether it is an event whose values have their types; a careless adapter takes them as the line has them."""
    if not isinstance(event, AgentEvent):
        return False
    if isinstance(event, UsageEvent):
        return is_sound(event.tokens) and isinstance(event.cumulative, bool)
    return all(isinstance(getattr(event, field.name), str) for field in fields(event))
