"""Messages of every recorded conversation: what was typed and what was said is there, in order, and nothing else is."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import zstandard

from host_client import (
    MarkPart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    format_names,
    read_message_file,
)
from support.recorded import DATA

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = [
    (path.parts[-4], str(path.parent.relative_to(DATA / path.parts[-4])))
    for name in format_names()
    for path in sorted(DATA.glob(f"{name}/*/*/expected.json"))
]
SAID = re.compile(r"turn [0-9]+: I remember: .*?\[assistant texts seen: [0-9]+, tool results seen: [0-9]+\]", re.DOTALL)


def transcript(cli: str, name: str) -> Path:
    """Return the main transcript of a recording."""
    folder = DATA / cli / name
    wanted = json.loads((folder / "expected.json").read_text())["session_id"]
    pattern = {"claude": "{}.jsonl", "codex": "rollout-*{}.jsonl*", "copilot": "events.jsonl", "kimi": "wire.jsonl"}[
        cli
    ]
    paths = (folder / "home").rglob(pattern.format(wanted))
    (found,) = (path for path in paths if wanted in str(path) and "agent-" not in str(path))
    return found


def said_in_lines(path: Path, *, kinds: tuple[str, ...]) -> list[str]:
    """Return what the stub model said, from the raw lines of certain types that are not a sub-agent's."""
    raw = path.read_bytes()
    text = zstandard.ZstdDecompressor().decompressobj().decompress(raw) if path.suffix == ".zst" else raw
    lines = [json.loads(line) for line in text.split(b"\n") if line]
    wanted = [
        line for line in lines if line["type"] in kinds and not line.get("agentId", "main").startswith(("b", "agent-"))
    ]
    found = []
    for line in wanted:
        if line["type"] == "user" or line.get("payload", {}).get("type", "").endswith("output"):
            continue
        if line.get("type") == "context.append_loop_event" and line["event"]["type"] != "content.part":
            continue
        found += [said for value in texts(line) if (said := value) and SAID.fullmatch(said)]
    return found


def texts(value: object) -> list[str]:
    """Return all texts in a JSON value."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in texts(one)]


def spoken(messages: list[Message], role: str) -> list[str]:
    """Return the texts of messages of one role."""
    return [part.text for one in messages if one.role == role for part in one.parts if isinstance(part, TextPart)]


@pytest.mark.parametrize(("cli", "name"), RECORDED)
def test_what_was_typed_is_there(cli: str, name: str) -> None:
    """The messages of the user are the prompts of the recording, and in Claude Code its own commands as well."""
    expected = json.loads((DATA / cli / name / "expected.json").read_text())
    typed = spoken(list(read_message_file(cli, transcript(cli, name))), "user")
    renamed = ["/rename my-name"] if name == "2.1.332/interactive" and cli == "claude" else []
    assert typed == [*expected["prompts"], *renamed]


@pytest.mark.parametrize(("cli", "name"), RECORDED)
def test_what_the_model_said_is_there(cli: str, name: str) -> None:
    """Its answers are those of the raw lines, in order, and the last is the one that the recording names."""
    expected = json.loads((DATA / cli / name / "expected.json").read_text())
    path = transcript(cli, name)
    reading = read_message_file(cli, path)
    said = [text for text in spoken(list(reading), "assistant") if SAID.fullmatch(text)]
    kinds = ("assistant", "response_item", "assistant.message", "context.append_loop_event")
    raw = said_in_lines(path, kinds=kinds)
    assert raw == said[len(said) - len(raw) :]
    assert len(said) - len(raw) == (2 if (cli, name) == ("codex", "0.171.0/fork") else 0)  # was said in its parent
    assert said[-1].startswith(expected["last_reply"][:200]) if said else not expected["last_reply"]
    assert (reading.skipped_count, reading.has_torn_tail) == (0, False)


@pytest.mark.parametrize(("cli", "name"), RECORDED)
def test_every_result_follows_its_call(cli: str, name: str) -> None:
    """A result names a call that came before it, and each call has its result; but for one that was still at work."""
    messages = list(read_message_file(cli, transcript(cli, name)))
    calls: list[str] = []
    results: list[str] = []
    for part in (part for one in messages for part in one.parts):
        if isinstance(part, ToolCallPart):
            assert part.name
            assert part.arguments.startswith("{")
            calls.append(part.call_id)
        elif isinstance(part, ToolResultPart):
            assert part.call_id in calls
            results.append(part.call_id)
    assert results == (calls[:-1] if "live" in name else calls)


@pytest.mark.parametrize(("cli", "name"), RECORDED)
def test_times_do_not_run_backwards(cli: str, name: str) -> None:
    """Every message that was said has a time, and none is before the one above it."""
    times = [one.time for one in read_message_file(cli, transcript(cli, name)) if one.role != "system"]
    assert None not in times
    assert times == sorted(times)  # type: ignore[type-var] # none is None


def test_reasoning_is_told_apart() -> None:
    """What the model thought is no text of its answer."""
    for cli, name in (("claude", "2.1.332/multiturn"), ("codex", "0.171.0/multiturn"), ("codex", "0.55.0/multiturn")):
        parts = [part for one in read_message_file(cli, transcript(cli, name)) for part in one.parts]
        assert ReasoningPart("I should recall things.") in parts
        assert TextPart("I should recall things.") not in parts


def test_a_compaction_is_marked() -> None:
    """What was said before a compaction is shown, then a mark, then the summary, which nobody typed."""
    messages = list(read_message_file("claude", transcript("claude", "2.1.197/compacted")))
    (at,) = (number for number, one in enumerate(messages) if isinstance(one.parts[0], MarkPart))
    assert messages[at].parts[0].word == "compacted"  # type: ignore[union-attr] # it is a mark
    assert spoken(messages[:at], "user") == ["compact one: apple", "compact two: pear use-tool"]
    assert spoken(messages[at + 1 : at + 2], "system")[0].startswith("This session is being continued")


def test_a_fork_begins_with_its_parent() -> None:
    """A fork of Codex is what was said in its parent, a mark, and what was said since; in Claude Code it is a copy."""
    messages = list(read_message_file("codex", transcript("codex", "0.171.0/fork")))
    (at,) = (number for number, one in enumerate(messages) if isinstance(one.parts[0], MarkPart))
    assert messages[at].parts[0].word == "forked"  # type: ignore[union-attr] # it is a mark
    assert spoken(messages[:at], "user") == ["parent one lemon", "parent two"]
    assert spoken(messages[at:], "user") == ["fork one", "fork two"]
