"""OpenAI's Responses, as far as Codex 0.171.0 uses them."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from support.stub_model.conversation import (
    CACHE_READ_TOKENS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REASONING_TOKENS,
    Call,
    Message,
    Request,
)

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "model"}
_USAGE = {
    "input_tokens": INPUT_TOKENS + CACHE_READ_TOKENS,
    "input_tokens_details": {"cached_tokens": CACHE_READ_TOKENS},
    "output_tokens": OUTPUT_TOKENS,
    "output_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
    "total_tokens": INPUT_TOKENS + CACHE_READ_TOKENS + OUTPUT_TOKENS,
}
_numbers = itertools.count(1)


def read(body: dict[str, Any]) -> Request:
    """Take a request apart; each part is a message of its own, since the CLI puts its words beside the user's."""
    said = [Message("system", body["instructions"])] if body.get("instructions") else []
    for item in body.get("input", []):
        kind = item.get("type", "message")
        if kind == "message":
            said += [Message(_ROLES[item["role"]], text) for text in _texts(item["content"])]
        elif kind.endswith("_call_output"):
            said.append(Message("tool", "\n".join(_texts(item["output"]))))
    return Request(
        messages=said,
        tools=dict(_tools(body.get("tools") or [])),
        model=body.get("model", ""),
        is_stream=bool(body.get("stream")),
    )


def whole(request: Request, said: str | Call) -> dict[str, Any]:
    """Word an answer in one piece."""
    return {
        "id": f"resp_{next(_numbers)}",
        "object": "response",
        "created_at": 0,
        "model": request.model,
        "status": "completed",
        "output": [_item(said)],
        "usage": _USAGE,
    }


def pieces(request: Request, said: str | Call) -> Iterator[tuple[str, str]]:
    """Word an answer as server-sent events, names and data."""
    response = whole(request, said)
    (item,) = response["output"]
    numbers = itertools.count()

    def event(name: str, **content: object) -> tuple[str, str]:
        return name, json.dumps({"type": name, "sequence_number": next(numbers), **content})

    begun = {key: value for key, value in response.items() if key != "usage"}
    yield event("response.created", response={**begun, "status": "in_progress", "output": []})
    yield event("response.output_item.added", output_index=0, item={**item, "status": "in_progress"})
    if isinstance(said, str):
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        yield event("response.output_text.delta", **place, delta=said)
    yield event("response.output_item.done", output_index=0, item=item)
    yield event("response.completed", response=response)


def _texts(content: str | list[dict[str, Any]]) -> list[str]:
    """List the texts of a content, which may come as one string or in parts."""
    return [content] if isinstance(content, str) else [part.get("text", "") for part in content]


def _tools(offered: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """List the functions, those of a group (`namespace`) by the group's name and their own; others have no name."""
    for tool in offered:
        if tool["type"] == "namespace":
            for name, schema in _tools(tool["tools"]):
                yield f"{tool['name']}.{name}", schema
        elif tool["type"] == "function":
            yield tool["name"], tool.get("parameters") or {}


def _item(said: str | Call) -> dict[str, Any]:
    number = next(_numbers)
    if isinstance(said, str):
        content = [{"type": "output_text", "text": said, "annotations": []}]
        return {
            "type": "message",
            "id": f"msg_{number}",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    group, _, name = said.tool.rpartition(".")
    call = {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        "arguments": json.dumps(said.arguments),
        "status": "completed",
    }
    return {**call, "namespace": group} if group else call
