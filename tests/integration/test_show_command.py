"""`outpost show`: kept copies and files of all formats, as text, as a document and as a page."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from host_client import read_message_file
from host_client.cli.__main__ import main
from host_client.cli.conversation import message_document
from support.recorded import DATA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., dict[str, Any]]

RECORDED = {
    "claude": "claude/2.1.332/multiturn",
    "codex": "codex/0.171.0/fork",
    "copilot": "copilot/1.0.102/tool",
    "kimi": "kimi/2.1.0/multiturn",
}
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r\n\x00end"


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

    def told(*words: object, status: int = 0) -> tuple[str, str]:
        assert main([*map(str, words)]) == status, capsys.readouterr()
        return capsys.readouterr()

    return told


def transcript(name: str) -> Path:
    """Return the main transcript of a recording."""
    patterns = {"claude": "*/*/f1*.jsonl", "codex": "sessions/**/*f652.jsonl", "copilot": "**/events.jsonl"}
    (found,) = (DATA / RECORDED[name] / "home").glob("*/" + patterns.get(name, "**/agents/main/wire.jsonl"))
    return found


def hostile(folder: Path) -> Path:
    """Write a transcript that would take over a terminal."""
    name = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": EVIL, "input": {EVIL: EVIL}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": EVIL}]}
    lines: list[dict[str, Any]] = [
        {"type": "user", "message": {"role": "user", "content": EVIL}},
        {"type": "assistant", "message": name},
        {"type": "user", "message": result},
        {"type": "user", "message": {"role": "user", "content": [{"type": "image", "source": {"media_type": EVIL}}]}},
    ]
    linked = [{**line, "uuid": str(at), "parentUuid": str(at - 1) if at else None} for at, line in enumerate(lines)]
    path = folder / "hostile.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in linked))
    return path


@pytest.mark.parametrize("name", RECORDED)
def test_a_kept_copy_is_shown(tmp_path: Path, run: Run, name: str) -> None:
    """What was captured is found as a restore finds it, and is what the CLI's own transcript says."""
    home, work, kept = (tmp_path / one for one in ("a", "work", "kept"))
    shutil.copytree(DATA / RECORDED[name] / "home", home, copy_function=shutil.copyfile)
    for made in (work, kept):
        made.mkdir()
    wanted = json.loads((DATA / RECORDED[name] / "expected.json").read_text())["session_id"]
    captured = run("capture", f"local:{home},{work}", name, wanted, "--home", kept)
    shown = run("show", name, wanted, "--home", kept, "--reasoning")
    expected = [message_document(message) for message in read_message_file(name, transcript(name))]
    assert shown.pop("messages") == expected
    told = {"format": name, "id": wanted, "path": captured["path"], "skipped_lines": 0, "torn_tail": False}
    assert shown == told
    assert run("show", name, "--file", captured["path"], "--reasoning")["messages"] == expected


def test_what_is_not_there_is_told(tmp_path: Path, run: Run, told: Callable[..., tuple[str, str]]) -> None:
    """An id that is not kept, a file that is not there, one of another format, and a format that is none."""
    bundle = tmp_path / "bundle.json"
    bundle.write_text('{"version":1,"format":"kimi","id":"x","source":"/","files":[]}')
    for words, status, reason in (
        (("claude", "f1000000-0000-4000-8000-00000000000f", "--home", tmp_path), 10, "not_found"),
        (("claude", "--file", tmp_path / "none.jsonl"), 14, "not_found"),
        (("copilot", "--file", bundle), 12, "format_mismatch"),
        (("kimi", "--file", bundle), 10, "corrupt"),
        (("mycli", "--file", bundle), 12, "not_supported"),
    ):
        assert run("show", *words, status=status)["error"]["reason"] == reason
    told("show", "claude", status=2)
    told("show", "claude", "some-id", "--file", bundle, status=2)
    told("show", "claude", "--file", transcript("claude"), "--html", "-", "--json", status=2)


def test_a_bundle_without_a_transcript_is_told(tmp_path: Path, run: Run) -> None:
    """The profile's required files are asked for before anything is shown."""
    bundle = tmp_path / "bundle.json"
    files = [{"path": "workspace.yaml", "data": ""}]
    bundle.write_text(json.dumps({"version": 1, "format": "copilot", "id": "x", "source": "/", "files": files}))
    assert run("show", "copilot", "--file", bundle, status=10)["error"]["reason"] == "missing_required"


def test_people_read_text(told: Callable[..., tuple[str, str]]) -> None:
    """Who, when, what was said; tools can be left out, thoughts asked for, and only the last messages taken."""
    path = transcript("claude")
    out, err = told("show", "claude", "--file", path)
    assert err == ""
    first = out.split("\n\n")[0].splitlines()
    assert re.fullmatch(r"user  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", first[0])
    assert first[1] == "  multi one: my word is kumquat use-thinking"
    assert '  > Bash {"command": "pwd' in out
    assert "  < /home/dev/demo-app\n  < wrote note.txt\n" in out
    assert "I should recall things." not in out
    assert "\x1b" not in out
    out, _ = told("show", "claude", "--file", path, "--no-tools", "--reasoning", "--last", 5)
    assert "  > " not in out
    assert len(out.strip().split("\n\n")) == 5
    assert "  multi three: done" in out
    assert "kumquat use-thinking\n" not in out
    assert "  ~ I should recall things." in told("show", "claude", "--file", path, "--reasoning")[0]


def test_marks_and_what_is_skipped_are_told(tmp_path: Path, told: Callable[..., tuple[str, str]]) -> None:
    """A mark is a line of its own; lines that are no records, and a torn one, are notes."""
    out, _ = told("show", "codex", "--file", transcript("codex"))
    assert "\n--- forked: what is above was said in 01a22be9-6bd0-74b1-8e68-8ec8c11634b0 ---\n" in out
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{broken\n{"type":"user","uuid":"1","message":{"content":"hi"}}\n{"type":"us')
    out, err = told("show", "claude", "--file", path)
    assert out == "user\n  hi\n\n"
    assert "note: 1 line(s) are not shown" in err
    assert "note: torn_tail" in err


def test_a_long_result_is_shortened(tmp_path: Path, told: Callable[..., tuple[str, str]]) -> None:
    """People see its beginning and how much there is; a failed one is marked."""
    block = {"type": "tool_result", "tool_use_id": "1", "content": "row\n" * 5000, "is_error": True}
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"type": "user", "uuid": "1", "message": {"content": [block]}}) + "\n")
    out, _ = told("show", "claude", "--file", path)
    lines = out.splitlines()
    assert lines[:3] == ["tool", "  ! row", "  ! row"]
    assert len(lines) < 20
    assert lines[-2] == "  ! [19952 more characters, 5000 lines in all]"


def test_a_hostile_transcript_drives_no_terminal(tmp_path: Path, told: Callable[..., tuple[str, str]]) -> None:
    """Escapes, controls and overrides are shown, in all parts, as text and as a page."""
    path = hostile(tmp_path)
    for words in ((), ("--html", "-")):
        out, err = told("show", "claude", "--file", path, *words)
        assert not set("\x1b\x07\x9b\x00\r\u202e") & set(out + err)
        assert out.count(r"\x1b[2J\x9b31m\u202eevil") >= 4


def test_a_terminal_gets_colors_and_lines_of_its_width(tmp_path: Path) -> None:
    """On a terminal roles are styled and long lines wrapped; what was said still adds no escape."""
    path = hostile(tmp_path)
    long = {"type": "user", "uuid": "9", "parentUuid": "3", "message": {"content": "word " * 100}}
    path.write_text(path.read_text() + json.dumps(long) + "\n")
    leader, follower = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "host_client.cli", "show", "claude", "--file", str(path)],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "COLUMNS": "60",
                "TERM": "xterm",
                "LANG": "C.UTF-8",
            },
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=subprocess.PIPE,
        ) as process:
            os.close(follower)
            follower = -1
            printed = b""
            while data := _read(leader):
                printed += data
            assert process.stderr is not None
            assert process.stderr.read() == b""
        assert process.returncode == 0
    finally:
        os.close(leader)
        if follower >= 0:
            os.close(follower)
    text = printed.decode().replace("\r\n", "\n")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert text != plain
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= 60
    assert plain.count("word") == 100


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # a terminal whose other end is closed
        return b""


def test_a_page_is_written_whole(tmp_path: Path, run: Run, told: Callable[..., tuple[str, str]]) -> None:
    """Its owner alone may read it; one that fails leaves what was there, and nothing beside it."""
    page = tmp_path / "page.html"
    page.write_text("old")
    document = run("show", "kimi", "--file", transcript("kimi"), "--html", page)
    assert document["message_count"] == 8
    assert document["bytes"] == page.stat().st_size
    assert page.stat().st_mode & 0o777 == 0o600
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert text.endswith("</html>\n")
    assert text.count("<article") == 8
    assert "8 (4 assistant, 4 user)" in text
    assert told("show", "kimi", "--file", transcript("kimi"), "--html", "-")[0] == text
    out, _ = told("show", "kimi", "--file", transcript("kimi"), "--html", page, "--last", 1)
    assert out.startswith(f"wrote {page}: 1 messages")
    assert 'id="m8"' in page.read_text()
    torn = tmp_path / "torn.jsonl.zst"
    torn.write_bytes((DATA / "codex/0.171.0/compressed").glob("home/**/*.zst").__next__().read_bytes()[:-5])
    assert run("show", "codex", "--file", torn, "--html", page, status=10)["error"]["reason"] == "corrupt"
    assert 'id="m8"' in page.read_text()
    missing = tmp_path / "none" / "page.html"
    error = run("show", "kimi", "--file", transcript("kimi"), "--html", missing, status=14)["error"]
    assert (error["code"], error["message"]) == ("workspace", f"nothing is at {tmp_path}/none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "torn.jsonl.zst"]


@pytest.mark.parametrize("what", ["link", "dangling link", "pipe", "socket", "directory"])
def test_a_page_replaces_nothing_but_a_file(tmp_path: Path, run: Run, what: str) -> None:
    """A link, a device and the like stay what they are, and what a link leads to as well."""
    page, other = tmp_path / "page.html", tmp_path / "other"
    match what:
        case "link":
            other.write_text("theirs")
            page.symlink_to(other)
        case "dangling link":
            page.symlink_to(other)
        case "pipe":
            os.mkfifo(page)
        case "socket":
            os.mknod(page, stat.S_IFSOCK | 0o600)
        case "directory":
            page.mkdir()
    before = page.lstat()
    document = run("show", "kimi", "--file", transcript("kimi"), "--html", page, status=14)
    assert document["error"]["reason"] == "not_a_file"
    assert (page.lstat().st_ino, page.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert {path.name for path in tmp_path.iterdir()} - {"other"} == {"page.html"}
    assert not other.exists() or other.read_text() == "theirs"


def test_memory_does_not_grow_with_the_conversation(tmp_path: Path) -> None:
    """A page of 12 MiB takes hardly more memory than one of nothing."""
    peaks = []
    for count in (1, 1500):
        path = tmp_path / f"{count}.jsonl"
        with path.open("w") as file:
            for at in range(count):
                message = {"role": "user", "content": "x" * 8000}
                record = {
                    "type": "user",
                    "uuid": str(at),
                    "parentUuid": str(at - 1) if at else None,
                    "message": message,
                }
                file.write(json.dumps(record) + "\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "host_client.cli", "show", "claude", "--file", path, "--html", tmp_path / "p.html"],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            stdout=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(usage.ru_maxrss << 10)
    assert (tmp_path / "p.html").stat().st_size > 11 << 20
    assert peaks[1] - peaks[0] < 8 << 20
