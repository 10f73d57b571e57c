"""Transcripts of all formats as tests write them, and messages in short."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from host_client import MarkPart, Message, TextPart, ToolResultPart

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, *lines: dict[str, Any] | bytes) -> Path:
    """Write a transcript; a line that is bytes stands there as it is, without a newline of ours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
    return path


def told(messages: Any) -> list[str]:
    """Return messages in short: the role's letter and the text, or the word of a mark."""
    return [short(message) for message in messages]


def short(message: Message) -> str:
    """Return one message in short."""
    words = [
        f"<{part.word}>" if isinstance(part, MarkPart) else part.text
        for part in message.parts
        if isinstance(part, MarkPart | TextPart | ToolResultPart)
    ]
    return f"{message.role[0]} {' '.join(words)}"


def claude(uuid: str, parent: str | None, text: str, kind: str = "user", **more: Any) -> dict[str, Any]:
    """Return a record of Claude Code."""
    message = {"role": kind, "content": text if kind == "user" else [{"type": "text", "text": text}]}
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "message": message, **more}


def codex(kind: str, ordinal: int | None = None, **payload: Any) -> dict[str, Any]:
    """Return a record of Codex."""
    numbered = {} if ordinal is None else {"ordinal": ordinal}
    return {"timestamp": "2026-11-30T10:00:00.000Z", "type": kind, "payload": payload, **numbered}


def said(role: str, text: str, ordinal: int | None = None) -> dict[str, Any]:
    """Return a message of Codex."""
    return codex("response_item", ordinal, type="message", role=role, content=[{"type": "input_text", "text": text}])


def kimi(kind: str, **more: Any) -> dict[str, Any]:
    """Return a record of Kimi Code."""
    return {"type": kind, "time": 1796033136496, **more}


def prompt(text: str, **origin: Any) -> dict[str, Any]:
    """Return what a user typed in Kimi Code."""
    message = {"role": "user", "content": [{"type": "text", "text": text}], "origin": origin or {"kind": "user"}}
    return kimi("context.append_message", message=message)


def answer(text: str) -> dict[str, Any]:
    """Return what the model said in Kimi Code."""
    return kimi("context.append_loop_event", event={"type": "content.part", "part": {"type": "text", "text": text}})


STEP = kimi("context.append_loop_event", event={"type": "step.end"})


def event(kind: str, **data: Any) -> dict[str, Any]:
    """Return an event of Copilot."""
    return {"type": kind, "timestamp": "2026-11-30T10:00:00.000Z", "data": data}
