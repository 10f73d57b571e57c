"""`outpost relocate` and `outpost inspect`: what they print, and how they end."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from host_client.cli.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

TEXT = b'{"cwd":"/a","type":"user","sessionId":"S"}\n{"cwd":"/a\\u001b[31m"}\n{"cw'


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    """A transcript with a torn end and a directory that a terminal must not run."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(TEXT)
    return path


def test_relocate_tells_what_changed(transcript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In words; a torn end is a note on standard error."""
    assert main(["relocate", str(transcript), "--to", "/b"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"relocated: {transcript} from /a to /b, 1 changed, 70 B\n"
    assert printed.err == "note: torn_tail: the last line is cut off, at byte 66\n"
    assert transcript.read_bytes() == TEXT.replace(b'"/a"', b'"/b"')


def test_relocate_prints_a_document(transcript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as data; with an output the transcript stays."""
    output = transcript.with_name("t.jsonl")
    assert main(["relocate", str(transcript), "--to", "/bb", "--output", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "path": str(output),
        "origin": "/a",
        "destination": "/bb",
        "changed": 1,
        "bytes": 71,
        "torn_at": 66,
    }
    assert transcript.read_bytes() == TEXT


def test_relocate_says_when_there_is_no_origin(transcript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing changed is never told as success at something."""
    transcript.write_bytes(b"")
    assert main(["relocate", str(transcript), "--to", "/b"]) == 0
    assert capsys.readouterr().out == f"unchanged: {transcript} names no working directory, 0 B\n"


@pytest.mark.parametrize("command", [["relocate", "--to", "/b"], ["inspect"]], ids=["relocate", "inspect"])
@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "link"])
def test_what_is_no_file_is_refused(
    transcript: Path, capsys: pytest.CaptureFixture[str], command: list[str], kind: str
) -> None:
    """One line, exit status 14, nothing written, and no waiting for a FIFO."""
    path = transcript.with_name(kind)
    {
        "missing": lambda: None,
        "directory": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to(transcript),
    }[kind]()
    before = sorted(transcript.parent.iterdir())
    assert main([*command, str(path)]) == 14
    reason = {"missing": "not_found", "link": "unsafe_path"}.get(kind, "not_a_file")
    assert capsys.readouterr().err.startswith(f"outpost: workspace/{reason}: ")
    assert sorted(transcript.parent.iterdir()) == before
    assert transcript.read_bytes() == TEXT


@pytest.mark.parametrize("arguments", [[], ["--to", "b"], ["--to", ""]])
def test_relocate_needs_an_absolute_destination(transcript: Path, arguments: list[str]) -> None:
    """A wrong command line, or a configuration error."""
    assert main(["relocate", str(transcript), *arguments]) == (12 if arguments else 2)
    assert transcript.read_bytes() == TEXT


def test_inspect_tells_people(transcript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts and findings, names escaped."""
    assert main(["inspect", str(transcript)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{transcript}: 3 lines, 70 B",
        "types:",
        "  1 user",
        "directories:",
        "  1 /a",
        "  1 /a\\x1b[31m",
        "session ids:",
        "  1 S",
        "finding: torn_tail: line 3, byte 66",
    ]
    transcript.write_bytes(b"{}\n" + b"\n" * 99 + b"".join(b'{"type":"%d"}\n' % at for at in range(30)))
    assert main(["inspect", str(transcript)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == ["types:", "  1 0", "  1 1"]
    assert lines[22] == "  and 10 more"
    assert lines[23:25] == ["finding: no_origin", "finding: blank_line: line 2, byte 3"]
    assert lines[-1] == "findings: 80 more"


def test_inspect_prints_a_document(transcript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as data, all that is listed."""
    assert main(["inspect", str(transcript), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "path": str(transcript),
        "bytes": 70,
        "lines": 3,
        "types": {"user": 1},
        "directories": {"/a": 1, "/a\x1b[31m": 1},
        "session_ids": {"S": 1},
        "origin": "/a",
        "torn_at": 66,
        "ends_with_newline": False,
        "findings": [{"finding": "torn_tail", "line": 3, "offset": 66}],
        "finding_counts": {"torn_tail": 1},
    }


def test_inspect_finds_nothing_in_a_plain_transcript(transcript: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And says so."""
    transcript.write_bytes(b'{"cwd":"/a"}\n')
    assert main(["inspect", str(transcript)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "findings: none"
