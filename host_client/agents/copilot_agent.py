"""The agent `copilot`: GitHub Copilot CLI without a terminal.

What is said here of its output was seen with 1.0.102, or stands in the schema of its events, which it brings along. The
prompt goes to standard input, so it may be of any length and no list of processes shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.agents.adapter import Command
from host_client.agents.event import (
    ConversationEvent,
    FailureEvent,
    FinishedEvent,
    NoticeEvent,
    ReasoningEvent,
    ResultEvent,
)
from host_client.agents.output_line import parsed
from host_client.agents.preset import Preset
from host_client.agents.usage import Usage
from host_client.agents.usage_record import printing, total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.agents.adapter import TurnInput
    from host_client.agents.event import AgentEvent
    from host_client.agents.output_line import Fields
    from host_client.agents.preset import PresetOptions

_BATCH = ("--output-format", "json", "--allow-all", "--no-ask-user", "--no-auto-update")
"""JSON lines, no question, for what a tool may do is the sandbox's business; and a pinned version stays what it is."""

_RECORDS = printing("session.usage_record", '"${COPILOT_HOME:-$HOME/.copilot}/session-state/$1/events.jsonl"')
"""Where the CLI keeps its sessions is known to the environment it runs in, so a shell reads that."""

_FAMILIES = frozenset(
    (
        "abort",
        "agent",
        "assistant",
        "command",
        "hook",
        "model",
        "permission",
        "session",
        "session_limits_exhausted",
        "skill",
        "subagent",
        "system",
        "tool",
        "tool_search",
        "user",
    )
)
"""First words of the kinds of lines that may be passed over."""


class CopilotAgent(Preset):
    """One turn of Copilot CLI."""

    name = "copilot"
    bootstrap = "copilot"
    usage = "session"
    forkable = False

    def __init__(self, options: PresetOptions) -> None:
        super().__init__(options)
        self._id = ""
        self._told_id = ""
        self._error = ""
        self._in_pieces: set[str] = set()

    def request(self, turn: TurnInput) -> Command:
        """Resume by `--resume`, which fails when there is no such session; a new one gets the caller's id.

        `-C` keeps a resumed session from going to the directory that it was begun in.
        """
        arguments = ["-C", str(turn.workspace), *_BATCH, *self._options.model_words]
        if turn.continuation:
            self._id = turn.continuation.id
            arguments.append(f"--resume={self._id}")
        elif turn.conversation_id:
            self._id = turn.conversation_id
            arguments += ["--session-id", self._id]
        return Command("copilot", [*arguments, *self._options.arguments], turn.text)

    def events(self, line: str) -> Sequence[AgentEvent]:
        """Read a line of JSON.

        Only the last line of a turn that was not ended from outside has the id; so the one that the CLI was told is
        announced with the first line.

        Raises:
            ValueError: nobody knows what it means.
        """
        fields = parsed(line)
        kind = fields.text("type")
        data = fields.child("data")
        if kind == "result":
            return self._result(fields)
        if kind.partition(".")[0] not in _FAMILIES:
            raise ValueError("an unknown kind of line")
        return [*self._announced(self._id), *self._event(kind, data)]

    def usage_command(self, conversation_id: str) -> Command:
        """Print the session's records of tokens, one for each request to a model."""
        return Command("sh", ["-c", _RECORDS, "sh", conversation_id])

    def usage_result(self, text: str) -> Usage | None:
        """Add them up."""
        return total(text, _record)

    def _announced(self, conversation_id: str) -> list[AgentEvent]:
        if not conversation_id or conversation_id == self._told_id:
            return []
        self._told_id = conversation_id
        return [ConversationEvent(conversation_id)]

    def _event(self, kind: str, data: Fields) -> list[AgentEvent]:
        # What a sub-agent says is no part of the answer; what it does is worth seeing.
        is_own = not data.text("parentToolCallId")
        tool_id = data.text("toolCallId")
        found: list[AgentEvent] = []
        if kind == "tool.execution_start":
            found = [self.called(tool_id, data.text("toolName"), data.shown("arguments"))]
        elif kind == "tool.execution_complete":
            output = data.child("result").text("content") or data.child("error").text("message")
            found = [self.returned(tool_id, output, has_failed=not data.is_true("success"))]
        elif kind in ("assistant.message_delta", "assistant.message") and is_own:
            found = self._message_of(data, is_piece=kind == "assistant.message_delta")
        elif kind == "assistant.reasoning" and data.text("content"):
            found = [ReasoningEvent(data.text("content"))]
        elif kind in ("session.error", "session.warning", "session.info"):
            # Whether an error was the end is told by the last line.
            self._error = data.text("message") if kind == "session.error" else self._error
            found = [NoticeEvent(data.text("message"))]
        return found

    def _message_of(self, data: Fields, *, is_piece: bool) -> list[AgentEvent]:
        """Tell a message once: in pieces where it comes so, and then not again as a whole."""
        message_id = data.text("messageId")
        goes_on = message_id in self._in_pieces
        if not is_piece:
            return [] if goes_on else [*self.said(data.text("content"))]
        self._in_pieces.add(message_id)
        return [*self.said(data.text("deltaContent"), goes_on=goes_on)]

    def _result(self, fields: Fields) -> list[AgentEvent]:
        found = self._announced(fields.text("sessionId"))
        if fields.count("exitCode") != 0:
            return [*found, FailureEvent(self._error or f"exit code {fields.shown('exitCode') or 'unknown'}")]
        answer = [ResultEvent(self.last_message)] if self.last_message else []
        return [*found, *answer, FinishedEvent()]


def _record(fields: Fields) -> Usage | None:
    """Read one record; its input has what caches gave and took."""
    if fields.text("type") != "session.usage_record":
        return None
    counts = fields.child("data").child("usage")
    whole = counts.count("inputTokens")
    read, written = counts.count("cacheReadTokens"), counts.count("cacheWriteTokens")
    return Usage(
        input_tokens=None if whole is None else max(0, whole - (read or 0) - (written or 0)),
        output_tokens=counts.count("outputTokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=counts.count("reasoningTokens"),
    )


AGENT = CopilotAgent
