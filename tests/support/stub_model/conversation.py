"""What a request says and what is answered to it, in no API's words.

The answer is made from the request alone, so it shows what history the CLI sent. A user text that holds `RUN{command}`
is answered by a call of the shell tool first; when the tool's result has come, or in any other case, by a text:

    I was told 2 things: first text | second text. Tools answered 1 times.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

SHELL_TOOLS = ("bash", "Bash")
"""The shell tool of Copilot and of Kimi Code."""

_COMMAND = re.compile(r"RUN\{([^{}]*)\}")
_WRAPPED = re.compile(r"<([A-Za-z][\w-]*)[^<>]*>.*?</\1>", re.DOTALL)


class Message(NamedTuple):
    """One thing that was said: by the system, the user, the model, or a tool."""

    role: Literal["system", "user", "model", "tool"]
    text: str


@dataclass(frozen=True)
class Request:
    """What a CLI asks, whichever API it speaks.

    Attributes:
        messages: In the order of the request.
        tools: JSON schema of the arguments of each tool on offer, by name.
        model: Name of the model that is asked for.
        is_stream: Whether the answer is wanted piece by piece.
    """

    messages: Sequence[Message]
    tools: Mapping[str, Mapping[str, Any]]
    model: str
    is_stream: bool


class Call(NamedTuple):
    """A tool the model wants run."""

    tool: str
    arguments: dict[str, Any]


def said_by_user(messages: Sequence[Message]) -> list[str]:
    """List what the user typed, without what CLIs wrap around it (`<system-reminder>…</system-reminder>`)."""
    typed = (_WRAPPED.sub("", message.text).strip() for message in messages if message.role == "user")
    return [text for text in typed if text]


def answer(request: Request) -> str | Call:
    """Call the shell tool when the newest user text wants it and it has not run yet; else repeat what was said."""
    texts = said_by_user(request.messages)
    newest = texts[-1] if texts else ""
    wanted = _COMMAND.search(newest)
    tool = next((name for name in SHELL_TOOLS if name in request.tools), None)
    if wanted and tool and not _has_run(request.messages, newest):
        return Call(tool, _arguments(request.tools[tool], wanted[1]))
    results = sum(message.role == "tool" for message in request.messages)
    return f"I was told {len(texts)} things: {' | '.join(texts)}. Tools answered {results} times."


def _has_run(messages: Sequence[Message], newest: str) -> bool:
    """Tell whether a tool has answered since the newest user text."""
    for message in reversed(messages):
        if message.role == "tool":
            return True
        if message.role == "user" and newest in message.text:
            return False
    return False


def _arguments(schema: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Fill in the command, and a text for every other argument that the tool insists on."""
    others = {name: "a stub's wish" for name in schema.get("required", ()) if name != "command"}
    return {"command": command, **others}
