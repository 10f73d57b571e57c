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
from support.stub_model.conversation import WAIT_MILLISECONDS, Call, Message, Request, answer

SHELL = {"function": {"name": "bash", "parameters": {"required": ["command", "description"]}}}


@pytest.fixture
def model(tmp_path: Path) -> Iterator[StubModel]:
    """Serve it."""
    with StubModel(tmp_path / "log.jsonl") as serving:
        yield serving


def post(model: StubModel, path: str, content: object) -> str:
    """Put one question over HTTP and return the body of the answer."""
    body = json.dumps(content).encode()
    with urlopen(HttpRequest(f"{model.url}{path}", body)) as reply:  # noqa: S310 -- our own, on loopback
        return str(reply.read().decode())


def ask(model: StubModel, messages: list[dict[str, Any]], **others: object) -> str:
    """Put one question to the chat completions."""
    return post(model, "/v1/chat/completions", {"model": "m", "messages": messages, **others})


def named_events(stream: str) -> list[dict[str, Any]]:
    """Read the data of server-sent events, each of which must be named by its type."""
    events = []
    for event in stream.strip().split("\n\n"):
        name, data = event.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def text(words: str) -> dict[str, str]:
    """Make a text block of Anthropic's API."""
    return {"type": "text", "text": words}


def part(words: str) -> dict[str, str]:
    """Make a text part of OpenAI's Responses."""
    return {"type": "input_text", "text": words}


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


def test_orders_are_carried_out_one_after_the_other() -> None:
    """Each tool that the newest text orders is called once, in order; what is not on offer is passed over."""
    tools = {"Bash": {"required": ["command"]}, "Agent": {"required": ["prompt", "description"]}}
    said = [Message("user", "DELEGATE{count RUN{ls}} then RUN{pwd} and TELL{a1: go on}")]

    def asked() -> str | Call:
        return answer(Request(said, tools, "m", is_stream=False))

    first = asked()
    assert isinstance(first, Call)
    assert (first.tool, first.arguments["prompt"], first.arguments["run_in_background"]) == (
        "Agent",
        "count RUN{ls}",
        False,
    )
    assert "description" in first.arguments
    said.append(Message("tool", "counted"))
    assert asked() == Call("Bash", {"command": "pwd"})
    said.append(Message("tool", "/w"))
    assert asked() == (
        "I was told 1 things: DELEGATE{count RUN{ls}} then RUN{pwd} and TELL{a1: go on}. Tools answered 2 times."
    )


def test_an_agent_is_waited_for_by_the_id_it_was_given() -> None:
    """Where starting an agent and waiting for it are two tools, the second gets the id that the first gave out."""
    agent = "01a22cc1-ee6d-7ab3-ba07-cb27cd3950d2"
    tools = {f"multi_agent_v1.{name}": {} for name in ("spawn_agent", "wait_agent", "resume_agent", "send_input")}
    said = [Message("user", "DELEGATE{count}")]
    assert answer(Request(said, tools, "m", is_stream=False)) == Call(
        "multi_agent_v1.spawn_agent", {"message": "count"}
    )
    said.append(Message("tool", json.dumps({"agent_id": agent})))
    wait = Call("multi_agent_v1.wait_agent", {"targets": [agent], "timeout_ms": WAIT_MILLISECONDS})
    assert answer(Request(said, tools, "m", is_stream=False)) == wait
    said += [Message("tool", "done"), Message("user", f"TELL{{{agent}: once more}}")]
    for call in (
        Call("multi_agent_v1.resume_agent", {"id": agent}),
        Call("multi_agent_v1.send_input", {"target": agent, "message": "once more"}),
        wait,
    ):
        assert answer(Request(said, tools, "m", is_stream=False)) == call
        said.append(Message("tool", "done"))
    assert isinstance(answer(Request(said, tools, "m", is_stream=False)), str)


def test_messages_are_taken_apart_block_by_block(model: StubModel) -> None:
    """Anthropic's API: system text, what the user typed, what the CLI put beside it, and results of tools."""
    question = {
        "model": "m",
        "system": [{"type": "text", "text": "be brief"}],
        "messages": [
            {"role": "user", "content": [text("<note>\nnot typed</note>"), text("one")]},
            {
                "role": "assistant",
                "content": [text("yes"), {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [text("/w")]}]},
            {"role": "user", "content": "two RUN{ls}"},
        ],
        "tools": [{"name": "Bash", "input_schema": {"required": ["command"]}}],
    }
    (block,) = json.loads(post(model, "/v1/messages?beta=true", question))["content"]
    assert (block["name"], block["input"]) == ("Bash", {"command": "ls"})
    (request,) = model.requests()
    assert request.messages == [
        Message("system", "be brief"),
        Message("user", "<note>\nnot typed</note>"),
        Message("user", "one"),
        Message("model", "yes"),
        Message("model", ""),
        Message("tool", "/w"),
        Message("user", "two RUN{ls}"),
    ]
    assert json.loads(post(model, "/v1/messages/count_tokens", question)) == {"input_tokens": 100}
    assert len(model.requests()) == 1, "a count is no question"


@pytest.mark.parametrize(
    ("prompt", "delta", "stop"),
    [("one", {"type": "text_delta"}, "end_turn"), ("RUN{ls}", {"type": "input_json_delta"}, "tool_use")],
)
def test_messages_come_in_named_events(model: StubModel, prompt: str, delta: dict[str, str], stop: str) -> None:
    """Anthropic's stream: the message, its one block, the reason, the end; the name of an event is its type."""
    tools = [{"name": "Bash", "input_schema": {}}]
    question = {"messages": [{"role": "user", "content": prompt}], "tools": tools, "stream": True}
    events = named_events(post(model, "/v1/messages", question))
    assert [event["type"] for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[2]["delta"].items() >= delta.items()
    assert events[4]["delta"]["stop_reason"] == stop


def test_responses_are_taken_apart_part_by_part(model: StubModel) -> None:
    """OpenAI's Responses: messages of all roles, results of tools, and tools in groups."""
    question = {
        "model": "m",
        "instructions": "be brief",
        "input": [
            {"type": "message", "role": "developer", "content": [part("more")]},
            {"type": "message", "role": "user", "content": [part("<note>not typed</note>"), part("one")]},
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
            {"type": "function_call", "name": "exec_command", "arguments": "{}", "call_id": "c"},
            {"type": "function_call_output", "call_id": "c", "output": "/w"},
            {"type": "custom_tool_call_output", "call_id": "d", "output": [part("/x"), part("/y")]},
            {"role": "user", "content": "two DELEGATE{count}"},
        ],
        "tools": [
            {"type": "function", "name": "exec_command", "parameters": {"required": ["cmd"]}},
            {"type": "web_search"},
            {"type": "namespace", "name": "multi_agent_v1", "tools": [{"type": "function", "name": "spawn_agent"}]},
        ],
    }
    (item,) = json.loads(post(model, "/v1/responses", question))["output"]
    assert (item["namespace"], item["name"]) == ("multi_agent_v1", "spawn_agent")
    assert json.loads(item["arguments"]) == {"message": "count"}
    (request,) = model.requests()
    assert list(request.tools) == ["exec_command", "multi_agent_v1.spawn_agent"]
    assert request.messages == [
        Message("system", "be brief"),
        Message("system", "more"),
        Message("user", "<note>not typed</note>"),
        Message("user", "one"),
        Message("model", "yes"),
        Message("tool", "/w"),
        Message("tool", "/x\n/y"),
        Message("user", "two DELEGATE{count}"),
    ]


def test_responses_come_in_named_events(model: StubModel) -> None:
    """OpenAI's stream: the one item begins, is said and is done; a call of a plain tool has no group."""
    question = {"input": [{"role": "user", "content": "one"}], "stream": True}
    events = named_events(post(model, "/v1/responses", question))
    assert [event["type"] for event in events] == [
        "response.created",
        "response.output_item.added",
        "response.output_text.delta",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(5))
    assert events[2]["delta"].startswith("I was told 1 things: one.")
    assert events[-1]["response"]["output"] == [events[3]["item"]]
    question = {
        "input": [{"role": "user", "content": "RUN{ls}"}],
        "tools": [{"type": "function", "name": "exec_command", "parameters": {}}],
        "stream": True,
    }
    item = named_events(post(model, "/v1/responses", question))[-1]["response"]["output"][0]
    assert (item["name"], json.loads(item["arguments"])) == ("exec_command", {"cmd": "ls"})
    assert "namespace" not in item


def test_an_answer_comes_in_pieces_when_asked(model: StubModel) -> None:
    """A stream holds the text, the reason, the usage and the end mark."""
    events = ask(model, [{"role": "user", "content": "one"}], stream=True).strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert chunks[0]["choices"][0]["delta"]["content"].startswith("I was told 1 things: one.")
    assert chunks[1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[2]["usage"]["total_tokens"] == 100 + 30 + 10  # what was asked, what a cache had of it, the answer


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
