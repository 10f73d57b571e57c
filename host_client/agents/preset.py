"""What the built-in agents have in common; each is an `AgentAdapter` as anybody could write one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from host_client.agents.adapter import AgentAdapter
from host_client.agents.event import TextEvent, ToolEvent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from host_client.stores.contract import ConversationStore

BETWEEN_MESSAGES = "\n\n"


@dataclass(frozen=True, kw_only=True)
class PresetOptions:
    """What a user may choose of a built-in agent.

    Attributes:
        storage: Store of its conversations.
        model: Model it is told to use; empty: its own choice.
        arguments: Further arguments of its command line, before the prompt.
        variables: Environment of its commands.
    """

    storage: ConversationStore
    model: str = ""
    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def model_words(self) -> Sequence[str]:
        """The words that tell a CLI its model: all of the built-in ones take the same."""
        return ["--model", self.model] if self.model else []


class Preset(AgentAdapter):
    """A built-in agent: its options, and what it has said and called so far in the turn."""

    requires_finished_event = True

    def __init__(self, options: PresetOptions) -> None:
        self.storage = options.storage
        self.variables = options.variables
        self._options = options
        self._message: list[str] = []
        self._tools: dict[str, str] = {}

    def said(self, text: str, *, goes_on: bool = False) -> list[TextEvent]:
        """Return what tells of a message, or of a piece of one that goes on. Messages are set apart."""
        if not text:
            return []
        between = BETWEEN_MESSAGES if self._message and not goes_on else ""
        if not goes_on:
            self._message = []
        self._message.append(text)
        return [TextEvent(between + text)]

    @property
    def last_message(self) -> str:
        """The newest of all messages: the answer, when the turn is over."""
        return "".join(self._message)

    def called(self, tool_id: str, name: str, words: str) -> ToolEvent:
        """Return what tells of a tool's start."""
        self._tools[tool_id] = name
        return ToolEvent(name, tool_id, input=words)

    def returned(self, tool_id: str, words: str, *, has_failed: bool) -> ToolEvent:
        """Return what tells of the end of a tool, which has the name that it was called by."""
        name = self._tools.pop(tool_id, "")
        return ToolEvent(name, tool_id, "failed" if has_failed else "completed", output=words)
