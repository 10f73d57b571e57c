"""A turn as it is shown while it goes on: what the agent says on standard output, what it does on standard error.

The one rule: nothing that an agent prints reaches a terminal as it is. A line end and a tab stay, every other control
character is shown as an escape.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from host_client.agents.event import (
    ConversationEvent,
    NoticeEvent,
    RawEvent,
    ReasoningEvent,
    TextEvent,
    ToolEvent,
)
from host_client.cli.output import Output, OutputLost
from sandbox_api.errors import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from host_client.agents.event import AgentEvent
    from host_client.agents.usage import Usage

_MAX_LINE_CHARS = 200
"""Shown of what a tool is called with, of what it returns and of a line that nobody understood."""

_MAX_SAID_CHARS = 1 << 16
"""The end of what was said that a final answer is compared with."""


def _outputs_are_one_place() -> bool:
    """Tell whether both outputs are shown together: on a terminal, or in one pipe or file, as with `2>&1`."""
    if sys.stdout.isatty():
        return True
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):
        return False  # one of them is closed, or none of the system's


@dataclass
class TurnOutput:
    """Shows one turn. The methods block while nobody reads what they print.

    Attributes:
        output: Where documents go.
    """

    output: Output
    _is_one_place: bool = field(default_factory=_outputs_are_one_place, init=False)
    _errors: Console = field(default_factory=lambda: Console(stderr=True, highlight=False, soft_wrap=True), init=False)
    _said: str = field(default="", init=False)
    _is_within_line: bool = field(default=False, init=False)

    def show(self, event: AgentEvent) -> None:
        """Show one event."""
        if self.output.as_json:
            self.document({"kind": event.kind, **asdict(event)})
            return
        match event:
            case TextEvent(text):
                self._say(text)
            case ToolEvent():
                self._tell(_tool_line(event), "cyan" if event.state != "failed" else "red")
            case ReasoningEvent(text):
                self._tell(f"thinks: {text}", "dim italic")
            case NoticeEvent(message):
                self._tell(f"notice: {message}", "yellow")
            case RawEvent(line):
                self._tell(f"printed: {_shortened(line)}", "dim")
            case ConversationEvent(conversation_id):
                self._tell(f"conversation {conversation_id}", "dim")
            case _:
                pass  # a result, tokens and the end are told by `finish`, a failure is the command's own

    def finish(self, answer: str) -> None:
        """End the text, with the agent's final answer where that is not what it said last."""
        if self.output.as_json:
            return
        said, last = self._said.rstrip(), answer.strip()[-_MAX_SAID_CHARS:]
        if last and not said.endswith(last[-len(said) :] if len(self._said) == _MAX_SAID_CHARS else last):
            self._end_line()
            self._say(answer)
        self._end_line()

    def document(self, document: Mapping[str, object]) -> None:
        """Print a document for scripts; people are told otherwise."""
        if self.output.as_json:
            self.output.result(document, ())

    def tell(self, line: str) -> None:
        """Tell people something about the turn; scripts find it in the documents."""
        self._tell(line, "dim")

    def _say(self, text: str) -> None:
        if not text:
            return
        self._said = (self._said + text)[-_MAX_SAID_CHARS:]
        _print(shown_text(text), is_error=False)
        self._is_within_line = not text.endswith("\n")

    def _tell(self, text: str, style: str) -> None:
        if self.output.as_json:
            return
        if self._is_one_place:
            self._end_line()
        try:
            self._errors.print(Text(shown_text(text.strip("\n")), style))
        except OSError as error:
            raise OutputLost(error.strerror) from error

    def _end_line(self) -> None:
        if self._is_within_line:
            _print("\n", is_error=False)
            self._is_within_line = False


def shown_text(text: str) -> str:
    r"""Return text of an agent for people: lines and tabs as they are, anything else that is not printable escaped."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)


def usage_text(usage: Usage) -> str:
    """Tell tokens to people."""
    counts = {
        "in": usage.input_tokens,
        "from cache": usage.cache_read_tokens,
        "to cache": usage.cache_write_tokens,
        "out": usage.output_tokens,
    }
    known = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"tokens {known or 'none'}{'' if usage.complete else ' (incomplete)'}"


def _tool_line(event: ToolEvent) -> str:
    what = event.output if event.state != "started" else event.input
    state = "" if event.state == "started" else f" {event.state}"
    return f"tool {event.name}{state}{': ' if what else ''}{_shortened(what)}"


def _shortened(text: str) -> str:
    line = " ".join(text[: _MAX_LINE_CHARS * 4].split())
    return line if len(line) <= _MAX_LINE_CHARS and len(text) <= _MAX_LINE_CHARS * 4 else f"{line[:_MAX_LINE_CHARS]}…"


def _print(text: str, *, is_error: bool) -> None:
    try:
        click.echo(text, nl=False, err=is_error)
    except OSError as error:
        raise OutputLost(error.strerror) from error
