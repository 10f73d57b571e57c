"""Messages of transcripts that are damaged, branched, taken back or hostile."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from host_client import (
    ConfigurationError,
    MarkPart,
    Message,
    TextPart,
    ToolResultPart,
    read_message_file,
    read_messages,
)
from host_client.agents.message import MAX_ARGUMENTS_CHARS, shown_arguments
from host_client.stores.contract import ConversationRecord

if TYPE_CHECKING:
    from pathlib import Path

CHILD = "01a22be9-6e94-7931-90f0-7b34fd12f652"
PARENT = "01a22be9-6bd0-74b1-8e68-8ec8c11634b0"


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


def last(leaf: str) -> dict[str, Any]:
    """Return the record by which Claude Code notes where it is."""
    return {"type": "last-prompt", "leafUuid": leaf}


class TestClaude:
    """The branch that the CLI would resume."""

    def test_the_noted_branch_is_shown(self, tmp_path: Path) -> None:
        """Of two ends the one is shown that the last note names, not the one that was written last."""
        root = claude("1", None, "begin")
        lines = [root, claude("2", "1", "one", "assistant"), claude("3", "1", "two", "assistant"), last("2")]
        assert told(read_message_file("claude", write(tmp_path / "t.jsonl", *lines))) == ["u begin", "a one"]

    def test_what_goes_on_from_the_note_is_shown(self, tmp_path: Path) -> None:
        """A turn that was killed before its note is part of the branch."""
        lines = [claude("1", None, "begin"), claude("2", "1", "one", "assistant"), last("2"), claude("3", "2", "more")]
        assert told(read_message_file("claude", write(tmp_path / "t.jsonl", *lines))) == ["u begin", "a one", "u more"]

    def test_without_a_note_the_last_record_counts(self, tmp_path: Path) -> None:
        """Old transcripts have no notes."""
        lines = [
            claude("1", None, "begin"),
            claude("2", "1", "lost", "assistant"),
            claude("3", "1", "kept", "assistant"),
        ]
        assert told(read_message_file("claude", write(tmp_path / "t.jsonl", *lines))) == ["u begin", "a kept"]

    def test_results_of_calls_at_the_same_time_are_all_shown(self, tmp_path: Path) -> None:
        """Each result follows its own call; the branch passes through one of them only."""

        def call(uuid: str, parent: str) -> dict[str, Any]:
            block = {"type": "tool_use", "id": uuid, "name": "Bash", "input": {}}
            return {
                "type": "assistant",
                "uuid": uuid,
                "parentUuid": parent,
                "message": {"id": "m", "content": [block]},
            }

        def result(uuid: str, parent: str) -> dict[str, Any]:
            block = {"type": "tool_result", "tool_use_id": parent, "content": f"of {parent}"}
            return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": {"content": [block]}}

        lines = [
            claude("1", None, "begin"),
            call("a", "1"),
            call("b", "a"),
            result("ra", "a"),
            result("rb", "b"),
            claude("2", "rb", "done", "assistant"),
        ]
        found = list(read_message_file("claude", write(tmp_path / "t.jsonl", *lines)))
        assert told(found) == ["u begin", "a ", "t of a", "t of b", "a done"]
        assert len(found[1].parts) == 2

    def test_a_broken_line_costs_itself(self, tmp_path: Path) -> None:
        """What follows a record that cannot be read follows the one before it; what was skipped is counted."""
        lines = [
            claude("1", None, "begin"),
            b'{"type":"user","uuid":"2", broken\n',
            claude("3", "2", "answer", "assistant"),
            b"\0" * 10 + b"\n\n",
            {"type": "of-a-newer-version"},
            claude("4", "3", "end"),
            b'{"type":"user","uuid":"5","parentUuid":"4","mess',
        ]
        reading = read_message_file("claude", write(tmp_path / "t.jsonl", *lines))
        assert told(reading) == ["u begin", "a answer", "u end"]
        assert (reading.skipped_count, reading.has_torn_tail) == (2, True)

    def test_two_records_in_one_line_are_both_read(self, tmp_path: Path) -> None:
        """2.1.197 appends to a line without newline."""
        first, second = (json.dumps(one).encode() for one in (claude("1", None, "a"), claude("2", "1", "b")))
        assert told(read_message_file("claude", write(tmp_path / "t.jsonl", first + second + b"\n"))) == ["u a", "u b"]

    def test_circles_and_doubles_end(self, tmp_path: Path) -> None:
        """A record that follows itself by a detour does not hold up the reading, and a doubled line is one message."""
        lines = [claude("1", "2", "a"), claude("2", "1", "b"), claude("2", "1", "b")]
        assert told(read_message_file("claude", write(tmp_path / "t.jsonl", *lines))) == ["u a", "u b"]

    def test_what_was_not_typed_is_told_apart(self, tmp_path: Path) -> None:
        """Prompts of sub-agents and reminders are left out; outputs of the CLI's commands are the CLI's."""
        queued = {"type": "queued_command", "prompt": "while it worked"}
        lines = [
            claude("1", None, "begin"),
            claude("s", "1", "a sub-agent's", isSidechain=True),
            claude("2", "1", "a reminder", isMeta=True),
            claude("3", "2", "<local-command-stdout>done</local-command-stdout>"),
            {"type": "attachment", "uuid": "4", "parentUuid": "3", "attachment": queued},
            claude("5", "4", "[Request interrupted by user]"),
        ]
        found = told(read_message_file("claude", write(tmp_path / "t.jsonl", *lines)))
        expected = ["u begin", "s done", "u while it worked"]
        assert found == [*expected, "s <interrupted>"]

    def test_a_line_of_30_mb_is_shown_cut(self, tmp_path: Path) -> None:
        """Its text begins as it did and says how much is missing."""
        path = write(tmp_path / "t.jsonl", claude("1", None, "x" * 30_000_000), claude("2", "1", "end"))
        first, second = told(read_message_file("claude", path))
        assert first.startswith("u xxx")
        assert first.endswith("more bytes]")
        assert len(first) < 100_000
        assert second == "u end"


def codex(kind: str, ordinal: int | None = None, **payload: Any) -> dict[str, Any]:
    """Return a record of Codex."""
    numbered = {} if ordinal is None else {"ordinal": ordinal}
    return {"timestamp": "2026-11-30T10:00:00.000Z", "type": kind, "payload": payload, **numbered}


def said(role: str, text: str, ordinal: int | None = None) -> dict[str, Any]:
    """Return a message of Codex."""
    return codex("response_item", ordinal, type="message", role=role, content=[{"type": "input_text", "text": text}])


class TestCodex:
    """The rollout and what it goes on from."""

    def rollout(self, home: Path, thread: str, *lines: dict[str, Any]) -> Path:
        """Write a rollout where the CLI has it."""
        return write(home / f"sessions/2026/11/30/rollout-2026-11-30T10-00-00-{thread}.jsonl", *lines)

    def test_a_fork_goes_on_from_a_record(self, tmp_path: Path) -> None:
        """What the parent said after the fork is not part of it; a fork without numbers goes by bytes."""
        parent = [
            codex("session_meta", 0),
            said("user", "one", 1),
            said("assistant", "two", 2),
            said("user", "late", 3),
        ]
        self.rollout(tmp_path, PARENT, *parent)
        base = {"thread_id": PARENT, "end_ordinal_exclusive": 3, "end_byte_offset": 1}
        child = self.rollout(tmp_path, CHILD, codex("session_meta", 3, history_base=base), said("user", "three", 4))
        assert told(read_message_file("codex", child)) == ["u one", "a two", "s <forked>", "u three"]
        unnumbered = [codex("session_meta"), said("user", "one"), said("user", "late")]
        self.rollout(tmp_path, PARENT, *unnumbered)
        offset = sum(len(json.dumps(line)) + 1 for line in unnumbered[:2])
        base = {"thread_id": PARENT, "end_byte_offset": offset}
        self.rollout(tmp_path, CHILD, codex("session_meta", history_base=base), said("user", "three"))
        assert told(read_message_file("codex", child)) == ["u one", "s <forked>", "u three"]

    def test_a_parent_that_is_not_here_is_told(self, tmp_path: Path) -> None:
        """The fork's own messages are shown all the same; an id that would be a pattern finds nothing."""
        for thread in (PARENT, "*", "../../x"):
            meta = codex("session_meta", history_base={"thread_id": thread, "end_ordinal_exclusive": 3})
            child = self.rollout(tmp_path, CHILD, meta, said("user", "three"))
            assert told(read_message_file("codex", child)) == ["s <incomplete>", "u three"]

    def test_a_parent_may_be_archived_and_compressed(self, tmp_path: Path) -> None:
        """It is found where the CLI has put it; what lies beside it under a name like it is not taken."""
        lines = b"".join(
            json.dumps(line).encode() + b"\n" for line in (codex("session_meta", 0), said("user", "one", 1))
        )
        name = f"rollout-2026-11-30T10-00-00-{PARENT}.jsonl"
        write(tmp_path / "archived_sessions" / f"{name}.zst", zstandard.compress(lines))
        write(tmp_path / "archived_sessions" / f"{name}.bak", b"{}\n")
        base = {"thread_id": PARENT, "end_ordinal_exclusive": 3}
        child = self.rollout(tmp_path, CHILD, codex("session_meta", 3, history_base=base), said("user", "two", 4))
        assert told(read_message_file("codex", child)) == ["u one", "s <forked>", "u two"]

    def test_a_circle_of_forks_ends(self, tmp_path: Path) -> None:
        """A rollout that is said to go on from itself is read once."""
        base = {"thread_id": CHILD, "end_ordinal_exclusive": 9}
        child = self.rollout(tmp_path, CHILD, codex("session_meta", 0, history_base=base), said("user", "one", 1))
        assert "u one" in told(read_message_file("codex", child))

    def test_turns_that_were_taken_back_are_left_out(self, tmp_path: Path) -> None:
        """A mark stands where they were; what the CLI adds is no turn."""
        lines = [
            codex("session_meta"),
            said("user", "<environment_context>x</environment_context>"),
            said("user", "one"),
            said("assistant", "first"),
            said("user", "two"),
            said("assistant", "second"),
            codex("event_msg", type="thread_rolled_back", num_turns=1),
            said("user", "three"),
        ]
        expected = ["u one", "a first", "s <undone>", "u three"]
        assert told(read_message_file("codex", self.rollout(tmp_path, CHILD, *lines))) == expected

    def test_a_compaction_has_its_summary(self, tmp_path: Path) -> None:
        """What was before it is shown."""
        lines = [said("user", "one"), codex("compacted", message="all in all"), said("user", "two")]
        expected = ["u one", "s <compacted> all in all", "u two"]
        assert told(read_message_file("codex", self.rollout(tmp_path, CHILD, *lines))) == expected

    @pytest.mark.parametrize(
        ("output", "text", "is_error"),
        [
            ("plain", "plain", False),
            ('{"output":"bad","metadata":{"exit_code":2}}', "bad", True),
            (
                "Chunk ID: 1\nProcess exited with code 3\nOutput:\nx",
                "Chunk ID: 1\nProcess exited with code 3\nOutput:\nx",
                True,
            ),
            ({"content": "no", "success": False}, "no", True),
            ([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:"}], "a", False),
            ('{"output": broken', '{"output": broken', False),
        ],
    )
    def test_results_of_all_versions(self, tmp_path: Path, output: object, text: str, *, is_error: bool) -> None:
        """Text, JSON in text, objects and lists: the text is found, and whether it failed."""
        line = codex("response_item", type="function_call_output", call_id="c", output=output)
        (message,) = read_message_file("codex", self.rollout(tmp_path, CHILD, line))
        assert message.parts[0] == ToolResultPart(text, is_error, "c")


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


def event(kind: str, **data: Any) -> dict[str, Any]:
    """Return an event of Copilot."""
    return {"type": kind, "timestamp": "2026-11-30T10:00:00.000Z", "data": data}


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
