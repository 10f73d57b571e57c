"""The agent `codex`: `codex exec`.

What is said here of its output was seen with Codex 0.171.0, and with 0.55.0 and 0.128.0 where these are named. The
prompt goes to standard input, so it may be of any length and no list of processes shows it. `exec fork` is in 0.171.0.
"""

from __future__ import annotations

from dataclasses import replace
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

_BATCH = ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
"""JSON lines, any directory, and no question: what a tool may do is the sandbox's business.

They, and the user's own arguments, stand before `resume` and `fork`, which take them from there.
"""

_STDIN = "-"

_TOOLS = {
    "command_execution": ("command", "aggregated_output"),
    "file_change": ("changes", "status"),
    "mcp_tool_call": ("arguments", "result"),
    "web_search": ("query", "results"),
    "collab_tool_call": ("prompt", "agents_states"),
}
"""Kinds of items that are tools: where their input and their output stand."""

_IGNORED = frozenset(("turn.started", "item.updated"))
_FAILED = frozenset(("failed", "declined"))


class CodexAgent(Preset):
    """One turn of Codex."""

    name = "codex"
    bootstrap = "codex"
    usage = "events"

    _is_new = True

    def request(self, turn: TurnInput) -> Command:
        """Resume and fork by their own commands; the CLI chooses the id of a new thread and of a fork."""
        arguments = [*_BATCH, *self._options.model_words, *self._options.arguments]
        self._is_new = turn.continuation is None
        if turn.continuation:
            arguments += ["fork" if turn.continuation.fork else "resume", turn.continuation.id]
        return Command("codex", [*arguments, _STDIN], turn.text)

    def events(self, line: str) -> Sequence[AgentEvent]:
        """Read a line of `exec --json`.

        Raises:
            ValueError: nobody knows what it means.
        """
        fields = parsed(line)
        kind = fields.text("type")
        if kind in ("item.started", "item.completed"):
            return self._item(fields.child("item"), is_over=kind == "item.completed")
        if kind == "thread.started" and fields.text("thread_id"):
            return [ConversationEvent(fields.text("thread_id"))]
        if kind == "turn.completed":
            return self._completed(fields.child("usage"))
        if kind == "turn.failed":
            return [FailureEvent(fields.child("error").text("message"))]
        if kind == "error":
            # What is tried again, too; `turn.failed` follows when it is over.
            return [NoticeEvent(fields.text("message"))]
        if kind in _IGNORED:
            return []
        raise ValueError("an unknown kind of line")

    def transcript_usage(self, text: str) -> Usage | None:
        """Read the tokens of the newest turn from its rollout, if it is of 0.171.0.

        Sub-agents have rollouts of their own: where one was started, the usage is not complete.
        """
        return _last_turn(text)

    def _item(self, item: Fields, *, is_over: bool) -> list[AgentEvent]:
        kind = item.text("type")
        if kind in _TOOLS:
            return [self._tool(item, kind, is_over=is_over)]
        if not is_over:
            return []
        if kind == "agent_message":
            return [*self.said(item.text("text"))]
        if kind == "reasoning":
            return [ReasoningEvent(item.text("text"))] if item.text("text") else []
        if kind == "error":
            return [NoticeEvent(item.text("message"))]
        if kind == "todo_list":
            return []
        raise ValueError("an unknown kind of item")

    def _tool(self, item: Fields, kind: str, *, is_over: bool) -> AgentEvent:
        given, returned = _TOOLS[kind]
        name = item.text("tool") or kind
        event = self.called(item.text("id"), name, item.shown(given))
        if not is_over:
            return event
        output = item.shown("error") or item.shown(returned)
        return self.returned(item.text("id"), output, has_failed=item.text("status") in _FAILED)

    def _completed(self, usage: Fields) -> list[AgentEvent]:
        """Read the end of a turn.

        Its counts are those of the whole thread (0.128.0 and 0.171.0), so they are the turn's only in a new one.
        """
        found: list[AgentEvent] = []
        if self._is_new:
            found.append(UsageEvent(_usage(usage), cumulative=True))
        if self.last_message:
            found.append(ResultEvent(self.last_message))
        return [*found, FinishedEvent()]


def _usage(counts: Fields) -> Usage:
    """Return counts of which those of the caches are a part of the input, and those of reasoning of the output."""
    whole = counts.count("input_tokens")
    read, written = counts.count("cached_input_tokens"), counts.count("cache_write_input_tokens")
    return Usage(
        input_tokens=None if whole is None else max(0, whole - (read or 0) - (written or 0)),
        output_tokens=counts.count("output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=counts.count("reasoning_output_tokens"),
    )


def _last_turn(rollout: str) -> Usage | None:
    turn_id, used, has_agents = "", None, False
    for line in rollout.split("\n"):
        # Most of a rollout is long texts, which need not be decoded.
        is_start, is_count = '"turn_context"' in line, '"token_usage_record"' in line
        has_agents = has_agents or '"spawn_agent"' in line
        if not is_start and not is_count:
            continue
        try:
            record = parsed(line)
        except ValueError:
            continue
        payload = record.child("payload")
        if record.text("type") == "turn_context" and payload.text("turn_id") != turn_id:
            turn_id, used, has_agents = payload.text("turn_id"), None, False
        elif record.text("type") == "token_usage_record" and payload.text("turn_id") == turn_id:
            used = payload.child("turn_token_usage")
    if used is None:
        return None
    usage = _usage(used)
    return replace(usage, complete=not has_agents)


AGENT = CodexAgent
