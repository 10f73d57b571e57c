"""Messages of transcripts that are branched, forked, taken back or damaged: Claude Code and Codex."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from host_client import ToolResultPart, read_message_file
from support.message_text import claude, codex, said, told, write

if TYPE_CHECKING:
    from pathlib import Path

CHILD = "01a22be9-6e94-7931-90f0-7b34fd12f652"
PARENT = "01a22be9-6bd0-74b1-8e68-8ec8c11634b0"


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
