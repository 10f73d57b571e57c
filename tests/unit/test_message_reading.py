"""Messages of session directories, and of whatever is odd, hostile or not built in."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from host_client import ConfigurationError, ToolResultPart, read_message_file, read_messages
from host_client.agents.message import MAX_ARGUMENTS_CHARS, shown_arguments
from host_client.stores.contract import ConversationRecord
from support.message_text import STEP, answer, claude, codex, event, kimi, prompt, said, short, told, write

if TYPE_CHECKING:
    from pathlib import Path


class TestKimi:
    """The wire as the CLI replays it."""

    def test_undo_takes_turns_back(self, tmp_path: Path) -> None:
        """What was taken back is left out, with a mark; more than there is is not taken."""
        lines = [prompt("one"), answer("1"), STEP, prompt("two"), answer("2"), STEP]
        undo = kimi("context.undo", count=1)
        path = write(tmp_path / "wire.jsonl", *lines, undo, prompt("three"))
        assert told(read_message_file("kimi", path)) == ["u one", "a 1", "s <undone>", "u three"]
        path = write(tmp_path / "wire.jsonl", *lines, kimi("context.undo", count=3))
        assert told(read_message_file("kimi", path)) == ["u one", "a 1", "u two", "a 2"]

    def test_a_branch_goes_on_from_its_base(self, tmp_path: Path) -> None:
        """Lines of a branch that was left are not shown; the undo that goes with the switch takes nothing twice."""
        base = {"branch": "main", "line": 3}
        lines = [prompt("one"), answer("1"), STEP, prompt("left"), answer("left"), STEP]
        switch = kimi("agent.switched", branch="b1", base=base, legacyUndoLine=8)
        path = write(tmp_path / "wire.jsonl", *lines, switch, kimi("context.undo", count=1), prompt("two"))
        assert told(read_message_file("kimi", path)) == ["u one", "a 1", "u two"]

    def test_a_circle_of_branches_ends(self, tmp_path: Path) -> None:
        """A branch that is said to go on from itself, or from none that is known, is read all the same."""
        for origin in ("b1", "unknown"):
            switch = kimi("agent.switched", branch="b1", base={"branch": origin, "line": 1})
            assert told(read_message_file("kimi", write(tmp_path / "w.jsonl", prompt("a"), switch, prompt("b")))) == [
                "u b"
            ]

    def test_what_the_cli_forgets_is_marked(self, tmp_path: Path) -> None:
        """2.1.0 forgets, without a word, what follows a line that is no JSON; a torn last line costs nothing."""
        reading = read_message_file("kimi", write(tmp_path / "wire.jsonl", prompt("a"), b"{broken\n", prompt("b")))
        assert told(reading) == ["u a", "s <incomplete>", "u b"]
        assert (reading.skipped_count, reading.has_torn_tail) == (1, False)
        reading = read_message_file("kimi", write(tmp_path / "wire.jsonl", prompt("a"), b'{"type":"context.app'))
        assert told(reading) == ["u a"]
        assert (reading.skipped_count, reading.has_torn_tail) == (0, True)

    def test_compaction_and_clear_are_marked(self, tmp_path: Path) -> None:
        """What was before is shown, and no undo reaches over the mark."""
        lines = [
            prompt("one"),
            kimi("context.apply_compaction", summary="in short"),
            prompt("two", kind="injection"),
            kimi("context.undo", count=1),
            kimi("context.clear"),
            prompt("three"),
        ]
        expected = ["u one", "s <compacted> in short", "s <cleared>", "u three"]
        assert told(read_message_file("kimi", write(tmp_path / "wire.jsonl", *lines))) == expected


class TestCopilot:
    """The events of the session itself."""

    def test_compactions_errors_and_attachments_are_told(self, tmp_path: Path) -> None:
        """A compaction has its summary, an error its message, an attachment its name; what is unknown is counted."""
        attached = [{"type": "file", "displayName": "a.txt"}]
        lines = [
            event("user.message", content="look", attachments=attached),
            event("session.compaction_complete", success=True, summaryContent="in short"),
            event("session.error", message="out of tokens"),
            event("tool.execution_complete", toolCallId="c", success=False, error={"message": "denied"}),
            event("abort", reason="user"),
            event("of.another.kind"),
        ]
        reading = read_message_file("copilot", write(tmp_path / "events.jsonl", *lines))
        found = list(reading)
        expected = ["u look", "s <compacted> in short", "s out of tokens", "t denied", "s <interrupted>"]
        assert told(found) == expected
        assert len(found[0].parts) == 2
        assert found[3].parts == [ToolResultPart("denied", is_error=True, call_id="c")]
        assert reading.skipped_count == 1


HOSTILE: list[Any] = [
    None,
    1,
    "x",
    [],
    {},
    [None, 1, "x", [[]], {"type": None}],
    {"content": 1, "origin": 7, "type": []},
]


@pytest.mark.parametrize("name", ["claude", "codex", "copilot", "kimi"])
@pytest.mark.parametrize("odd", HOSTILE, ids=range(len(HOSTILE)))
def test_odd_values_are_borne(tmp_path: Path, name: str, odd: object) -> None:
    """Whatever stands where something else is expected, the reading goes on to the end."""
    kinds = {
        "claude": [claude("1", None, "x"), claude("2", "1", "x", "assistant")],
        "codex": [said("user", "x"), codex("compacted"), codex("event_msg", type="thread_rolled_back", num_turns=1)],
        "copilot": [event("user.message"), event("assistant.message"), event("tool.execution_complete")],
        "kimi": [
            prompt("x"),
            answer("x"),
            kimi("agent.switched"),
            kimi("context.undo"),
            kimi("context.apply_compaction"),
        ],
    }[name]
    keys = (
        "message",
        "uuid",
        "parentUuid",
        "timestamp",
        "type",
        "payload",
        "data",
        "event",
        "base",
        "count",
        "summary",
    )
    lines = [{**kind, key: odd} for kind in kinds for key in keys]
    inner = ("content", "role", "type", "summary", "toolRequests", "attachments", "part", "toolCalls", "id", "output")
    for kind in kinds:
        for key in ("message", "payload", "data", "event"):
            lines += [{**kind, key: {**kind.get(key, {}), name: odd}} for name in inner if key in kind]
    reading = read_message_file(name, write(tmp_path / "t.jsonl", *lines, *kinds))
    assert all(message.parts for message in reading)


def test_a_format_of_ones_own_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """The refusal says which formats can be read and where the rest is."""
    record = ConversationRecord(
        format="mycli",
        conversation_id="x",
        path=tmp_path / "x",
        digest="",
        files_count=1,
        bytes_count=1,
        source=tmp_path,  # type: ignore[arg-type] # any path will do
    )
    with pytest.raises(ConfigurationError) as failed:
        read_messages(record)
    assert (failed.value.code, failed.value.reason) == ("configuration", "not_supported")
    assert "claude, codex, copilot, kimi" in failed.value.hint
    assert "path" in failed.value.hint


def test_long_arguments_are_cut_with_a_note() -> None:
    """What a tool was called with is bounded, too."""
    found = shown_arguments({"a": "x" * (MAX_ARGUMENTS_CHARS + 5)})
    assert found.endswith("[cut here: 14 more characters]")


@pytest.mark.anyio
async def test_messages_are_read_again_and_again_in_threads(tmp_path: Path) -> None:
    """`async for` blocks no loop; a second one begins anew, and leaving it early closes the file."""
    path = write(tmp_path / "wire.jsonl", *[prompt(str(number)) for number in range(200)])
    reading = read_message_file("kimi", path)
    expected = [f"u {number}" for number in range(200)]
    assert [short(message) async for message in reading] == expected
    assert [short(message) async for message in reading] == expected
    async with aclosing(aiter(reading)) as found:
        assert short(await anext(found)) == "u 0"
