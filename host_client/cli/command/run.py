"""`outpost run`: one turn of an agent in a sandbox, shown while it goes on."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from host_client.agents.adapter import Continuation
from host_client.agents.registry import builtin_agent
from host_client.cli.options import Variables, host_options, json_option
from host_client.cli.output import Output
from host_client.cli.record import capture_notes, notice_documents, notice_notes, record_document, words_line
from host_client.cli.redaction import redaction_options
from host_client.cli.turn_output import TurnOutput, usage_text
from host_client.sandbox.task import in_thread
from host_client.turns.provider import ConnectedSandbox
from host_client.turns.runner import TurnRunner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from host_client.session.redaction import Redaction
    from host_client.stores.contract import ConversationRecord
    from host_client.turns.result import TurnResult
    from host_client.turns.turn import Turn


def _said(_context: click.Context, _param: click.Parameter, text: str | None) -> str:
    """Return what the user says, from standard input where it is not on the command line."""
    if text is None and sys.stdin.isatty():
        raise click.UsageError("nothing to say: give TEXT, or write it to standard input")
    if text is None or text == "-":
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise click.UsageError(f"standard input is not UTF-8, at byte {error.start}") from None
    if not text.strip():
        raise click.UsageError("nothing to say: TEXT is empty")
    return text


@click.command(short_help="Run one turn of an agent at TARGET.")
@click.argument("target")
@click.argument("agent_name", metavar="AGENT")
@click.argument("text", metavar="[TEXT]", callback=_said, required=False)
@click.option("--resume", "resumed_id", metavar="ID", default="", help="Go on with this conversation.")
@click.option("--fork", "forked_id", metavar="ID", default="", help="Go on with a copy of this conversation.")
@host_options
@click.option(
    "--variable",
    "variables",
    type=Variables(),
    multiple=True,
    help="Variable of the agent's environment. May be repeated.",
)
@click.option("--model", default="", help="Model that the agent is told to use (default: its own choice).")
@click.option(
    "--argument",
    "arguments",
    metavar="WORD",
    multiple=True,
    help="Further argument of the agent's command line. May be repeated.",
)
@redaction_options
@click.option("--deadline-seconds", type=click.FloatRange(0), default=0.0, help="Longest time the agent may take.")
@click.option("--idle-seconds", type=click.FloatRange(0), default=0.0, help="Longest time the agent may be silent.")
@click.option("--force", is_flag=True, help="Replace a conversation that went on differently at TARGET.")
@json_option
async def run(
    target: str,
    agent_name: str,
    text: str,
    *,
    resumed_id: str,
    forked_id: str,
    repository: Path,
    home: Path | None,
    variables: Sequence[tuple[str, str]],
    model: str,
    arguments: Sequence[str],
    redaction: Redaction | None,
    deadline_seconds: float,
    idle_seconds: float,
    force: bool,
    as_json: bool,
) -> None:
    """Let AGENT work on TEXT in the workspace of TARGET, and keep its conversation on this host.

    What the agent says goes to standard output, what it does to standard error; TEXT is read from standard input when
    it is - or missing. With --json each event is a document on a line, and so is the result at the end. An interrupt
    (Ctrl-C) ends the agent and keeps the conversation all the same.
    """
    if resumed_id and forked_id:
        raise click.UsageError("--resume and --fork exclude each other")
    continued_id = resumed_id or forked_id
    shown = _Shown(TurnOutput(Output(as_json)), [target, agent_name], repository, home)
    runner = TurnRunner(
        builtin_agent(agent_name, model=model, arguments=arguments),
        ConnectedSandbox(target, variables=dict(variables)),
        repository=repository,
        conversation_home=home,
        deadline_seconds=deadline_seconds,
        idle_seconds=idle_seconds,
        redaction=redaction,
        force=force,
    )
    continuation = Continuation(id=continued_id, fork=bool(forked_id)) if continued_id else None
    turn: Turn | None = None
    try:
        async with runner.turn(text, continuation=continuation) as turn:
            async for event in turn:
                await in_thread(shown.turn.show, event)
            result = await turn.result()
    except (Exception, asyncio.CancelledError):
        if turn is not None:
            shown.kept(turn)
        raise
    shown.result(result)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is told of a turn at its end.

    Attributes:
        turn: Where it is told.
        words: Target and agent.
        repository: Keeps the conversation.
        home: Keeps it instead.
    """

    turn: TurnOutput
    words: Sequence[str]
    repository: Path
    home: Path | None

    def kept(self, turn: Turn) -> None:
        """Tell what is there to go on with after a turn that failed or was interrupted."""
        self.turn.finish("")
        if turn.record is None:
            if turn.conversation_id is not None:
                self._tell_left(turn.conversation_id)
            return
        resume = self._resume(turn.record.conversation_id)
        self.turn.document({"kind": "kept", "record": record_document(turn.record), "resume": resume})
        self._tell_record(turn.record, resume)

    def result(self, result: TurnResult) -> None:
        """Tell the result."""
        self.turn.finish(result.text)
        resume = self._resume(result.conversation_id) if result.conversation_id else None
        self.turn.document(
            {
                "kind": "turn",
                "agent": self.words[-1],
                "text": result.text,
                "conversation": result.conversation_id,
                "usage": asdict(result.usage) if result.usage else None,
                "record": record_document(result.record) if result.record else None,
                "events": result.events_count,
                "duration_seconds": round(result.duration_seconds, 6),
                "notices": notice_documents(result.notices),
                "resume": resume,
            }
        )
        of_record = result.record.notices if result.record else ()
        for note in notice_notes([notice for notice in result.notices if notice not in of_record]):
            self.turn.tell(note)
        usage = f", {usage_text(result.usage)}" if result.usage else ""
        self.turn.tell(f"finished in {result.duration_seconds:.1f} s{usage}")
        if result.record is not None and resume:
            self._tell_record(result.record, resume)

    def _tell_record(self, record: ConversationRecord, resume: Sequence[str]) -> None:
        for note in capture_notes(record):
            self.turn.tell(note)
        self.turn.tell(f"kept     {record.path}")
        self.turn.tell(f"resume   {words_line(resume)} TEXT")

    def _tell_left(self, conversation_id: str) -> None:
        """Tell which conversation could not be captured, and how to have it later."""
        capture = ["outpost", "capture", *self.words, conversation_id, *self._keeping()]
        self.turn.document({"kind": "left", "conversation": conversation_id, "capture": capture})
        self.turn.tell(f"not kept {conversation_id}, which is in the sandbox")
        self.turn.tell(f"capture  {words_line(capture)}")

    def _resume(self, conversation_id: str) -> Sequence[str]:
        """Return the words of the command that goes on with the conversation, without what is to be said."""
        return ["outpost", "run", *self.words, *self._keeping(), "--resume", conversation_id]

    def _keeping(self) -> Sequence[str]:
        """Return the words that say where conversations are kept."""
        home = ["--home", str(self.home)] if self.home else []
        return ["--repository", str(self.repository), *home]
