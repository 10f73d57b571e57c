"""Messages of Claude Code: the branch of its transcript that the CLI would go on with.

Seen with 1.0.128, 2.1.197 and 2.1.332. Each record names the one it follows; two processes on one conversation, and a
rewind, leave several ends. The CLI takes the one that the last `last-prompt` names, or what goes on from there.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from host_client.agents.message import (
    AttachmentPart,
    MarkPart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    dict_of,
    list_of,
    mark,
    parse_time,
    shown_arguments,
    text_of,
)
from host_client.agents.message_source import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from host_client.agents.message import Part, Role
    from host_client.agents.message_source import MessageSource, Tally

_NONE = -1
_CHAINED = frozenset(("user", "assistant", "attachment", "system", "progress"))
_BESIDE = frozenset(
    (
        "queue-operation",
        "last-prompt",
        "mode",
        "permission-mode",
        "ai-title",
        "custom-title",
        "agent-name",
        "file-history-snapshot",
        "file-history-delta",
        "atis-latch",
        "cost-state",
        "tools-used",
        "api-request-shape",
        "api-request-blob",
        "api-request",
        "summary",
        "tag",
    )
)
"""Records beside the conversation."""
_OF_CLI = ("<local-command-stdout>", "<local-command-stderr>", "<bash-stdout>", "<bash-stderr>", "<task-notification>")
"""How records begin that have the role `user` and were not typed."""
_COMMAND = re.compile(r"\s*<command-name>(?P<name>.*?)</command-name>(?P<rest>.*)", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>(.*)</command-args>", re.DOTALL)
_TAGGED = re.compile(
    r"\s*<(?P<tag>local-command-std(?:out|err)|bash-(?:input|stdout|stderr))>(.*)</(?P=tag)>\s*", re.DOTALL
)
_FILES = frozenset(("file", "directory", "edited_text_file", "pdf_reference", "compact_file_reference"))


def messages(source: MessageSource, tally: Tally) -> Iterator[Message]:
    """Yield the messages of the branch that the CLI would resume, oldest first; memory is a few bytes a record."""
    shown = _Chain(source).shown()
    held: tuple[str, Message] | None = None
    for record in records(source, tally):
        value = record.value
        if value is None:
            continue
        kind = text_of(value.get("type"))
        if kind not in _CHAINED:
            tally.skipped_count += kind not in _BESIDE
            continue
        if _name(value.get("uuid")) not in shown:
            continue
        shown.discard(_name(value.get("uuid")))  # a line that stands there twice is one message
        message = _message(value)
        if message is None:
            continue
        # The blocks of one answer are a record each.
        answer = text_of(dict_of(value.get("message")).get("id")) if kind == "assistant" else ""
        if held and answer and held[0] == answer:
            held = answer, replace(held[1], parts=(*held[1].parts, *message.parts))
            continue
        if held:
            yield held[1]
        held = answer, message
    if held:
        yield held[1]


class _Chain:
    """Which record follows which."""

    def __init__(self, source: MessageSource) -> None:
        self._places: dict[int, int] = {}
        self._names = array("q")
        self._parents: list[int | None] = []
        self._answers: dict[int, int] = {}  # place to answer
        self._results: dict[int, int] = {}  # place of a result to the name of its call's record
        self._leaf: int | None = None
        for record in records(source):
            if record.value is not None:
                self._add(record.value)

    def _add(self, value: dict[str, object]) -> None:
        kind = text_of(value.get("type"))
        if kind == "last-prompt" and isinstance(value.get("leafUuid"), str):
            self._leaf = _name(value["leafUuid"])
        if kind not in _CHAINED or value.get("isSidechain") is True or not isinstance(value.get("uuid"), str):
            return
        name = _name(value["uuid"])
        if name in self._places:
            return
        place = len(self._names)
        self._places[name] = place
        self._names.append(name)
        parent = value.get("parentUuid") or value.get("logicalParentUuid")
        self._parents.append(_name(parent) if isinstance(parent, str) else None)
        message = dict_of(value.get("message"))
        if kind == "assistant" and isinstance(message.get("id"), str):
            self._answers[place] = hash(message["id"])
        elif kind == "user" and isinstance(parent, str) and _is_result(message.get("content")):
            self._results[place] = _name(parent)

    def shown(self) -> set[int]:
        """Return the names of the records of the branch; those of calls at the same time are all in it."""
        chosen = self._branch(self._end())
        answers = {self._answers[place] for place in chosen if place in self._answers}
        chosen |= {place for place, answer in self._answers.items() if answer in answers}
        names = {self._names[place] for place in chosen}
        chosen |= {place for place, call in self._results.items() if call in names}
        return {self._names[place] for place in chosen}

    def _end(self) -> int:
        """Return the last record that goes on from the one that the CLI noted last; without a note, the last of all."""
        end = told = self._places.get(self._leaf, _NONE) if self._leaf is not None else _NONE
        if told == _NONE:
            return len(self._names) - 1
        goes_on = bytearray(len(self._names))
        goes_on[told] = True
        for place in range(told + 1, len(self._names)):
            if goes_on[self._before(place)]:
                goes_on[place] = True
                end = place
        return end

    def _branch(self, place: int) -> set[int]:
        chosen: set[int] = set()
        while place != _NONE and place not in chosen:
            chosen.add(place)
            place = self._before(place)
        return chosen

    def _before(self, place: int) -> int:
        parent = self._parents[place]
        # What follows a record that cannot be read follows, for the CLI, the one before that.
        return _NONE if parent is None else self._places.get(parent, place - 1)


def _name(uuid: object) -> int:
    return hash(uuid) if isinstance(uuid, str) else _NONE


def _is_result(content: object) -> bool:
    return any(dict_of(block).get("type") == "tool_result" for block in list_of(content))


def _message(value: dict[str, object]) -> Message | None:
    kind = value["type"]
    if kind == "system":
        return _of_cli(value)
    if kind == "attachment":
        return _attached(value)
    if kind == "progress" or value.get("isMeta") is True:
        return None
    content = dict_of(value.get("message")).get("content")
    blocks = list_of(content) or [{"type": "text", "text": content}]
    parts: list[Part] = [part for block in blocks for part in _parts(block)]
    role: Role = "assistant" if kind == "assistant" else "user"
    first = parts[0].text if parts and isinstance(parts[0], TextPart) else ""
    if role == "user":
        if any(isinstance(part, ToolResultPart) for part in parts):
            role = "tool"
        elif value.get("isCompactSummary") is True or first.startswith(_OF_CLI):
            role = "system"
        elif first.startswith("[Request interrupted by user"):
            role, parts = "system", [MarkPart("interrupted", "the user stopped the turn")]
    parts = [
        TextPart(_plain(part.text)) if role != "assistant" and isinstance(part, TextPart) else part for part in parts
    ]
    return Message(role, parse_time(value.get("timestamp")), parts) if parts else None


def _plain(text: str) -> str:
    """Return a command of the CLI as it was typed, and its output without tags; any other text as it is."""
    if command := _COMMAND.fullmatch(text):
        arguments = _ARGUMENTS.search(command["rest"])
        return f"{command['name']} {arguments[1] if arguments else ''}".strip()
    if tagged := _TAGGED.fullmatch(text):
        return f"! {tagged[2]}" if tagged["tag"] == "bash-input" else tagged[2]
    return text


def _of_cli(value: dict[str, object]) -> Message | None:
    time = parse_time(value.get("timestamp"))
    if value.get("subtype") == "compact_boundary":
        return mark("compacted", "the model has a summary of what is above", time)
    text = text_of(value.get("content"))
    if not text or value.get("isMeta") is True:
        return None
    is_command = value.get("subtype") == "local_command" and not text.startswith(_OF_CLI)
    return Message("user" if is_command else "system", time, [TextPart(_plain(text))])


def _attached(value: dict[str, object]) -> Message | None:
    attachment = dict_of(value.get("attachment"))
    time = parse_time(value.get("timestamp"))
    kind = attachment.get("type")
    if kind == "queued_command":  # typed while the model was at work
        prompt = attachment.get("prompt")
        parts: list[Part] = [TextPart(prompt)] if isinstance(prompt, str) else []
        parts += [part for block in list_of(prompt) for part in _parts(block)]
        return Message("user", time, parts) if parts else None
    if kind in _FILES:
        name = text_of(attachment.get("displayPath")) or text_of(attachment.get("filename"))
        return Message("user", time, [AttachmentPart("file", name or text_of(attachment.get("path")))])
    return None


def _parts(block: object) -> Iterator[Part]:
    found = dict_of(block)
    kind = text_of(found.get("type"))
    if kind == "text":
        if text := text_of(found.get("text")):
            yield TextPart(text)
    elif kind == "thinking":
        if text := text_of(found.get("thinking")):
            yield ReasoningPart(text)
    elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        arguments = shown_arguments(found.get("input"))
        yield ToolCallPart(text_of(found.get("name")), arguments, text_of(found.get("id")))
    elif kind.endswith("tool_result"):
        content = found.get("content")
        inner = [part for one in list_of(content) for part in _parts(one)]
        text = content if isinstance(content, str) else "\n".join(p.text for p in inner if isinstance(p, TextPart))
        yield ToolResultPart(text, found.get("is_error") is True, text_of(found.get("tool_use_id")))
        yield from (part for part in inner if isinstance(part, AttachmentPart | MarkPart))
    elif kind in ("image", "document"):
        yield AttachmentPart(kind, text_of(dict_of(found.get("source")).get("media_type")))
    elif kind and kind != "redacted_thinking":
        yield AttachmentPart(kind)
