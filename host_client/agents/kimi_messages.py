"""Messages of Kimi Code: the wire of its main agent, as the CLI replays it.

Seen with 2.1.0, whose program text has the rules: a branch is taken up by `agent.switched`, turns are taken back by
`context.undo`, and what follows a line that is no JSON is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from host_client.agents.line_range import LineRanges
from host_client.agents.message import (
    AttachmentPart,
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
    from datetime import datetime

    from host_client.agents.message import Part, Role
    from host_client.agents.message_source import MessageSource, Record, Tally

FILE = "agents/main/wire.jsonl"
"""The transcript in the session directory."""

_MAIN = "main"
_BESIDE = ("context.undo", "context.undone", "context.spliced", "context.update_token_count")


def messages(source: MessageSource, tally: Tally) -> Iterator[Message]:
    """Yield the messages of the branch that the CLI would resume, oldest first."""
    story = _Story()
    for record in records(source):
        if record.value is not None:
            story.note(record.value, record.line)
    story.finish()
    said: list[Part] = []
    time: datetime | None = None
    has_lost = False
    for record in records(source, tally):
        if has_lost and record.value is not None:
            has_lost = False
            text = "the line before this one is no JSON: Kimi Code has forgotten what follows"
            yield mark("incomplete", text, time)
        has_lost = has_lost or record.is_broken
        if record.value is None or not story.shows(record.line):
            continue
        event = dict_of(record.value.get("event"))
        is_said = record.value.get("type") == "context.append_loop_event" and event.get("type") != "tool.result"
        if is_said and event.get("type") in ("content.part", "tool.call"):
            said += _parts(event.get("part")) if event["type"] == "content.part" else [_call(event)]
            time = parse_time(record.value.get("time"))
            continue
        found = list(_messages(record, story, tally))
        if said and (found or event.get("type") in ("step.begin", "step.end")):
            yield Message("assistant", time, said)
            said = []
        yield from found
    if said:
        yield Message("assistant", time, said)


@dataclass
class _Story:
    """Which lines are still part of the conversation; memory is a few bytes for each turn."""

    _switches: list[tuple[int, str, str, int]] = field(default_factory=list)
    _paired: set[int] = field(default_factory=set)
    _steps: list[tuple[int, str, int]] = field(default_factory=list)
    _kept: LineRanges = field(default_factory=LineRanges)
    _undone: LineRanges = field(default_factory=LineRanges)
    _undoes: set[int] = field(default_factory=set)

    def note(self, value: dict[str, object], line: int) -> None:
        """Take note of a record that says what becomes of others."""
        kind = value.get("type")
        if kind == "agent.switched":
            base = dict_of(value.get("base"))
            branch, origin, upto = value.get("branch"), base.get("branch"), base.get("line")
            if isinstance(branch, str) and isinstance(origin, str) and isinstance(upto, int):
                self._switches.append((line, branch, origin, upto))
                if isinstance(paired := value.get("legacyUndoLine"), int):
                    self._paired.add(paired)
        elif kind == "context.undo" and isinstance(count := value.get("count"), int) and count > 0:
            self._steps.append((line, "undo", count))
        elif kind in ("context.clear", "context.apply_compaction"):
            self._steps.append((line, "floor", 0))
        elif kind == "context.append_message" and _is_turn(dict_of(value.get("message"))):
            self._steps.append((line, "turn", 0))

    def finish(self) -> None:
        """Find out what is left, after all is noted."""
        self._kept = LineRanges(self._chain())
        turns: list[int] = []
        undone: list[tuple[int, int]] = []
        for line, what, count in self._steps:
            if line in self._paired or line not in self._kept:
                continue
            if what == "turn":
                turns.append(line)
            elif what == "floor":
                turns.clear()
            elif count <= len(turns):
                undone.append((turns[-count], line - 1))
                self._undoes.add(line)
                del turns[-count:]
        self._undone = LineRanges(undone)

    def shows(self, line: int) -> bool:
        """Tell whether a line is part of the conversation."""
        return line in self._kept and line not in self._undone

    def is_undo(self, line: int) -> bool:
        """Tell whether an undo of this line took anything back."""
        return line in self._undoes

    def _chain(self) -> list[tuple[int, int]]:
        """Return the lines of the branch taken up last, and of those it goes on from: first and last of each."""
        begin, end_of, base_of, branch = {_MAIN: 1}, {}, {}, _MAIN
        for line, name, origin, upto in self._switches:
            end_of[branch] = line - 1
            begin[name], base_of[name], branch = line + 1, (origin, upto), name
        kept, seen, upto_line = [], set(), 1 << 62
        while branch in begin and branch not in seen:
            seen.add(branch)
            kept.append((begin[branch], min(upto_line, end_of.get(branch, 1 << 62))))
            branch, upto_line = base_of.get(branch, ("", 0))
        return kept


def _is_turn(message: dict[str, object]) -> bool:
    origin = dict_of(message.get("origin"))
    if message.get("role") != "user" or origin.get("inTurn") is True:
        return False
    if origin.get("kind", "user") == "user":
        return True
    return origin.get("kind") in ("skill_activation", "plugin_command") and origin.get("trigger") == "user-slash"


def _messages(record: Record, story: _Story, tally: Tally) -> Iterator[Message]:
    value = record.value or {}
    kind, time = text_of(value.get("type")), parse_time(value.get("time"))
    if kind == "context.append_message":
        yield from _appended(dict_of(value.get("message")), time)
    elif kind == "context.append_loop_event":
        event = dict_of(value.get("event"))
        if event.get("type") == "tool.result":
            result = dict_of(event.get("result"))
            is_error = result.get("isError") is True
            yield Message(
                "tool", time, _result(result.get("output"), text_of(event.get("toolCallId")), is_error=is_error)
            )
    elif kind == "context.apply_compaction":
        boundary = mark("compacted", "the model has a summary of what is above", time)
        summary = value.get("summary")
        text = text_of(summary) or text_of(value.get("contextSummary"))
        parts = [TextPart(text)] if text else _content(dict_of(summary).get("content"))
        yield Message("system", time, (*boundary.parts, *parts))
    elif kind == "context.clear":
        yield mark("cleared", "the model knows nothing of what is above", time)
    elif kind == "context.undo" and story.is_undo(record.line):
        yield mark("undone", f"{value.get('count')} turn(s) were taken back here", time)
    elif not kind or (kind.startswith("context.") and kind not in _BESIDE):
        tally.skipped_count += 1


def _appended(message: dict[str, object], time: datetime | None) -> Iterator[Message]:
    origin = text_of(dict_of(message.get("origin")).get("kind"))
    if origin == "injection":
        return
    parts = _content(message.get("content"))
    role = text_of(message.get("role"))
    if role == "tool":
        parts = _result(
            message.get("content"), text_of(message.get("toolCallId")), is_error=message.get("isError") is True
        )
    for call in map(dict_of, list_of(message.get("toolCalls"))):
        function = dict_of(call.get("function")) or call
        arguments = shown_arguments(function.get("arguments"))
        parts.append(ToolCallPart(text_of(function.get("name")), arguments, text_of(call.get("id"))))
    if not parts:
        return
    told: Role = "assistant" if role == "assistant" else "tool" if role == "tool" else "system"
    if role == "user" and (origin in ("", "user", "shell_command") or _is_turn(message)):
        told = "user"
    yield Message(told, time, parts)


def _call(event: dict[str, object]) -> ToolCallPart:
    return ToolCallPart(
        text_of(event.get("name")), shown_arguments(event.get("args")), text_of(event.get("toolCallId"))
    )


def _result(output: object, call_id: str, *, is_error: bool) -> list[Part]:
    parts = _content(output)
    text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
    others = [part for part in parts if isinstance(part, AttachmentPart)]
    return [ToolResultPart(text, is_error, call_id), *others]


def _content(content: object) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    return [part for block in list_of(content) for part in _parts(block)]


def _parts(block: object) -> list[Part]:
    found = dict_of(block)
    kind = text_of(found.get("type"))
    if kind == "text":
        return [TextPart(text)] if (text := text_of(found.get("text"))) else []
    if kind in ("think", "thinking"):
        text = text_of(found.get("think")) or text_of(found.get("thinking")) or text_of(found.get("text"))
        return [ReasoningPart(text)] if text else []
    return [AttachmentPart(kind.removesuffix("_url"))] if kind else []
