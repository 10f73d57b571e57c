"""The adapter of the made-up CLI of `support.mycli`, and agents made of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host_client.agents.adapter import AgentAdapter, Command
from host_client.agents.event import (
    ConversationEvent,
    FailureEvent,
    FinishedEvent,
    ResultEvent,
    TextEvent,
    UsageEvent,
)
from host_client.agents.harness import Agent, CliHarness, create_agent
from host_client.agents.usage import Usage
from host_client.stores.transcript import TranscriptConversations
from support.transcript_format import LAYOUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.agents.adapter import TurnInput
    from host_client.agents.event import AgentEvent

PROGRAM = ("-I", "-S", str(Path(__file__).with_name("mycli.py")))
"""Started without what a site adds, to be quick."""


class ScriptedAdapter(AgentAdapter):
    """Runs the CLI with the interpreter of the tests."""

    name = "mycli"
    storage = TranscriptConversations(LAYOUT)

    def request(self, turn: TurnInput) -> Command:
        """Resume, fork or begin."""
        going_on = turn.continuation
        options = [("--fork" if going_on.fork else "--resume"), going_on.id] if going_on else []
        return Command(sys.executable, [*PROGRAM, *options], turn.text)

    def events(self, line: str) -> Sequence[AgentEvent]:
        """Decode what the CLI prints."""
        told = json.loads(line)
        decoders = {
            "session": ConversationEvent,
            "text": TextEvent,
            "result": ResultEvent,
            "failure": FailureEvent,
            "finished": lambda _: FinishedEvent(),
            "usage": lambda counters: UsageEvent(Usage(**counters), cumulative=told.get("cumulative", False)),
        }
        return [decoders[key](value) for key, value in told.items() if key in decoders]


class ChoosingAdapter(ScriptedAdapter):
    """The same of a version whose caller chooses the id."""

    def request(self, turn: TurnInput) -> Command:
        """Begin and fork with the id that was offered."""
        command = super().request(turn)
        chosen = ["--session-id", turn.conversation_id] if turn.conversation_id else []
        return Command(command.executable, [*command.arguments, *chosen], command.stdin)


class ForkingAdapter(ScriptedAdapter):
    """The same of a version that forks by a command of its own."""

    async def fork(self, conversation_id: str, run: Any) -> str:
        """Run it."""
        result = await run(Command(sys.executable, [*PROGRAM, "fork", conversation_id]))
        child_id: str = json.loads(result.stdout)["session"]
        return child_id


class CountingAdapter(ScriptedAdapter):
    """The same of a version whose session says what was used."""

    usage = "session"

    def usage_command(self, conversation_id: str) -> Command:
        """Ask."""
        return Command(sys.executable, [*PROGRAM, "usage", conversation_id])

    def usage_result(self, text: str) -> Usage:
        """Read the answer."""
        told = json.loads(text)
        return Usage(input_tokens=told["input"], output_tokens=told["output"])


def agent_of(adapter: type[AgentAdapter] = ScriptedAdapter, **features: Any) -> Agent:
    """Return an agent with other features than its adapter's."""
    return create_agent(CliHarness(type("Tested", (adapter,), features)))


def script(*steps: Sequence[Any], **flags: bool) -> str:
    """Return the text of a turn. Flags: `quiet` announces no id, `unkept` writes no transcript."""
    return json.dumps([flags, *steps])
