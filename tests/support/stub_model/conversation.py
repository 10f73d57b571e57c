"""What a request says and what is answered to it, in no API's words.

The answer is made from the request alone, so it shows what history the CLI sent. It is a text:

    I was told 2 things: first text | second text. Tools answered 1 times.

A user text may order tools first, each once; they are called in the order of the orders, those that are not on offer
are passed over:

    RUN{command}         the shell tool
    DELEGATE{task}       the tool that has another agent do a task, to its end
    TELL{agent: words}   the tool that goes on with such an agent, which is named by its id

An order in the task or the words is the agent's, not the model's own. One more order is for the server:

    FAIL{status}         an error with that HTTP status in place of the text, when all tools have run
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

WAIT_MILLISECONDS = 30_000

INPUT_TOKENS, CACHE_READ_TOKENS, CACHE_WRITE_TOKENS, OUTPUT_TOKENS, REASONING_TOKENS = 100, 30, 7, 10, 4
"""What every answer is said to have cost; an API that has no word for one of them leaves it out.

The first are those that no cache had, the last are part of the ones before.
"""

_FAIL = re.compile(r"FAIL\{(\d{3})\}")
_ORDER = re.compile(r"(RUN|DELEGATE|TELL)\{((?:[^{}]|\{[^{}]*\})*)\}")
_WRAPPED = re.compile(r"<([A-Za-z][\w-]*)[^<>]*>.*?</\1>", re.DOTALL)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Message(NamedTuple):
    """One thing that was said: by the system, the user, the model, or a tool."""

    role: Literal["system", "user", "model", "tool"]
    text: str


@dataclass(frozen=True)
class Request:
    """What a CLI asks, whichever API it speaks.

    Attributes:
        messages: In the order of the request.
        tools: JSON schema of the arguments of each tool on offer, by name; `group.name` when it is one of a group.
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
    """Call the next tool that the newest user text orders and that has not run yet; else repeat what was said."""
    texts = said_by_user(request.messages)
    newest = texts[-1] if texts else ""
    results = _results_since(request.messages, newest)
    due = [call for order in _ORDER.finditer(newest) for call in _calls(order[1], order[2], results)]
    offered = [call for call in due if call.tool in request.tools]
    if len(results) < len(offered):
        tool, arguments = offered[len(results)]
        return Call(tool, _complete(arguments, request.tools[tool]))
    count = sum(message.role == "tool" for message in request.messages)
    return f"I was told {len(texts)} things: {' | '.join(texts)}. Tools answered {count} times."


def refusal(request: Request) -> int | None:
    """Return the HTTP status of the error that the newest user text orders; None: it orders none."""
    texts = said_by_user(request.messages)
    found = _FAIL.search(texts[-1]) if texts else None
    return int(found[1]) if found else None


def _results_since(messages: Sequence[Message], newest: str) -> list[str]:
    """List what tools have answered since the newest user text."""
    results: list[str] = []
    for message in reversed(messages):
        if message.role == "tool":
            results.insert(0, message.text)
        if message.role == "user" and newest in message.text:
            break
    return results


def _calls(order: str, words: str, results: Sequence[str]) -> Iterator[Call]:
    """Give what carries out an order in each CLI; a CLI offers the tools of one."""
    calls: Mapping[str, Callable[[str, Sequence[str]], Iterator[Call]]]
    calls = {"RUN": _run, "DELEGATE": _delegate, "TELL": _tell}
    return calls[order](words, results)


def _run(command: str, _: Sequence[str]) -> Iterator[Call]:
    yield Call("bash", {"command": command})  # Copilot
    yield Call("Bash", {"command": command})  # Kimi Code, Claude Code
    yield Call("exec_command", {"cmd": command})  # Codex


def _delegate(task: str, results: Sequence[str]) -> Iterator[Call]:
    # Claude Code; without the last argument the agent is still at work when the turn ends.
    yield Call("Agent", {"prompt": task, "run_in_background": False})
    # Codex tells the id of the agent as the result of the first call.
    yield Call("multi_agent_v1.spawn_agent", {"message": task})
    yield _wait(next(iter(_UUID.findall(" ".join(results))), "nobody"))


def _tell(words: str, _: Sequence[str]) -> Iterator[Call]:
    agent, _colon, message = words.partition(": ")
    yield Call("SendMessage", {"to": agent, "message": message})  # Claude Code
    yield Call("multi_agent_v1.resume_agent", {"id": agent})  # Codex
    yield Call("multi_agent_v1.send_input", {"target": agent, "message": message})
    yield _wait(agent)


def _wait(agent: str) -> Call:
    return Call("multi_agent_v1.wait_agent", {"targets": [agent], "timeout_ms": WAIT_MILLISECONDS})


def _complete(arguments: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Add a text for every other argument that the tool insists on."""
    others = {name: "a stub's wish" for name in schema.get("required", ()) if name not in arguments}
    return {**arguments, **others}
