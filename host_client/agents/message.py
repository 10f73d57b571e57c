"""What was said in a conversation, alike for all formats.

The one rule: a message holds what a person typed, what the model said and did, and what came back; what a CLI adds for
the model alone (prompts, listings, reminders) is left out, and so are the transcripts of sub-agents, whose results are
those of the tool that ran them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Role = Literal["user", "assistant", "tool", "system"]
"""Who said it; `system` is the CLI itself, such as a summary, the output of one of its own commands, or an error."""

MAX_ARGUMENTS_CHARS = 64 << 10
"""What is kept of the arguments of one call of a tool."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """What was said."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """What the model thought, as far as it is readable."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A call of a tool.

    Attributes:
        name: The tool.
        arguments: As compact JSON, or as the text that they are; cut beyond 64 Ki characters, with a note.
        call_id: By which its result names it; empty: there is none.
    """

    name: str
    arguments: str
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """What a tool gave back.

    Attributes:
        text: Its output.
        is_error: Whether the transcript says that it failed.
        call_id: The call; empty: it is not named.
    """

    text: str
    is_error: bool = False
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class AttachmentPart:
    """Something that is no text: it is named and not shown.

    Attributes:
        kind: Such as `image` or `file`.
        name: Its name or media type; empty: neither is known.
    """

    kind: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class MarkPart:
    """Something that happened to the conversation itself.

    Attributes:
        word: `compacted`: what is above was replaced by a summary for the model; `cleared`: the model knows nothing of
            what is above; `forked`: what is above was said in the conversation that this one was forked from; `undone`:
            turns were taken back here, and are not shown; `interrupted`: the turn was stopped; `incomplete`: something
            that belongs here is not on this host, or cannot be read.
        text: One sentence for people.
    """

    word: str
    text: str


Part = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | AttachmentPart | MarkPart


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: Who said it.
        time: When, as the transcript says; None: it does not.
        parts: What it consists of, in order; at least one.
    """

    role: Role
    time: datetime | None
    parts: Sequence[Part]


def mark(word: str, text: str, time: datetime | None = None) -> Message:
    """Return a message of the CLI that is one mark."""
    return Message("system", time, (MarkPart(word, text),))


def shown_arguments(value: object) -> str:
    """Return arguments of a tool as one bounded text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    if len(text) > MAX_ARGUMENTS_CHARS:
        return f"{text[:MAX_ARGUMENTS_CHARS]} [cut here: {len(text) - MAX_ARGUMENTS_CHARS} more characters]"
    return text


def parse_time(value: object) -> datetime | None:
    """Return a time that is ISO 8601 text, or milliseconds since 1970; None for anything else."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def dict_of(value: object) -> dict[str, object]:
    """Return a value that is an object; anything else: an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    """Return a value that is a list; anything else: an empty one."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """Return a value that is text; anything else: an empty one."""
    return value if isinstance(value, str) else ""
