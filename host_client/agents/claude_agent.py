"""The agent `claude`: Claude Code without a terminal.

What is said here of its output was seen with 2.1.332, and with 1.0.128 and 2.1.197 where these are named. The prompt
goes to standard input, so it may be of any length and no list of processes shows it.
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
    UsageEvent,
)
from host_client.agents.output_line import parsed
from host_client.agents.preset import Preset
from host_client.agents.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.agents.adapter import TurnInput
    from host_client.agents.event import AgentEvent
    from host_client.agents.output_line import Fields

_BATCH = ("--print", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
"""No terminal, JSON lines, and no question: what a tool may do is the sandbox's business."""

_VARIABLES = {"IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1"}
"""Root may skip permissions only where it says that this is a sandbox; and a pinned version stays what it is."""

_CALLS = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))
_SAID_NOTHING = frozenset(
    ("stream_event", "rate_limit_event", "tool_progress", "tool_use_summary", "auth_status", "prompt_suggestion")
)
"""Kinds of lines that repeat others in pieces, or tell nothing of the turn."""


class ClaudeAgent(Preset):
    """One turn of Claude Code."""

    name = "claude"
    bootstrap = "claude"
    usage = "events"

    def request(self, turn: TurnInput) -> Command:
        """Resume and fork by the CLI's own options; new conversations and forks get the id of the caller's choice."""
        arguments = [*_BATCH, *self._options.model_words]
        if turn.continuation:
            arguments += ["--resume", turn.continuation.id]
        is_new = turn.continuation is None or turn.continuation.fork
        if turn.continuation and turn.continuation.fork:
            arguments.append("--fork-session")
        if is_new and turn.conversation_id:
            arguments += ["--session-id", turn.conversation_id]
        return Command("claude", [*arguments, *self._options.arguments], turn.text, _VARIABLES)

    def events(self, line: str) -> Sequence[AgentEvent]:
        """Read a line of `stream-json`.

        Raises:
            ValueError: nobody knows what it means.
        """
        fields = parsed(line)
        kind = fields.text("type")
        if kind == "assistant":
            return self._answered(fields)
        if kind == "user":
            return self._returned(fields)
        if kind == "system":
            return _system(fields)
        if kind == "result":
            return _result(fields)
        if kind in _SAID_NOTHING:
            return []
        raise ValueError("an unknown kind of line")

    def _answered(self, fields: Fields) -> list[AgentEvent]:
        found: list[AgentEvent] = []
        # What a sub-agent says is no part of the answer; what it does is worth seeing.
        is_own = not fields.text("parent_tool_use_id")
        for block in fields.child("message").children("content"):
            kind = block.text("type")
            if kind in _CALLS:
                found.append(self.called(block.text("id"), block.text("name"), block.shown("input")))
            elif kind == "text" and fields.shown("error"):
                # The CLI's own words, where the model had none.
                found.append(NoticeEvent(block.text("text")))
            elif kind == "text" and is_own:
                found += self.said(block.text("text"))
            elif kind == "thinking" and is_own and block.text("thinking"):
                found.append(ReasoningEvent(block.text("thinking")))
        return found

    def _returned(self, fields: Fields) -> list[AgentEvent]:
        return [
            self.returned(block.text("tool_use_id"), _output(block), has_failed=block.is_true("is_error"))
            for block in fields.child("message").children("content")
            if block.text("type") == "tool_result"
        ]


def _output(block: Fields) -> str:
    texts = [part.text("text") for part in block.children("content") if part.text("type") == "text"]
    return "\n".join(texts) if texts else block.shown("content")


def _system(fields: Fields) -> list[AgentEvent]:
    kind = fields.text("subtype")
    if kind == "init" and fields.text("session_id"):
        # It comes again before a second answer, when a task in the background has ended.
        return [ConversationEvent(fields.text("session_id"))]
    if kind == "api_retry":
        return [NoticeEvent(f"the model is asked again: {fields.shown('error') or fields.shown('error_status')}")]
    return [NoticeEvent("the conversation was compacted")] if kind == "compact_boundary" else []


def _result(fields: Fields) -> list[AgentEvent]:
    """Read the end of an answer, of which a turn has more than one when a task ends in the background.

    A conversation that is not there ends with such a line, too: with the id that was asked for, hence none is taken
    from here.
    """
    found: list[AgentEvent] = [_used(fields)]
    if fields.is_true("is_error"):
        errors = fields.text("result") or fields.shown("errors") or fields.text("subtype")
        return [*found, FailureEvent(errors)]
    if fields.text("result"):
        found.append(ResultEvent(fields.text("result")))
    return [*found, FinishedEvent()]


def _used(fields: Fields) -> UsageEvent:
    """Read the tokens of all models and all sub-agents, where the CLI counts these.

    `usage` is of the conversation's own requests alone. `modelUsage` has all, but 2.1.332 goes on counting in it from
    turn to turn; there `model_usage_since_last_result` has what this turn added, which 2.1.197 and 1.0.128 do not know:
    they begin at nothing with every process.
    """
    since = "model_usage_since_last_result"
    if since in fields:
        return UsageEvent(_total(fields.children(since)))
    if models := fields.children("modelUsage"):
        return UsageEvent(_total(models), cumulative=True)
    own = fields.child("usage")
    return UsageEvent(
        Usage(
            input_tokens=own.count("input_tokens"),
            output_tokens=own.count("output_tokens"),
            cache_read_tokens=own.count("cache_read_input_tokens"),
            cache_write_tokens=own.count("cache_creation_input_tokens"),
        )
    )


def _total(models: Sequence[Fields]) -> Usage:
    def added(name: str) -> int | None:
        counts = [model.count(name) for model in models]
        return None if None in counts else sum(count or 0 for count in counts)

    return Usage(
        input_tokens=added("inputTokens"),
        output_tokens=added("outputTokens"),
        cache_read_tokens=added("cacheReadInputTokens"),
        cache_write_tokens=added("cacheCreationInputTokens"),
        reasoning_tokens=added("thinkingTokens"),
    )


AGENT = ClaudeAgent
