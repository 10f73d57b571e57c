"""What an agent tells while it works: one class per kind of event, the same for every CLI.

The runner of turns acts on `TextEvent`, `ResultEvent`, `ConversationEvent`, `UsageEvent`, `FinishedEvent` and
`FailureEvent`; the others are for whoever watches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from host_client.agents.usage import Usage


@dataclass(frozen=True, slots=True)
class TextEvent:
    """A piece of the agent's answer.

    Attributes:
        text: Joined in the order of the events, without anything between, all pieces are what the agent said.
    """

    text: str
    kind: ClassVar[str] = "text"


@dataclass(frozen=True, slots=True)
class ResultEvent:
    """The agent's whole final answer; it wins over the text that was told before."""

    text: str
    kind: ClassVar[str] = "result"


@dataclass(frozen=True, slots=True)
class ConversationEvent:
    """The id of the conversation that the turn belongs to."""

    id: str
    kind: ClassVar[str] = "conversation"


@dataclass(frozen=True, slots=True)
class UsageEvent:
    """Tokens used: by one step, or, when `cumulative`, by the turn so far."""

    tokens: Usage
    cumulative: bool = False
    kind: ClassVar[str] = "usage"


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """The agent's own word that its turn ended well."""

    kind: ClassVar[str] = "finished"


@dataclass(frozen=True, slots=True)
class FailureEvent:
    """The agent's own word that its turn failed."""

    message: str
    kind: ClassVar[str] = "failure"


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """A tool that the agent uses.

    Attributes:
        name: Its name in the agent's own words.
        id: The same for the call and its end; empty: the agent has none.
        state: `started`, `completed` or `failed`.
        input: What it was called with, as the agent prints it; empty at the end when it stood at the start.
        output: What it returned, at the end.
    """

    name: str
    id: str = ""
    state: str = "started"
    input: str = ""
    output: str = ""
    kind: ClassVar[str] = "tool"


@dataclass(frozen=True, slots=True)
class ReasoningEvent:
    """A piece of what the agent thinks."""

    text: str
    kind: ClassVar[str] = "reasoning"


@dataclass(frozen=True, slots=True)
class NoticeEvent:
    """Something the agent reports that is none of the others, such as a retry or a warning."""

    message: str
    kind: ClassVar[str] = "notice"


@dataclass(frozen=True, slots=True)
class RawEvent:
    """A line that nobody understood, without its end; bytes that are no UTF-8 are replaced."""

    line: str
    kind: ClassVar[str] = "raw"


AgentEvent = (
    TextEvent
    | ResultEvent
    | ConversationEvent
    | UsageEvent
    | FinishedEvent
    | FailureEvent
    | ToolEvent
    | ReasoningEvent
    | NoticeEvent
    | RawEvent
)
