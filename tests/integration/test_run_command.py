"""`outpost run`: one turn of a built-in agent whose program is a script here, on a pipe, a terminal and as documents.

The script prints lines as Claude Code 2.1.332 does and keeps a transcript where that would.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents.claude import project_key

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """#!{python}
import json, os, pathlib, sys, time

words, said = sys.argv[1:], sys.stdin.read()

def option(name):
    return words[words.index(name) + 1] if name in words else ""

def tell(**fields):
    print(json.dumps(fields), flush=True)

own = option("--session-id") or option("--resume")
folder = pathlib.Path(os.environ["HOME"], ".claude/projects", os.environ["PROJECT_KEY"])
old = folder / (option("--resume") + ".jsonl")
before = old.read_text() if option("--resume") else ""
folder.mkdir(parents=True, exist_ok=True)
with open(folder / (own + ".jsonl"), "w") as file:
    line = dict(type="user", cwd=os.getcwd(), sessionId=own, message=dict(role="user", content=said))
    file.write(before + json.dumps(line) + "\\n")
tell(type="system", subtype="init", session_id=own)
def answered(*content):
    tell(type="assistant", message=dict(content=content), parent_tool_use_id=None)
answered(dict(type="text", text="I look.\\x1b[2J"))
answered(dict(type="tool_use", id="t1", name="Bash", input=dict(command="ls")))
tell(type="user", message=dict(content=[dict(type="tool_result", tool_use_id="t1", content="a.txt")]))
if said == "hang":
    print("waiting", file=sys.stderr, flush=True)
    time.sleep(600)
while said == "talk on":
    answered(dict(type="text", text="and so on\\n" * 1000))
if said == "fail and hide":
    os.rename(folder.parents[1], folder.parents[1].with_name("moved"))
    folder.parents[1].symlink_to("moved")
if said.startswith("fail"):
    print("out of cheese\\n\\x1b[1mreally", file=sys.stderr)
    sys.exit(3)
turns = (before + json.dumps(line)).count("sessionId")
answer = "turn %d: %s" % (turns, said)
answered(dict(type="text", text=answer))
usage = dict(input_tokens=7, output_tokens=2, cache_read_input_tokens=0, cache_creation_input_tokens=0)
tell(type="result", subtype="success", is_error=False, result=answer, session_id=own, usage=usage)
"""


@dataclass
class Hosts:
    """Two sandboxes with the program, a repository, and a folder that keeps conversations."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("a", "b", "w", "kept", "repository", "bin"):
            (self.folder / name).mkdir()
        program = self.folder / "bin/claude"
        program.write_text(PROGRAM.replace("{python}", sys.executable))
        program.chmod(0o755)

    @property
    def home(self) -> Path:
        """Keeps conversations."""
        return self.folder / "kept"

    def words(self, *options: str, sandbox: str = "a") -> list[str]:
        """Return the command, without what is said."""
        workspace = self.folder / "w"
        keep = ["--home", str(self.home), "--repository", str(self.folder / "repository")]
        variables = [f"PATH={self.folder / 'bin'}:{os.environ['PATH']}", f"PROJECT_KEY={project_key(str(workspace))}"]
        target = f"local:{self.folder / sandbox},{workspace}"
        given = [word for variable in variables for word in ("--variable", variable)]
        return [sys.executable, "-m", "host_client.cli", "run", target, "claude", *keep, *given, *options]

    def run(
        self, *options: str, said: str | bytes | None = None, sandbox: str = "a", status: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run a turn to its end."""
        ended = subprocess.run(
            self.words(*options, sandbox=sandbox),
            input=said.encode() if isinstance(said, str) else said,
            stdin=subprocess.DEVNULL if said is None else None,
            capture_output=True,
            timeout=60,
            check=False,
        )
        out, errors = ended.stdout.decode(), ended.stderr.decode()
        assert ended.returncode == status, f"{out}{errors}"
        assert "Traceback" not in errors
        return subprocess.CompletedProcess(ended.args, ended.returncode, out, errors)

    def documents(self, *options: str, sandbox: str = "a", status: int = 0) -> list[dict[str, Any]]:
        """Run a turn and return its documents."""
        ended = self.run("--json", *options, sandbox=sandbox, status=status)
        return [json.loads(line) for line in ended.stdout.splitlines()]

    def transcript(self, conversation_id: str) -> list[dict[str, Any]]:
        """Read the kept conversation."""
        (path,) = self.home.glob(f".claude/projects/*/{conversation_id}.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """Both sides."""
    return Hosts(tmp_path)


def test_in_a_pipe_only_what_the_agent_says_is_output(hosts: Hosts) -> None:
    """Text on standard output, the rest on standard error; the copy is kept, and the line that is shown goes on."""
    ended = hosts.run("hello")
    assert ended.stdout == "I look.\\x1b[2J\n\nturn 1: hello\n"
    assert "\x1b" not in ended.stderr
    lines = ended.stderr.splitlines()
    conversation_id = lines[0].removeprefix("conversation ")
    assert lines[1:3] == ['tool Bash: {"command": "ls"}', "tool Bash completed: a.txt"]
    assert re.fullmatch(r"finished in [\d.]+ s, tokens 7 in, 2 out", lines[3])
    assert lines[4].startswith("kept     ")
    assert lines[5].endswith(f" --resume {conversation_id} TEXT")
    (line,) = hosts.transcript(conversation_id)
    assert (line["cwd"], line["message"]["content"]) == (str(hosts.folder / "repository"), "hello")


def test_in_one_pipe_each_has_its_lines(hosts: Hosts) -> None:
    """As with `2>&1`: what the agent does begins a line of its own."""
    words = hosts.words("hello")
    ended = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    lines = ended.stdout.decode().splitlines()
    assert lines[1:4] == ["I look.\\x1b[2J", 'tool Bash: {"command": "ls"}', "tool Bash completed: a.txt"]


def test_a_conversation_goes_on_in_another_sandbox(hosts: Hosts) -> None:
    """The words of the result resume it where it never was; a fork leaves it as it is."""
    first = hosts.documents("one")[-1]
    assert first["resume"][:3] == ["outpost", "run", f"local:{hosts.folder / 'a'},{hosts.folder / 'w'}"]
    conversation_id = first["conversation"]
    assert first["resume"][-2:] == ["--resume", conversation_id]
    second = hosts.documents("--resume", conversation_id, "two", sandbox="b")[-1]
    assert (second["text"], second["conversation"]) == ("turn 2: two", conversation_id)
    third = hosts.documents("--fork", conversation_id, "three", sandbox="a")[-1]
    assert third["text"] == "turn 3: three"
    assert third["conversation"] != conversation_id
    assert [line["message"]["content"] for line in hosts.transcript(conversation_id)] == ["one", "two"]


def test_documents_for_scripts(hosts: Hosts) -> None:
    """Each line is an event, the last one the result; the manual names its keys."""
    documents = hosts.documents("hello")
    kinds = ["conversation", "text", "tool", "tool", "text", "usage", "result", "finished", "turn"]
    assert [document["kind"] for document in documents] == kinds
    assert documents[1]["text"] == "I look.\x1b[2J"
    result = documents[-1]
    assert (result["agent"], result["text"], result["events"]) == ("claude", "turn 1: hello", 8)
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (7, 2)
    assert result["record"]["id"] == result["conversation"] == documents[0]["id"]
    manual = (Path(__file__).parents[2] / "docs/outpost.md").read_text()
    section = manual.partition("### run ")[2].partition("\n### ")[0]
    for key in {*result, *result["usage"]}:
        assert f"`{key}`" in section, key


def test_a_failed_turn_is_kept(hosts: Hosts) -> None:
    """It has the exit status of its family, says what the agent complained about, and can go on."""
    ended = hosts.run("fail", status=11)
    assert ended.stdout == "I look.\\x1b[2J\n"
    assert "outpost: process/failed: " in ended.stderr
    assert "  it said: out of cheese\n           \\x1b[1mreally\n" in ended.stderr
    *_, kept, failure = hosts.documents("fail", status=11)
    assert failure["error"]["reason"] == "failed"
    assert failure["error"]["facts"]["conversation"] == kept["record"]["id"]
    assert hosts.documents(*kept["resume"][-2:], "on")[-1]["text"] == "turn 2: on"


def test_a_turn_that_is_too_long_says_what_it_complained_of(hosts: Hosts) -> None:
    """Which may tell what it waited for."""
    ended = hosts.run("--idle-seconds", "1", "hang", status=16)
    assert "outpost: timeout/idle: " in ended.stderr
    assert "  it said: waiting\n" in ended.stderr


def test_two_failures_are_both_told(hosts: Hosts) -> None:
    """When a failed turn cannot be captured either, its own failure comes first and decides the status."""
    failure = hosts.documents("fail and hide", status=11)[-1]
    assert failure["error"]["reason"] == "failed"
    assert [other["reason"] for other in failure["also"]] == ["root_symlink"]


def test_a_conversation_that_is_not_kept_is_told_of(hosts: Hosts) -> None:
    """And so is the command that brings it as soon as that can be done."""
    run = hosts.run("fail and hide", status=11)
    lines = run.stderr.splitlines()
    assert [line.split(": ")[1] for line in lines if line.startswith("outpost: ")] == [
        "process/failed",
        "session/root_symlink",
    ]
    (hosts.folder / "a/.claude").unlink()
    (hosts.folder / "a/moved").rename(hosts.folder / "a/.claude")
    words = next(line for line in lines if line.startswith("capture ")).split()[1:]
    conversation_id = words[4]
    assert f"not kept {conversation_id}, which is in the sandbox" in lines
    subprocess.run([sys.executable, "-m", "host_client.cli", *words[1:]], check=True, capture_output=True)
    assert [line["message"]["content"] for line in hosts.transcript(conversation_id)] == ["fail and hide"]


def test_a_conversation_that_is_not_kept_is_a_document(hosts: Hosts) -> None:
    """Its id and the words of the command, before the failure."""
    left = hosts.documents("fail and hide", status=11)[-2]
    assert left["kind"] == "left"
    assert left["capture"][:2] == ["outpost", "capture"]
    assert left["capture"][4] == left["conversation"]


def test_an_interrupt_ends_the_agent_and_keeps_the_conversation(hosts: Hosts) -> None:
    """Exit status 130, and the conversation is on this host."""
    with subprocess.Popen(hosts.words("--json", "hang"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert json.loads(lines[-1])["state"] == "completed"
        process.send_signal(signal.SIGINT)
        rest, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == 130
    kept = json.loads(rest.splitlines()[-1])
    assert kept["kind"] == "kept"
    assert [line["message"]["content"] for line in hosts.transcript(kept["record"]["id"])] == ["hang"]
    assert errors == b"outpost: interrupted; nothing was left half done\n"


def test_a_reader_that_goes_away_ends_the_agent(hosts: Hosts) -> None:
    """As in `| head`: it ends without a word, and the conversation is kept."""
    with subprocess.Popen(hosts.words("talk on"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert process.returncode == 1
    conversation_id = errors.splitlines()[0].removeprefix("conversation ")
    assert [line["message"]["content"] for line in hosts.transcript(conversation_id)] == ["talk on"]
    assert "outpost:" not in errors


def test_time_limits_end_the_agent(hosts: Hosts) -> None:
    """A silent agent is ended with the status of its family, and its conversation kept."""
    *_, kept, failure = hosts.documents("hang", "--idle-seconds", "0.5", status=16)
    assert (failure["error"]["reason"], kept["kind"]) == ("idle", "kept")


@pytest.mark.parametrize("word", [[], ["-"]], ids=["missing", "dash"])
def test_what_is_said_may_come_through_a_pipe(hosts: Hosts, word: list[str]) -> None:
    """Standard input is taken whole where TEXT is missing or a dash."""
    assert "turn 1: two\nlines é" in hosts.run(*word, said="two\nlines é").stdout


@pytest.mark.parametrize(
    ("options", "said", "complaint"),
    [
        ([], b"\xff", "standard input is not UTF-8, at byte 0"),
        ([], b" \n", "TEXT is empty"),
        (["--resume", "a", "--fork", "b", "text"], b"", "--resume and --fork exclude each other"),
    ],
)
def test_a_wrong_command_line_starts_nothing(hosts: Hosts, options: list[str], said: bytes, complaint: str) -> None:
    """Exit status 2, and neither sandbox nor host was touched."""
    assert complaint in hosts.run(*options, said=said, status=2).stderr
    assert [*hosts.home.iterdir(), *(hosts.folder / "a").iterdir()] == []


def test_an_unknown_agent_is_refused(hosts: Hosts) -> None:
    """The hint names those that there are."""
    words = hosts.words("hello")
    words[words.index("claude")] = "clod"
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 12
    assert "configuration/unknown_agent" in ended.stderr
    assert "claude, codex, copilot, kimi" in ended.stderr


def test_a_resume_from_nothing_is_refused(hosts: Hosts) -> None:
    """An id that this host has not got starts no agent."""
    (failure,) = hosts.documents("--resume", "no-such-id", "hello", status=10)
    assert failure["error"]["reason"] == "not_found"
    assert list((hosts.folder / "a").iterdir()) == []


def test_secrets_are_not_kept(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rule finds is replaced before it is on this host."""
    monkeypatch.setenv("TOKEN", "s3cr3t-word")
    result = hosts.documents("--redact-env", "TOKEN", "say s3cr3t-word")[-1]
    assert result["record"]["redactions"] == {"TOKEN": 1}
    (line,) = hosts.transcript(result["conversation"])
    assert "s3cr3t" not in json.dumps(line)


@contextmanager
def on_a_terminal(words: list[str]) -> Iterator[int]:
    """Run a command on a terminal of its own; give the descriptor of the other end."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True):
        os.close(theirs)
        try:
            yield ours
        finally:
            os.close(ours)


def read_all(descriptor: int) -> bytes:
    """Read a terminal until its last process has closed it."""
    read = b""
    while select.select([descriptor], [], [], 60)[0]:
        try:
            piece = os.read(descriptor, 1 << 16)
        except OSError:  # what Linux says at the end
            return read
        read += piece
    raise AssertionError(read)


def test_on_a_terminal_nothing_of_the_agent_is_obeyed(hosts: Hosts) -> None:
    """Colours are ours; the agent's own sequences are shown as escapes, and a tool begins a line."""
    with on_a_terminal(hosts.words("hello")) as descriptor:
        shown = read_all(descriptor)
    assert b"\x1b[2J" not in shown
    plain = re.sub(rb"\x1b\[[\d;]*m", b"", shown).decode().replace("\r\n", "\n")
    assert "I look.\\x1b[2J\ntool Bash" in plain
    assert "\nturn 1: hello\nfinished in " in plain


def test_without_a_word_on_a_terminal_it_does_not_wait(hosts: Hosts) -> None:
    """A person who forgot TEXT is told so."""
    with on_a_terminal(hosts.words()) as descriptor:
        assert b"nothing to say" in read_all(descriptor)
