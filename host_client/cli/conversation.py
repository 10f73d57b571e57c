"""Messages of a conversation as plain data, and as lines for a terminal or a pipe."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from host_client.agents.message import (
    AttachmentPart,
    MarkPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from host_client.cli.local_time import local_time
from host_client.cli.visible import visible, visible_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from host_client.agents.message import Message, Part

_ARGUMENTS_CHARS = 200
_RESULT_LINES_COUNT = 12
_RESULT_CHARS = 2000
_LEAST_WIDTH = 20
_COLORS = {"user": "green", "assistant": "cyan", "tool": "yellow", "system": "magenta"}


@dataclass(frozen=True, slots=True)
class Selection:
    """Which parts of messages are shown.

    Attributes:
        has_tools: Calls of tools and their results.
        has_reasoning: What the model thought.
    """

    has_tools: bool = True
    has_reasoning: bool = False

    def of(self, message: Message) -> Message | None:
        """Return what of a message is shown; None: nothing of it."""
        parts = [part for part in message.parts if self._shows(part)]
        return replace(message, parts=parts) if parts else None

    def _shows(self, part: Part) -> bool:
        if isinstance(part, ToolCallPart | ToolResultPart):
            return self.has_tools
        return self.has_reasoning or not isinstance(part, ReasoningPart)


def message_document(message: Message) -> dict[str, object]:
    """Return a message as plain data."""
    return {
        "role": message.role,
        "time": message.time.isoformat() if message.time else None,
        "parts": [part_document(part) for part in message.parts],
    }


def part_document(part: Part) -> dict[str, object]:
    """Return a part of a message as plain data, told apart by its `type`."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ReasoningPart):
        return {"type": "reasoning", "text": part.text}
    if isinstance(part, ToolCallPart):
        return {"type": "tool_call", "name": part.name, "arguments": part.arguments, "call_id": part.call_id}
    if isinstance(part, ToolResultPart):
        return {"type": "tool_result", "text": part.text, "is_error": part.is_error, "call_id": part.call_id}
    if isinstance(part, AttachmentPart):
        return {"type": "attachment", "kind": part.kind, "name": part.name}
    return {"type": "mark", "word": part.word, "text": part.text}


def message_lines(message: Message, *, width_count: int | None) -> Iterator[str]:
    """Yield a message for people: a line that says who and when, what was said, and an empty line.

    Args:
        message: What to show.
        width_count: Columns of the terminal: lines are wrapped, and the first one is styled; None: neither.
    """
    when = local_time(message.time, "  %Y-%m-%d %H:%M:%S") if message.time else ""
    if all(isinstance(part, MarkPart) for part in message.parts):
        head = ""
    elif width_count is None:
        head = f"{message.role}{when}"
    else:
        head = click.style(message.role, fg=_COLORS[message.role], bold=True) + click.style(when, dim=True)
    if head:
        yield head
    for part in message.parts:
        for indent, line in _part_lines(part):
            yield from _wrapped(indent, line, width_count)
    yield ""


def _part_lines(part: Part) -> Iterator[tuple[str, str]]:
    """Yield lines, each with what stands in front of it."""
    if isinstance(part, TextPart):
        for line in visible(part.text).strip("\n").split("\n"):
            yield "  ", line
    elif isinstance(part, ReasoningPart):
        for line in visible(part.text).strip("\n").split("\n"):
            yield "  ~ ", line
    elif isinstance(part, ToolCallPart):
        arguments = visible_line(part.arguments)
        more = f" [{len(arguments) - _ARGUMENTS_CHARS} more]" if len(arguments) > _ARGUMENTS_CHARS else ""
        yield "  > ", f"{visible_line(part.name)} {arguments[:_ARGUMENTS_CHARS]}{more}"
    elif isinstance(part, ToolResultPart):
        yield from _result_lines(part)
    elif isinstance(part, AttachmentPart):
        name = f": {visible_line(part.name)}" if part.name else ""
        yield "  ", f"[{visible_line(part.kind)}{name}]"
    else:
        yield "", f"--- {visible_line(part.word)}: {visible_line(part.text)} ---"


def _result_lines(part: ToolResultPart) -> Iterator[tuple[str, str]]:
    sign = "  ! " if part.is_error else "  < "
    text = visible(part.text).strip("\n")
    shown = text[:_RESULT_CHARS].split("\n")[:_RESULT_LINES_COUNT]
    for line in shown:
        yield sign, line
    if left := len(text) - len("\n".join(shown)):
        yield sign, f"[{left} more characters, {text.count(chr(10)) + 1} lines in all]"


def _wrapped(indent: str, line: str, width_count: int | None) -> Iterator[str]:
    if width_count is None or len(indent) + len(line) <= width_count:
        yield f"{indent}{line}".rstrip(" ")
        return
    room = max(width_count - len(indent), _LEAST_WIDTH)
    for piece in textwrap.wrap(line, room, replace_whitespace=False, break_on_hyphens=False) or [""]:
        yield f"{indent}{piece}"
