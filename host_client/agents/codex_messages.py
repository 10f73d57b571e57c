"""Messages of Codex: the rollout, and before it what it was forked from.

Seen with 0.55.0, 0.128.0 and 0.171.0. What the model saw are `response_item` records; the events beside them repeat it.
A fork of 0.171.0 has no copy of its parent: its first line says up to which record of the parent's rollout it goes on.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
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

_BESIDE = frozenset(
    ("session_meta", "turn_context", "world_state", "token_usage_record", "inter_agent_communication", "ghost_snapshot")
)
_ADDED = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|permissions instructions|collaboration_mode|skill"
    r"|skills_instructions|subagent_notification|personality_spec|apps_instructions"
    r"|plugins_instructions)\b|# AGENTS\.md instructions)"
)
"""How what the CLI adds for the model begins, where it does not say so otherwise (before 0.171)."""
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:) (-?[0-9]+)$", re.MULTILINE)
_HEAD_CHARS = 400
_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "web_search_call": "action",
    "image_generation_call": "revised_prompt",
    "tool_search_call": "arguments",
}


def messages(source: MessageSource, tally: Tally) -> Iterator[Message]:
    """Yield the messages of the rollout and of all that it was forked from, oldest first."""
    line: list[tuple[MessageSource, dict[str, object]]] = [(source, {})]
    threads: set[str] = set()
    missing = ""
    while base := _base(line[-1][0]):
        thread_id = text_of(base.get("thread_id"))
        parent = None if thread_id in threads else line[-1][0].other(thread_id)
        if parent is None:
            missing = thread_id
            break
        threads.add(thread_id)
        line.append((parent, base))
    if missing:
        yield mark("incomplete", f"the rollout of {missing}, from which this was forked, is not here")
    for depth, (one, base) in reversed(list(enumerate(line))):
        yield from _said(one, base, tally)
        if depth:
            yield mark("forked", f"what is above was said in {text_of(base.get('thread_id'))}")


def _base(source: MessageSource) -> dict[str, object]:
    """Return what the first record says of the rollout that it goes on from; empty: of none."""
    for record in records(source):
        if record.value is not None:
            return dict_of(dict_of(record.value.get("payload")).get("history_base"))
    return {}


def _said(source: MessageSource, until: dict[str, object], tally: Tally) -> Iterator[Message]:
    undone = _undone(source, until)
    for record in _until(source, until, tally):
        if record.value is None:
            continue
        time = parse_time(record.value.get("timestamp"))
        payload = dict_of(record.value.get("payload"))
        kind = text_of(record.value.get("type"))
        message = None
        if kind == "event_msg":
            message = _event(payload, time)
        elif record.line in undone:
            continue
        elif kind == "compacted":
            boundary = mark("compacted", "the model has a summary of what is above", time)
            summary = text_of(payload.get("message"))
            message = replace(boundary, parts=(*boundary.parts, *([TextPart(summary)] if summary else [])))
        elif kind == "response_item":
            message = _message(payload, time)
        else:
            tally.skipped_count += kind not in _BESIDE
        if message is not None:
            yield message


def _event(payload: dict[str, object], time: datetime | None) -> Message | None:
    kind = payload.get("type")
    if kind == "thread_rolled_back":
        return mark("undone", f"{payload.get('num_turns')} turn(s) were taken back here", time)
    if kind == "turn_aborted":
        return mark("interrupted", "the turn was stopped", time)
    if kind == "error":
        return Message("system", time, [TextPart(text_of(payload.get("message")) or "an error")])
    return None


def _until(source: MessageSource, until: dict[str, object], tally: Tally | None = None) -> Iterator[Record]:
    """Yield the records up to where a fork goes on from: by their numbers, or where they have none by bytes."""
    ordinal, offset = until.get("end_ordinal_exclusive"), until.get("end_byte_offset")
    for record in records(source, tally):
        number = record.value.get("ordinal") if record.value else None
        if isinstance(ordinal, int) and isinstance(number, int):
            if number >= ordinal:
                return
        elif isinstance(offset, int) and record.end > offset:
            return
        yield record


def _undone(source: MessageSource, until: dict[str, object]) -> LineRanges:
    """Return the lines of turns that were taken back: each from its first up to the record that says so."""
    turns: list[int] = []
    ranges: list[tuple[int, int]] = []
    for record in _until(source, until):
        if record.value is None:
            continue
        payload = dict_of(record.value.get("payload"))
        if payload.get("type") == "message" and payload.get("role") == "user" and not _is_added(payload):
            turns.append(record.line)
        elif payload.get("type") == "thread_rolled_back" and isinstance(count := payload.get("num_turns"), int):
            taken = turns[-count:] if count > 0 else []
            ranges += [(taken[0], record.line)] if taken else []
            del turns[len(turns) - len(taken) :]
    return LineRanges(ranges)


def _is_added(payload: dict[str, object]) -> bool:
    kinds = list_of(dict_of(payload.get("internal_chat_message_metadata_passthrough")).get("content_item_kinds"))
    if kinds:
        return not any(text_of(kind).startswith("user.") for kind in kinds)
    first = dict_of(next(iter(list_of(payload.get("content"))), None))
    return _ADDED.match(text_of(first.get("text"))) is not None


def _message(payload: dict[str, object], time: datetime | None) -> Message | None:
    kind = text_of(payload.get("type"))
    call_id = text_of(payload.get("call_id"))
    role: Role = "assistant"
    parts: list[Part] = []
    if kind == "message":
        if payload.get("role") == "user" and not _is_added(payload):
            role = "user"
        elif payload.get("role") != "assistant":
            return None
        parts = [part for block in list_of(payload.get("content")) for part in _parts(block)]
    elif kind == "reasoning":
        thoughts = [*list_of(payload.get("summary")), *list_of(payload.get("content"))]
        parts = [ReasoningPart(text) for one in thoughts if (text := text_of(dict_of(one).get("text")))]
    elif kind in _CALLS:
        name = text_of(payload.get("name")) or kind.removesuffix("_call")
        parts = [ToolCallPart(name, shown_arguments(payload.get(_CALLS[kind])), call_id or text_of(payload.get("id")))]
    elif kind.endswith("_output"):
        role = "tool"
        parts = list(_result(payload.get("output"), call_id))
    return Message(role, time, parts) if parts else None


def _result(output: object, call_id: str) -> Iterator[Part]:
    """Yield what a tool gave back: text, JSON in text (0.55), or parts."""
    is_error = False
    if isinstance(output, str) and output.startswith('{"output":'):
        try:
            told = dict_of(json.loads(output))
        except (ValueError, RecursionError):
            told = {}
        if isinstance(told.get("output"), str):
            is_error = dict_of(told.get("metadata")).get("exit_code", 0) != 0
            output = told["output"]
    if isinstance(output, dict):
        is_error = output.get("success") is False
        output = output.get("content")
    inner = [part for block in list_of(output) for part in _parts(block)]
    text = output if isinstance(output, str) else "\n".join(part.text for part in inner if isinstance(part, TextPart))
    found = _EXIT.search(text, 0, _HEAD_CHARS)
    yield ToolResultPart(text, is_error or (found is not None and found[1] != "0"), call_id)
    yield from (part for part in inner if isinstance(part, AttachmentPart))


def _parts(block: object) -> Iterator[Part]:
    found = dict_of(block)
    kind = text_of(found.get("type"))
    if text := text_of(found.get("text")):
        yield TextPart(text)
    elif "image" in kind:
        yield AttachmentPart("image")
    elif kind and "text" not in kind:
        yield AttachmentPart(kind)
