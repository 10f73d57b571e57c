"""Messages of the Copilot CLI: `events.jsonl` of its session directory.

Seen with 1.0.102. What a sub-agent says has an `agentId` and is left out.
"""

from __future__ import annotations

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
    parse_time,
    shown_arguments,
    text_of,
)
from host_client.agents.message_source import records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from host_client.agents.message import Part, Role
    from host_client.agents.message_source import MessageSource, Tally

FILE = "events.jsonl"
"""The transcript in the session directory."""

_FAMILIES = ("session.", "assistant.", "tool.", "subagent.", "user.", "system.", "hook.", "skill.", "permission.")
_TOLD = ("session.error", "session.warning", "session.info")


def messages(source: MessageSource, tally: Tally) -> Iterator[Message]:
    """Yield the messages, oldest first."""
    for record in records(source, tally):
        if record.value is None:
            continue
        kind = text_of(record.value.get("type"))
        if kind != "abort" and not kind.startswith(_FAMILIES):
            tally.skipped_count += 1
        elif not record.value.get("agentId"):
            message = _message(kind, dict_of(record.value.get("data")), parse_time(record.value.get("timestamp")))
            if message is not None:
                yield message


def _message(kind: str, data: dict[str, object], time: datetime | None) -> Message | None:
    role: Role = "system"
    parts: list[Part] = []
    if kind == "user.message":
        role = "user"
        parts = [*_text(data.get("content")), *map(_attachment, list_of(data.get("attachments")))]
    elif kind == "assistant.message":
        role = "assistant"
        parts = list(_said(data))
    elif kind == "tool.execution_complete":
        role = "tool"
        text = text_of(dict_of(data.get("result")).get("content")) or text_of(dict_of(data.get("error")).get("message"))
        parts = [ToolResultPart(text, data.get("success") is False, text_of(data.get("toolCallId")))]
    elif kind == "session.compaction_complete" and data.get("success") is not False:
        boundary = MarkPart("compacted", "the model has a summary of what is above")
        parts = [boundary, *_text(data.get("summaryContent"))]
    elif kind in _TOLD:
        parts = [*_text(data.get("message"))]
    elif kind == "abort":
        parts = [MarkPart("interrupted", "the turn was stopped")]
    return Message(role, time, parts) if parts else None


def _text(value: object) -> list[TextPart]:
    return [TextPart(value)] if isinstance(value, str) and value else []


def _said(data: dict[str, object]) -> Iterator[Part]:
    if text := text_of(data.get("reasoningText")):
        yield ReasoningPart(text)
    yield from _text(data.get("content"))
    for request in map(dict_of, list_of(data.get("toolRequests"))):
        call_id = text_of(request.get("toolCallId"))
        yield ToolCallPart(text_of(request.get("name")), shown_arguments(request.get("arguments")), call_id)


def _attachment(value: object) -> AttachmentPart:
    found = dict_of(value)
    name = text_of(found.get("displayName")) or text_of(found.get("path"))
    return AttachmentPart(text_of(found.get("type")) or "file", name)
