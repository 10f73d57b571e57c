"""Anthropic's Messages, as far as Claude Code 2.1.332 uses them."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from support.stub_model.conversation import (
    CACHE_READ_TOKENS,
    CACHE_WRITE_TOKENS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    Call,
    Message,
    Request,
)

_USAGE = {
    "input_tokens": INPUT_TOKENS,
    "cache_creation_input_tokens": CACHE_WRITE_TOKENS,
    "cache_read_input_tokens": CACHE_READ_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
}
_numbers = itertools.count(1)


def read(body: dict[str, Any]) -> Request:
    """Take a request apart; each block is a message of its own, since the CLI puts its words beside the user's."""
    said = [Message("system", block["text"]) for block in _blocks(body.get("system"))]
    for message in body.get("messages", []):
        said += [_message(message["role"], block) for block in _blocks(message.get("content"))]
    return Request(
        messages=said,
        tools={tool["name"]: tool.get("input_schema") or {} for tool in body.get("tools") or []},
        model=body.get("model", ""),
        is_stream=bool(body.get("stream")),
    )


def whole(request: Request, said: str | Call) -> dict[str, Any]:
    """Word an answer in one piece."""
    return {
        "id": f"msg_{next(_numbers)}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [_content(said)],
        "stop_reason": _reason(said),
        "stop_sequence": None,
        "usage": _USAGE,
    }


def pieces(request: Request, said: str | Call) -> Iterator[tuple[str, str]]:
    """Word an answer as server-sent events, names and data."""
    message = whole(request, said)
    (block,) = message["content"]
    if isinstance(said, Call):
        empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(said.arguments)}
    else:
        empty, delta = {"text": ""}, {"type": "text_delta", "text": said}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event("message_start", message={**message, "content": [], "stop_reason": None})
    yield _event("content_block_start", index=0, content_block={**block, **empty})
    yield _event("content_block_delta", index=0, delta=delta)
    yield _event("content_block_stop", index=0)
    yield _event("message_delta", delta=stop, usage={"output_tokens": _USAGE["output_tokens"]})
    yield _event("message_stop")


def _blocks(content: object) -> list[dict[str, Any]]:
    """Give a content in blocks, which may come as one string or not at all."""
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if isinstance(content, str) else []


def _message(role: str, block: dict[str, Any]) -> Message:
    if block["type"] == "tool_result":
        return Message("tool", "\n".join(part.get("text", "") for part in _blocks(block.get("content"))))
    text = block.get("text", "")
    if role == "assistant":
        return Message("model", text)
    return Message("system" if role == "system" else "user", text)


def _content(said: str | Call) -> dict[str, Any]:
    if isinstance(said, str):
        return {"type": "text", "text": said}
    return {"type": "tool_use", "id": f"toolu_{next(_numbers)}", "name": said.tool, "input": said.arguments}


def _reason(said: str | Call) -> str:
    return "tool_use" if isinstance(said, Call) else "end_turn"


def _event(name: str, **content: object) -> tuple[str, str]:
    return name, json.dumps({"type": name, **content})
