"""What `outpost` prints: names that a terminal must not run, a reader that goes away, an error nobody foresaw."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from host_client.cli.__main__ import main
from host_client.cli.record import resume_line
from support.recorded import DATA, recording

ODD = os.fsdecode(b"a\n\x1b[31m\xff")
"""A folder whose name breaks the line, colours the terminal and is not UTF-8."""

RECORDED = recording("copilot", "1.0.102/simple")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A home of that name, with a session."""
    home = tmp_path / ODD
    shutil.copytree(DATA / "copilot/1.0.102/simple/home", home)
    return home


def outpost(
    *arguments: str, cwd: Path | None = None, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run the command in a strict locale, whose standard output refuses what is not UTF-8."""
    return subprocess.run(
        [sys.executable, "-m", "host_client.cli", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONIOENCODING": "utf-8:strict"},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "local:{home}"),
        ("sessions", "local:{home}", "copilot"),
        ("capture", "local:{home}", "copilot", "{id}", "--repository", "{home}"),
        ("doctor", "local:{home}", "copilot"),
        ("relay", "local:{home}", "copilot", "{id}", "local:{home},{home.parent}"),
    ],
    ids=lambda words: words[0],
)
def test_names_are_printed_escaped(odd: Path, arguments: tuple[str, ...]) -> None:
    """Line breaks, escape sequences and foreign bytes of a name are shown and do nothing."""
    ended = outpost(*(word.format(home=odd, id=RECORDED.id) for word in arguments))
    assert ended.returncode == 0, ended.stderr
    assert "/a\\n\\x1b[31m\\xff" in ended.stdout
    assert "\x1b" not in ended.stdout + ended.stderr


def test_a_document_holds_any_name(odd: Path) -> None:
    """With --json a name that is not UTF-8 arrives as Python names it, in whatever locale."""
    ended = outpost("info", f"local:{odd}", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["home"] == str(odd)


def test_the_line_that_resumes_is_one_that_a_shell_takes(tmp_path: Path) -> None:
    """It is printable whatever the workspace is called, and leads there."""
    workspace = tmp_path / ODD
    workspace.mkdir()
    line = resume_line(["pwd", "-P"], PurePosixPath(workspace))
    assert line.isprintable()
    shown = subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, check=True).stdout
    assert shown == os.fsencode(workspace) + b"\n"
    assert resume_line(["a b"], PurePosixPath("/w x")) == f"cd {shlex.quote('/w x')} && 'a b'"


def test_a_relay_says_what_to_do_about_a_target_that_failed(tmp_path: Path) -> None:
    """Code, reason, message and hint of each target that failed, below its line."""
    shutil.copytree(DATA / "copilot/1.0.102/simple/home", tmp_path / "a")
    ended = outpost("relay", f"local:{tmp_path}/a", "copilot", RECORDED.id, f"local:{tmp_path}/none")
    assert ended.returncode == 12
    failed, hint = ended.stdout.splitlines()
    assert failed.startswith(f"FAILED local:{tmp_path}/none: configuration/invalid_target: ")
    assert hint.startswith("  hint: make the home directory first")


def test_a_failed_hook_tells_what_it_said(tmp_path: Path) -> None:
    """A workspace that no UTF-8 file can name is refused by the hook, and the reason is shown."""
    shutil.copytree(DATA / "copilot/1.0.102/simple/home", tmp_path / "a")
    (tmp_path / ODD).mkdir()
    kept = ("copilot", RECORDED.id, "--repository", str(tmp_path))
    assert outpost("capture", f"local:{tmp_path}/a", *kept).returncode == 0
    ended = outpost("restore", f"local:{tmp_path}/a,{tmp_path / ODD}", *kept)
    assert ended.returncode == 10
    assert "session/hook_failed" in ended.stderr
    assert "  it said: UnicodeEncodeError" in ended.stderr


def test_a_reader_that_went_away_is_no_fault(tmp_path: Path) -> None:
    """A closed pipe ends the command with status 1 and without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = outpost("info", f"local:{tmp_path}", stdout=writing)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_full_disk_below_the_output_is_told(tmp_path: Path) -> None:
    """What could not be printed is a failure in one line."""
    with Path("/dev/full").open("wb") as full:
        ended = outpost("info", f"local:{tmp_path}", stdout=full.fileno())
    assert (ended.returncode, ended.stderr) == (1, "outpost: the result cannot be written: No space left on device\n")


def test_a_current_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    """Relative names lead nowhere then: a wrong command line, or a target that names no daemon."""
    gone = tmp_path / "gone"
    command = [sys.executable, "-m", "host_client.cli"]
    for arguments, status in ((["capture", "local:/", "copilot", "x"], 2), (["info", "unix:a.sock"], 12)):
        gone.mkdir()
        ended = subprocess.run(
            ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *command, *arguments],
            cwd=gone,
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == status, ended.stderr
        assert "the current folder is gone" in ended.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_an_unforeseen_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    """No stack, exit status 1, and what a report needs: the error and the lines it passed."""

    def broken(_target: str) -> None:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr("host_client.cli.command.info.connect", broken)
    assert main(["info", "unix:/x", *(["--json"] if as_json else [])]) == 1
    printed = capsys.readouterr()
    if as_json:
        error = json.loads(printed.out)["error"]
        assert (error["code"], error["reason"]) == ("internal", "unforeseen")
        assert error["message"] == "ZeroDivisionError: broken"
    else:
        first, hint = printed.err.splitlines()
        assert first == "outpost: internal/unforeseen: ZeroDivisionError: broken"
        assert "info.py:" in hint
