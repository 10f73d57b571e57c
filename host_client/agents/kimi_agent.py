"""The agent `kimi`: Kimi Code without a terminal.

What is said here of its output was seen with 2.1.0, or read in its program. It takes a prompt as an argument and in no
other way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from host_client.agents.adapter import Command
from host_client.agents.event import ConversationEvent, FinishedEvent, NoticeEvent, ResultEvent
from host_client.agents.output_line import parsed
from host_client.agents.preset import Preset
from host_client.agents.usage import Usage
from host_client.agents.usage_record import printing, total
from host_client.errors import ConfigurationError, ProcessError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from host_client.agents.adapter import CommandResult, TurnInput
    from host_client.agents.event import AgentEvent
    from host_client.agents.output_line import Fields
    from host_client.agents.preset import PresetOptions

MAX_TEXT_BYTES = (128 << 10) - 1
"""Linux takes no longer argument (MAX_ARG_STRLEN, with the byte that ends it)."""

_BATCH = ("--output-format", "stream-json")
"""JSON lines. With a prompt as its argument the CLI asks nothing and allows all tools."""

_RECORDS = printing("usage.record", '"${KIMI_CODE_HOME:-$HOME/.kimi-code}"/sessions/*/"$1"/agents/*/wire.jsonl')
"""Where the CLI keeps its sessions is known to the environment it runs in, so a shell reads that."""

_FORKED = re.compile(rb"Forked to (session_[0-9a-f-]{36})\b")


class KimiAgent(Preset):
    """One turn of Kimi Code."""

    name = "kimi"
    bootstrap = "kimi"
    usage = "session"

    def __init__(self, options: PresetOptions) -> None:
        super().__init__(options)
        self._id = ""

    def request(self, turn: TurnInput) -> Command:
        """Resume by `--session`, which fails when there is no such session.

        Raises:
            ConfigurationError: `invalid_argument`: the text is longer than an argument may be.
        """
        if len(turn.text.encode()) > MAX_TEXT_BYTES:
            raise ConfigurationError(
                "invalid_argument",
                f"Kimi Code takes its prompt as an argument, of at most {MAX_TEXT_BYTES} bytes",
                hint="put the text into a file of the workspace and tell the agent to read it",
                facts={"max_bytes": str(MAX_TEXT_BYTES)},
            )
        arguments = [*_BATCH, *self._options.model_words]
        if turn.continuation:
            self._id = turn.continuation.id
            arguments += ["--session", self._id]
        return Command("kimi", [*arguments, *self._options.arguments, "--prompt", turn.text])

    async def fork(self, conversation_id: str, run: Callable[[Command], Awaitable[CommandResult]]) -> str:
        """Have the CLI copy the session.

        Raises:
            ProcessError: `failed`: it did not.
        """
        result = await run(Command("kimi", ["fork", conversation_id, "--yes"]))
        found = _FORKED.search(result.stdout)
        if result.status or found is None:
            raise ProcessError(
                "failed",
                f"Kimi Code did not fork the conversation {conversation_id}",
                facts={"status": str(result.status), "conversation": conversation_id},
            )
        return found[1].decode()

    def events(self, line: str) -> Sequence[AgentEvent]:
        """Read a line of `stream-json`.

        The id of a new session stands in the last line of a turn that succeeded, and in no other. Why one failed is
        told on standard error alone.

        Raises:
            ValueError: nobody knows what it means.
        """
        fields = parsed(line)
        role = fields.text("role")
        if role == "assistant":
            calls = [(call.text("id"), call.child("function")) for call in fields.children("tool_calls")]
            started = [self.called(one, function.text("name"), function.shown("arguments")) for one, function in calls]
            return [*self.said(fields.text("content")), *started]
        if role == "tool":
            return [self.returned(fields.text("tool_call_id"), fields.shown("content"), has_failed=False)]
        if role == "meta":
            return self._meta(fields)
        raise ValueError("an unknown kind of line")

    def usage_command(self, conversation_id: str) -> Command:
        """Print the session's records of tokens, of all its agents, one for each request to a model."""
        return Command("sh", ["-c", _RECORDS, "sh", conversation_id])

    def usage_result(self, text: str) -> Usage | None:
        """Add them up."""
        return total(text, _record)

    def _meta(self, fields: Fields) -> list[AgentEvent]:
        kind = fields.text("type")
        if kind == "system.version" and self._id:
            # A session that is resumed keeps its id.
            return [ConversationEvent(self._id)]
        if kind == "turn.step.retrying":
            return [NoticeEvent(f"the model is asked again: {fields.text('error_message')}")]
        if kind == "session.resume_hint" and fields.text("session_id"):
            answer = [ResultEvent(self.last_message)] if self.last_message else []
            return [ConversationEvent(fields.text("session_id")), *answer, FinishedEvent()]
        return []


def _record(fields: Fields) -> Usage | None:
    if fields.text("type") != "usage.record":
        return None
    counts = fields.child("usage")
    return Usage(
        input_tokens=counts.count("inputOther"),
        output_tokens=counts.count("output"),
        cache_read_tokens=counts.count("inputCacheRead"),
        cache_write_tokens=counts.count("inputCacheCreation"),
    )


AGENT = KimiAgent
