"""`outpost follow`: one line for what happened, one document a line for scripts, and an interrupt as its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from host_client import ConversationContext, builtin_format, sync
from host_client.agents.claude import project_key
from host_client.cli.command import follow as command
from host_client.cli.output import Output
from host_client.stores.contract import FollowUpdate

if TYPE_CHECKING:
    from collections.abc import Iterator

ID = "f1000000-0000-4000-8000-000000000001"


class Hosts:
    """A sandbox with a Claude Code conversation, and a folder that keeps copies."""

    def __init__(self, directory: Path) -> None:
        self.home, self.workspace, self.kept = (directory / name for name in ("home", "workspace", "kept"))
        self.source = self.home / ".claude/projects" / project_key(str(self.workspace)) / f"{ID}.jsonl"
        for path in (self.workspace, self.kept, self.source.parent):
            path.mkdir(parents=True)
        self.append()

    @property
    def target(self) -> str:
        """What serves the sandbox."""
        return f"local:{self.home},{self.workspace}"

    def append(self) -> None:
        """Let the CLI write a line."""
        with self.source.open("a") as file:
            file.write(json.dumps({"type": "user", "cwd": str(self.workspace)}) + "\n")


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """Both sides."""
    return Hosts(tmp_path)


def started(hosts: Hosts, *options: str) -> subprocess.Popen[str]:
    """Start the command."""
    words = [sys.executable, "-m", "host_client.cli", "follow", hosts.target, "claude", ID, "--home", str(hosts.kept)]
    return subprocess.Popen(
        [*words, "--interval", "0.02", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_lines_for_people(hosts: Hosts) -> None:
    """The capture, growth, and all in all at the end, which an interrupt is: it exits with 0."""
    with started(hosts) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("captured 1 files, ")
        hosts.append()
        assert process.stdout.readline().startswith("added 1 lines, ")
        process.send_signal(signal.SIGINT)
        rest, errors = process.stdout.read(), process.stderr.read()
    assert (process.returncode, errors) == (0, "")
    assert rest.startswith("followed: 1 lines, ")
    assert rest.endswith(", 1 captures\n")


def test_documents_for_scripts(hosts: Hosts) -> None:
    """Each line is a document that says what it is; the manual names every key."""
    with started(hosts, "--json") as process:
        assert process.stdout is not None
        captured = json.loads(process.stdout.readline())
        hosts.append()
        appended = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        ended = json.loads(process.stdout.read())
    assert process.returncode == 0
    assert (captured["event"], captured["id"], captured["files"]) == ("capture", ID, 1)
    copy = Path(captured["path"])
    assert appended == {
        "event": "append",
        "path": str(copy),
        "appended_bytes": copy.stat().st_size // 2,
        "lines": 1,
        "bytes": copy.stat().st_size,
    }
    assert ended == {"event": "end", "captures": 1, "appended_bytes": appended["appended_bytes"], "lines": 1}
    manual = (Path(__file__).parents[2] / "docs/outpost.md").read_text()
    section = manual.partition("### follow ")[2].partition("\n### ")[0]
    for key in {*appended, *ended}:
        assert f"`{key}`" in section, key


def test_failure_is_told_as_that_of_any_command(hosts: Hosts) -> None:
    """What cannot be begun fails with its own status; an error is a document, too."""
    hosts.source.unlink()
    with started(hosts, "--json") as process:
        out, _ = process.communicate()
    assert process.returncode == 10
    assert json.loads(out)["error"]["reason"] == "not_found"


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def updates(*line_counts: int) -> Iterator[FollowUpdate]:
    """Return updates of a file that grew."""
    for count in line_counts:
        yield FollowUpdate(path=Path("/x"), appended_bytes=10 * count, lines_count=count, size_bytes=1000)


def test_growth_is_told_once_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """What grew within a second is told together, and what is left at the end."""
    clock = Clock()
    shown = command._Shown(Output(as_json=False), clock)
    for update in updates(1, 2, 3):
        shown.show(update)
    clock.now = 1.0
    for update in updates(4, 5):
        shown.show(update)
    shown.finish()
    assert capsys.readouterr().out.splitlines() == [
        "added 1 lines, 10 B",
        "added 9 lines, 90 B",
        "added 5 lines, 50 B",
        "followed: 15 lines, 150 B, 0 captures",
    ]


def test_blocking_iterator(hosts: Hosts) -> None:
    """Updates come to a program without a loop; it may stop where it likes, and the conversation is free again."""
    with sync.connect(hosts.target) as sandbox:
        store = sync.Conversations(builtin_format("claude"))
        context: ConversationContext = sandbox.context(conversation_home=hosts.kept, durability="none")
        for turn in range(2):
            updates = store.follow(ID, context, interval_seconds=0.02, patience_seconds=5.0)
            first = next(updates)
            assert first.record is not None
            assert first.record.unchanged == bool(turn)
            hosts.append()
            assert next(updates).lines_count == 1
            updates.close()
        assert os.listdir(hosts.kept / ".outpost/conversations/claude") == [f"{ID}.json"]  # noqa: PTH208 - names are enough
