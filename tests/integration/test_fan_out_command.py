"""`outpost fan-out`: a kept file into many sandboxes, each with its outcome; nothing about the file is guessed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA = Path(__file__).parents[1] / "data"
RECORDED = {"copilot": "copilot/1.0.102/tool", "claude": "claude/2.1.332/multiturn", "codex": "codex/0.171.0/multiturn"}


def outpost(*arguments: str, status: int = 0, given: str = "", home: str = "/nonexistent") -> tuple[str, str]:
    """Run the command, check its exit status, and return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-m", "host_client.cli", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": home},
        input=given,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == status, f"{arguments}: {ended.stdout}{ended.stderr}"
    assert "Traceback" not in ended.stderr
    return ended.stdout, ended.stderr


def document(*arguments: str, status: int = 0, given: str = "") -> dict[str, Any]:
    """Run the command with `--json` and return its one document."""
    got: dict[str, Any] = json.loads(outpost(*arguments, "--json", status=status, given=given)[0])
    return got


@dataclass(frozen=True)
class Kept:
    """A file that keeps a conversation, and homes of sandboxes that have nothing."""

    file: str
    conversation_id: str
    homes: Sequence[Path]

    @property
    def targets(self) -> list[str]:
        """The targets."""
        return [f"local:{home}" for home in self.homes]

    def has(self, home: Path) -> bool:
        """Tell whether a sandbox has a file of the conversation."""
        return any(self.conversation_id in str(path) for path in home.rglob("*") if path.is_file())


def _kept(folder: Path, format_name: str) -> Kept:
    recorded = DATA / RECORDED[format_name]
    home = folder / "host"
    shutil.copytree(recorded / "home", home, copy_function=shutil.copyfile)
    homes = [folder / f"sandbox-{number}" for number in range(3)]
    for one in homes:
        one.mkdir()
    conversation_id = json.loads((recorded / "expected.json").read_text())["session_id"]
    if format_name == "copilot":
        found = document("capture", f"local:{home}", "copilot", conversation_id, "--home", str(folder))
        return Kept(found["path"], conversation_id, homes)
    (main,) = (path for path in home.rglob(f"*{conversation_id}.jsonl") if "subagents" not in path.parts)
    return Kept(str(main), conversation_id, homes)


@pytest.fixture
def copilot(tmp_path: Path) -> Kept:
    """A bundle."""
    return _kept(tmp_path, "copilot")


@pytest.mark.parametrize("format_name", ["copilot", "claude", "codex"])
def test_a_file_is_restored_at_every_target(tmp_path: Path, format_name: str) -> None:
    """Format and conversation are those of the file; a dead target is told and the others are restored."""
    kept = _kept(tmp_path, format_name)
    listed = tmp_path / "targets"
    dead = f"unix:{tmp_path}/none.sock"
    first, second, third = kept.targets
    listed.write_text(f"# all of them\n{first}\n\n  {dead}  \n{second}\n")
    chosen = ("fan-out", kept.file, "--targets", str(listed), "--target", third, "--retries", "1")
    got = document(*chosen, status=17)
    assert (got["format"], got["id"]) == (format_name, kept.conversation_id)
    assert [row["target"] for row in got["targets"]] == [first, dead, second, third]
    assert [row.get("state") for row in got["targets"]] == ["restored", None, "restored", "restored"]
    assert got["targets"][1]["error"]["reason"] == "unreachable"
    assert [row["attempts"] for row in got["targets"]] == [1, 2, 1, 1]
    assert all(map(kept.has, kept.homes))
    again = document("fan-out", kept.file, "--target", first, "--format", format_name, "--id", kept.conversation_id)
    assert again["targets"][0]["state"] == "unchanged"


def test_people_are_told_line_by_line(copilot: Kept) -> None:
    """The list comes from standard input; results are in the order given, failures on standard error as they come."""
    first, second, _ = copilot.targets
    given = f"{first}\nnowhere\n{second}\n"
    printed, told = outpost("fan-out", copilot.file, "--targets", "-", "--retries", "0", given=given, status=12)
    assert [line.split(":")[0] for line in printed.splitlines() if line[0] != " "] == [
        "restored local",
        "FAILED nowhere",
        "restored local",
    ]
    assert "FAILED nowhere: configuration/invalid_target" in told


def test_scripts_are_told_by_records(copilot: Kept) -> None:
    """With --json standard error has a record of every target that ended, and no other text."""
    _, told = outpost(
        "fan-out", copilot.file, "--target", copilot.targets[0], "--target", "nowhere", "--json", status=12
    )
    records = [json.loads(line) for line in told.splitlines()]
    ended = {record["target"]: record["state"] for record in records if record["target"]}
    assert ended == {copilot.targets[0]: "restored", "nowhere": "failed"}
    last = records[-1]
    assert (last["targets"], last["targets_total"], last["failed"], last["share"]) == (2, 2, 1, 1.0)


@pytest.mark.parametrize(
    ("options", "given", "told"),
    [
        ((), "", "there are no targets"),
        (("--targets", "-"), "# nothing\n\n", "there are no targets"),
        (("--targets", "-", "--target", "local:{home}/"), "local:{home}\n", "listed more than once"),
        (("--target", "nowhere", "--format", "kimi"), "", "bundle of the format copilot"),
        (("--target", "nowhere", "--id", "other"), "", "not other"),
    ],
)
def test_what_is_unclear_is_refused(copilot: Kept, options: Sequence[str], given: str, told: str) -> None:
    """No target, one that is there twice in whatever spelling, another format or conversation: nothing is begun."""
    home = str(copilot.homes[0])
    words = [word.format(home=home) for word in options]
    _, said = outpost("fan-out", copilot.file, *words, given=given.format(home=home), status=12)
    assert told in said
    assert not copilot.has(copilot.homes[0])


def test_a_transcript_that_lies_nowhere_is_refused(tmp_path: Path) -> None:
    """Of a copy outside of a CLI's home nobody knows what it is: its format is not guessed by its lines."""
    kept = _kept(tmp_path, "claude")
    copy = tmp_path / "copy.jsonl"
    shutil.copyfile(kept.file, copy)
    for given in ((), ("--format", "claude")):
        _, said = outpost("fan-out", str(copy), "--target", kept.targets[0], *given, status=12)
        assert said.startswith("outpost: configuration/invalid_argument")
    assert not kept.has(kept.homes[0])


def test_the_other_file_of_a_conversation_is_no_guess(tmp_path: Path) -> None:
    """Where the host has two transcripts of one id, the command says so."""
    kept = _kept(tmp_path, "claude")
    other = Path(kept.file).parents[1] / "-elsewhere" / Path(kept.file).name
    other.parent.mkdir()
    shutil.copyfile(kept.file, other)
    _, said = outpost("fan-out", kept.file, "--target", kept.targets[0], status=10)
    assert said.startswith("outpost: session/ambiguous")
