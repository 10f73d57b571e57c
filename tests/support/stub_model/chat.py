"""OpenAI's chat completions, as far as Copilot CLI 1.0.102 and Kimi Code 2.1.0 use them."""

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

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "model", "tool": "tool"}
_USAGE = {
    "prompt_tokens": INPUT_TOKENS + CACHE_READ_TOKENS,
    "prompt_tokens_details": {"cached_tokens": CACHE_READ_TOKENS},
    "completion_tokens": OUTPUT_TOKENS,
    "completion_tokens_details": {"reasoning_tokens": REASONING_TOKENS},
    "total_tokens": INPUT_TOKENS + CACHE_READ_TOKENS + OUTPUT_TOKENS,
}
_numbers = itertools.count(1)


def read(body: dict[str, Any]) -> Request:
    """Take a request apart."""
    functions = [tool["function"] for tool in body.get("tools") or []]
    return Request(
        messages=[
            Message(_ROLES[message["role"]], _text(message.get("content"))) for message in body.get("messages", [])
        ],
        tools={function["name"]: function.get("parameters") or {} for function in functions},
        model=body.get("model", ""),
        is_stream=bool(body.get("stream")),
    )


def whole(request: Request, said: str | Call) -> dict[str, Any]:
    """Word an answer in one piece."""
    message = {"role": "assistant", **_said(said)}
    choice = {"index": 0, "message": message, "finish_reason": _reason(said)}
    return {**_head(request), "object": "chat.completion", "choices": [choice], "usage": _USAGE}


def pieces(request: Request, said: str | Call) -> Iterator[tuple[str, str]]:
    """Word an answer as server-sent events, data without names."""
    head = {**_head(request), "object": "chat.completion.chunk"}
    delta = {"role": "assistant", **_said(said)}
    yield "", json.dumps({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield "", json.dumps({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _reason(said)}]})
    yield "", json.dumps({**head, "choices": [], "usage": _USAGE})
    yield "", "[DONE]"


def _text(content: object) -> str:
    """Join the text of a message, which may come as one string or in parts."""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content) if isinstance(content, list) else ""


def _head(request: Request) -> dict[str, Any]:
    return {"id": f"chatcmpl-{next(_numbers)}", "created": 0, "model": request.model}


def _reason(said: str | Call) -> str:
    return "tool_calls" if isinstance(said, Call) else "stop"


def _said(said: str | Call) -> dict[str, Any]:
    if isinstance(said, str):
        return {"content": said}
    function = {"name": said.tool, "arguments": json.dumps(said.arguments)}
    call = {"index": 0, "id": f"call-{next(_numbers)}", "type": "function", "function": function}
    return {"content": None, "tool_calls": [call]}
