"""The `outpost` command with the formats that are transcripts: every command, its document and its words."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents.claude import project_key
from host_client.cli.__main__ import main
from host_client.cli.options import limits
from host_client.stores.transcript_kept import TRANSCRIPT_LIMITS
from sandbox_api.limits import Limits
from support.conversation import files_below
from support.recorded import DATA

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., dict[str, Any]]

RECORDED = "/home/dev/demo-app"
CLAUDE, CLAUDE_ID = "claude/2.1.332/subagent", "f1000000-0000-4000-8000-000000000003"
CODEX, CODEX_ID = "codex/0.171.0/fork", "01a22be9-6e94-7931-90f0-7b34fd12f652"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command with `--json`; check its exit status and return its document."""

    def run(*words: object, status: int = 0) -> dict[str, Any]:
        assert main([*map(str, words), "--json"]) == status, capsys.readouterr()
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return run


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run the command for people and return what it printed on both streams."""

    def told(*words: object) -> tuple[str, str]:
        assert main([*map(str, words)]) == 0, capsys.readouterr()
        return capsys.readouterr()

    return told


class Places:
    """Three sandboxes of this machine, the first with a recorded home, and a folder that keeps copies."""

    def __init__(self, folder: Path, recorded: str) -> None:
        self.kept, self.homes = folder / "kept", [folder / name for name in "abc"]
        shutil.copytree(DATA / recorded / "home", self.homes[0], copy_function=shutil.copyfile)
        for path in [self.homes[0], *self.homes[0].rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.works = [folder / f"work {name}" for name in "abc"]
        for made in (self.kept, *self.works, *self.homes[1:]):
            made.mkdir()
        self.a, self.b, self.c = (f"local:{home},{work}" for home, work in zip(self.homes, self.works, strict=True))
        self.keep = ("--home", self.kept)


@pytest.mark.parametrize(
    ("recorded", "wanted", "files_count"), [(CLAUDE, CLAUDE_ID, 3), (CODEX, CODEX_ID, 2)], ids=["claude", "codex"]
)
def test_a_conversation_moves_by_command(
    tmp_path: Path, run: Run, recorded: str, wanted: str, files_count: int
) -> None:
    """Listed, captured, restored elsewhere and back: the documents say what and where, and how to resume."""
    name, places = recorded.partition("/")[0], Places(tmp_path, recorded)
    listed = {row["id"]: row for row in run("sessions", places.a, name)["sessions"]}
    row = listed[wanted]
    assert row["complete"]
    assert row["bytes"] > 1000
    captured = run("capture", places.a, name, wanted, *places.keep)
    assert captured["source"] == row["path"]
    assert captured["files"] == files_count
    assert captured["path"].startswith(str(places.kept / f".{name}"))
    assert captured["notices"] == []
    restored = run("restore", places.b, name, wanted, *places.keep)
    assert restored["target"].startswith(str(places.homes[1] / f".{name}"))
    assert restored["files"] == files_count
    assert wanted in restored["resume"]
    again = run("restore", places.b, name, wanted, *places.keep)
    assert (again["unchanged"], again["digest"]) == (True, restored["digest"])
    text = "".join(data.decode() for data in files_below(places.homes[1]).values() if b'"cwd"' in data)
    assert f'"cwd":"{places.works[1]}"' in text
    assert f'"cwd":"{RECORDED}"' not in text
    run("capture", places.b, name, wanted, "--home", tmp_path / "c")
    assert run("sessions", places.c, name)["sessions"][0]["id"] in listed


def test_people_are_told_how_to_resume(tmp_path: Path, told: Callable[..., tuple[str, str]]) -> None:
    """The texts of each command name the conversation, its place and its command."""
    places = Places(tmp_path, CLAUDE)
    assert CLAUDE_ID in told("sessions", places.a, "claude")[0]
    assert "captured 3 files" in told("capture", places.a, "claude", CLAUDE_ID, *places.keep)[0]
    text = told("restore", places.b, "claude", CLAUDE_ID, *places.keep)[0]
    key = project_key(str(places.works[1]))
    assert f"target   {places.homes[1]}/.claude/projects/{key}/{CLAUDE_ID}.jsonl" in text
    assert f"resume   cd '{places.works[1]}' && claude --resume {CLAUDE_ID}" in text


def test_what_is_unusual_is_told(tmp_path: Path, run: Run, told: Callable[..., tuple[str, str]]) -> None:
    """Notices stand in the documents with reason, path and offset, and people read them as notes."""
    places = Places(tmp_path, CLAUDE)
    (transcript,) = places.homes[0].rglob(f"{CLAUDE_ID}.jsonl")
    with transcript.open("ab") as file:
        file.write(b'{"torn')
    captured = run("capture", places.a, "claude", CLAUDE_ID, *places.keep)
    (notice,) = captured["notices"]
    assert notice["reason"] == "torn_tail"
    assert captured["path"].endswith(notice["path"])
    assert Path(captured["path"]).read_bytes()[notice["offset"] :] == b'{"torn'
    note = told("restore", places.b, "claude", CLAUDE_ID, *places.keep)[1]
    assert "note: torn_tail: " in note
    document = run("relay", places.b, "claude", CLAUDE_ID, places.c)
    assert [row["state"] for row in document["targets"]] == ["restored"]
    assert document["targets"][0]["notices"] == []


def test_a_transcript_in_which_nothing_was_said(tmp_path: Path, run: Run) -> None:
    """It is refused by capture, restore and relay, unless they are asked for it."""
    places = Places(tmp_path, CLAUDE)
    (transcript,) = places.homes[0].rglob(f"{CLAUDE_ID}.jsonl")
    transcript.write_bytes(b'{"type":"mode"}\n')
    refused = run("capture", places.a, "claude", CLAUDE_ID, *places.keep, status=10)
    assert refused["error"]["reason"] == "empty"
    assert run("capture", places.a, "claude", CLAUDE_ID, *places.keep, "--allow-empty")["files"] == 3
    assert run("restore", places.b, "claude", CLAUDE_ID, *places.keep, status=10)["error"]["reason"] == "empty"
    assert run("restore", places.b, "claude", CLAUDE_ID, *places.keep, "--allow-empty")["files"] == 3
    assert run("relay", places.a, "claude", CLAUDE_ID, places.c, status=10)["error"]["reason"] == "empty"
    (row,) = run("relay", places.a, "claude", CLAUDE_ID, places.c, "--allow-empty")["targets"]
    assert row["state"] == "restored"


def test_a_limit_that_is_not_given_stays_that_of_the_format() -> None:
    """Who allows more files does not thereby forbid a transcript of 100 MiB."""
    assert limits(None, 7, "codex") == replace(TRANSCRIPT_LIMITS, max_files=7)
    assert limits(7, None, "claude") == replace(TRANSCRIPT_LIMITS, max_bytes=7)
    assert limits(7, None, "kimi") == limits(7, None) == Limits(max_bytes=7)
    assert limits(None, None, "claude") is None


def test_what_was_replaced_is_listed_undone_and_pruned(tmp_path: Path, run: Run) -> None:
    """Recovery knows the transcript by its path; an undo puts it back with all that belongs to it."""
    places = Places(tmp_path, CLAUDE)
    run("capture", places.a, "claude", CLAUDE_ID, *places.keep)
    target = run("restore", places.b, "claude", CLAUDE_ID, *places.keep)["target"]
    (placed,) = places.homes[1].rglob(f"{CLAUDE_ID}.jsonl")
    placed.write_bytes(b'{"type":"user"}\n')
    replaced = run("restore", places.b, "claude", CLAUDE_ID, *places.keep)["recovery"]
    (entry,) = run("recovery", "list", places.b, "claude")["entries"]
    assert (entry["name"], entry["id"], entry["session"]) == (replaced, CLAUDE_ID, target)
    undone = run("recovery", "undo", places.b, "claude", CLAUDE_ID)
    assert undone["target"] == target
    assert placed.read_bytes() == b'{"type":"user"}\n'
    assert run("recovery", "prune", places.b, "claude", "--keep", 0)["removed"] == [undone["recovery"]]


def test_many_targets_get_it_at_once(tmp_path: Path, run: Run) -> None:
    """A relay leaves no copy on this host; a target that knows the id elsewhere fails alone."""
    places = Places(tmp_path, CODEX)
    shutil.copytree(places.homes[0] / ".codex/sessions", places.homes[1] / ".codex/archived_sessions")
    document = run("relay", places.a, "codex", CODEX_ID, places.b, places.c, status=13)
    assert document["targets"][0]["error"]["reason"] == "other_bucket"
    assert document["targets"][1]["state"] == "restored"
    assert files_below(places.kept) == {}


def test_doctor_looks_at_transcripts_too(tmp_path: Path, run: Run) -> None:
    """Without formats named it looks at all of them; a home that cannot be written to is a problem."""
    places = Places(tmp_path, CLAUDE)
    findings = run("doctor", places.a)["findings"]
    assert {"claude", "codex", "copilot", "kimi"} <= {finding["format"] for finding in findings}
    assert all(finding["level"] == "ok" for finding in findings), findings
    (places.homes[2] / ".claude").symlink_to(places.homes[0] / ".claude")
    problems = run("doctor", places.c, "claude", status=1)["findings"]
    assert [finding["format"] for finding in problems if finding["level"] == "problem"] == ["claude"]
