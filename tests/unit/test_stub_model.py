"""The stub model: what it answers, in which words, and that it forgets nothing it was asked."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest

from support.stub_model import StubModel

SHELL = {"function": {"name": "bash", "parameters": {"required": ["command", "description"]}}}


@pytest.fixture
def model(tmp_path: Path) -> Iterator[StubModel]:
    """Serve it."""
    with StubModel(tmp_path / "log.jsonl") as serving:
        yield serving


def ask(model: StubModel, messages: list[dict[str, Any]], **others: object) -> str:
    """Put one question over HTTP and return the body of the answer."""
    body = json.dumps({"model": "m", "messages": messages, **others}).encode()
    with urlopen(HttpRequest(f"{model.url}/v1/chat/completions", body)) as reply:  # noqa: S310 -- our own, on loopback
        return str(reply.read().decode())


def message(answer: str) -> dict[str, Any]:
    """Read the message of a whole answer."""
    said: dict[str, Any] = json.loads(answer)["choices"][0]["message"]
    return said


def test_the_answer_shows_the_history(model: StubModel) -> None:
    """Every user text comes back in order, without what CLIs wrap around it; so does the number of tool results."""
    said = message(
        ask(
            model,
            [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "<note x='1'>not\ntyped</note> one"}]},
                {"role": "assistant", "content": None},
                {"role": "tool", "content": "done"},
                {"role": "user", "content": "<reminder>nothing</reminder>"},
                {"role": "user", "content": "two"},
            ],
        )
    )
    assert said["content"] == "I was told 2 things: one | two. Tools answered 1 times."


def test_a_command_is_run_once_and_only_with_a_shell(model: StubModel) -> None:
    """The tool is called with all it insists on; its result ends the matter; without the tool there is just a text."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go RUN{pwd}"}]
    call = message(ask(model, messages, tools=[SHELL]))["tool_calls"][0]["function"]
    assert call["name"] == "bash"
    arguments = json.loads(call["arguments"])
    assert arguments["command"] == "pwd"
    assert set(arguments) == {"command", "description"}
    assert "told 1 things" in message(ask(model, messages))["content"]
    messages.append({"role": "tool", "content": "/w"})
    assert "answered 1 times" in message(ask(model, messages, tools=[SHELL]))["content"]
    messages.append({"role": "user", "content": "again RUN{ls}"})
    assert message(ask(model, messages, tools=[SHELL]))["tool_calls"]


def test_an_answer_comes_in_pieces_when_asked(model: StubModel) -> None:
    """A stream holds the text, the reason, the usage and the end mark."""
    events = ask(model, [{"role": "user", "content": "one"}], stream=True).strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert chunks[0]["choices"][0]["delta"]["content"].startswith("I was told 1 things: one.")
    assert chunks[1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[2]["usage"]["total_tokens"] == 110


def test_every_request_is_logged(model: StubModel) -> None:
    """What cannot be answered is logged too, but is no question to the model."""
    ask(model, [{"role": "user", "content": "one\u2028two"}])
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"{model.url}/v1/models")  # noqa: S310 -- our own, on loopback
    with pytest.raises(HTTPError, match="404"):
        urlopen(HttpRequest(f"{model.url}/v1/other", b"{}"))  # noqa: S310 -- our own, on loopback
    entries = [json.loads(line) for line in model.log.read_text().splitlines()]
    assert [(entry["method"], entry["path"]) for entry in entries] == [
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("POST", "/v1/other"),
    ]
    (request,) = model.requests()
    assert request.messages[0].text == "one\u2028two"
