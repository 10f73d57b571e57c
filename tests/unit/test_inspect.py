"""Inspection of transcripts: each oddity by its word and place, and no finding where there is none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from host_client.errors import SessionError, WorkspaceError
from host_client.session import inspect as module
from host_client.session.compression import compressed
from host_client.session.inspect import TranscriptFinding, inspect_transcript
from host_client.session.relocate import Relocator
from support.transcript_text import TRANSCRIPTS, values_of

if TYPE_CHECKING:
    from pathlib import Path

NAMED = b'{"cwd":"/a"}\n'
META = b'{"ordinal":0,"type":"session_meta","payload":{"id":"S","history_mode":"paginated","cwd":"/a"}}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the transcript lies."""
    return tmp_path / "s.jsonl"


def look(path: Path, data: bytes) -> list[tuple[str, int | None, int]]:
    """Return the findings about a transcript."""
    path.write_bytes(data)
    return [tuple(finding) for finding in inspect_transcript(path).findings]


@pytest.mark.parametrize(
    ("data", "findings"),
    [
        (NAMED, []),
        (NAMED.strip(), []),
        (NAMED + b"{}\r\n", []),
        (NAMED + b'{"x":"\\ud800","y":NaN,"z":' + b"[" * 5000 + b"]" * 5000 + b"}\n", []),
        (NAMED + b'{"x":"\xe2\x80\xa8"}\n', []),
        (b"", [("empty", None, 0)]),
        (b"{}\n", [("no_origin", None, 0)]),
        (NAMED + b'{"x":{"cwd":"/a"}', [("torn_tail", 2, 13)]),
        (NAMED + b"\0\0", [("nul_bytes", 2, 13), ("torn_tail", 2, 13)]),
        (NAMED + b"\0\0{}\n{}\n", [("nul_bytes", 2, 13), ("invalid_json", 2, 13)]),
        (NAMED + b"garbage\n", [("invalid_json", 2, 13)]),
        (NAMED + b'{"x":"\xff"}\n{}\n', [("invalid_utf8", 2, 13)]),
        (b"\xef\xbb\xbf" + NAMED, [("bom", 1, 0)]),
        (NAMED + b'{"uuid":"a"}{"parentUuid":"a"}\n', [("several_values", 2, 13)]),
        (NAMED + b"\n \r\n", [("blank_line", 2, 13), ("blank_line", 3, 14)]),
        (META + b'{"ordinal":1}\n{"type":"x"}\n', [("missing_ordinal", 3, len(META) + 14)]),
        (NAMED + b'{"type":"session_meta","payload":{"history_mode":"legacy"}}\n{"type":"x"}\n', []),
        (NAMED + b'{"uuid":"b","parentUuid":"c"}\n', [("dangling_parent", 2, 13)]),
        (NAMED + b'{"uuid":"b","parentUuid":"c"}\n{"uuid":"c","parentUuid":null}\n', []),
    ],
)
def test_each_oddity_has_its_word(path: Path, data: bytes, findings: list[tuple[str, int | None, int]]) -> None:
    """With the number of its line and where that starts."""
    assert look(path, data) == findings


def test_what_a_transcript_holds_is_counted(path: Path) -> None:
    """Types, directories at any depth, and sessions, of both CLIs."""
    lines = [
        {"type": "user", "cwd": "/a", "sessionId": "S1", "x": [{"cwd": "/a/sub"}]},
        {"type": "user", "cwd": "/b", "sessionId": "S1"},
        {"type": "session_meta", "payload": {"id": "S2", "session_id": "S3", "cwd": "/a"}},
        {"type": "event_msg", "payload": {"type": "item", "id": "no session"}},
        {"type": 1, "payload": "text", "sessionId": None},
    ]
    path.write_bytes("\n".join(map(json.dumps, lines)).encode())
    found = inspect_transcript(path)
    assert found.types == {"user": 2, "session_meta": 1, "event_msg/item": 1}
    assert found.directories == {"/a": 2, "/a/sub": 1, "/b": 1}
    assert found.session_ids == {"S1": 2, "S2": 1, "S3": 1}
    assert (found.lines_count, found.bytes_count, found.origin) == (5, path.stat().st_size, "/a")
    assert (found.torn_at, found.ends_with_newline, found.findings) == (None, False, [])


def test_a_large_transcript_with_a_long_line_has_no_finding(path: Path) -> None:
    """18 MB of valid lines, one of them of 3 MB."""
    line = json.dumps({"cwd": "/a", "text": "é" + "word \n" * 1500}, ensure_ascii=False).encode() + b"\n"
    long = json.dumps({"text": "x" * 3_000_000}).encode() + b"\n"
    count = 15_000_000 // len(line) // 2
    path.write_bytes(line * count + long + line * count)
    found = inspect_transcript(path)
    assert (found.findings, found.lines_count, found.bytes_count) == ([], 2 * count + 1, path.stat().st_size)
    assert found.directories == {"/a": 2 * count}


def test_lists_are_bounded_and_counts_are_not(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond the bound is counted where there is a count."""
    monkeypatch.setattr(module, "MAX_LISTED_COUNT", 2)
    path.write_bytes(b"".join(b'{"cwd":"/%d","type":"%d"}\n\n' % (at, at) for at in range(5)))
    found = inspect_transcript(path)
    assert found.directories == {"/0": 1, "/1": 1}
    assert found.types == {"0": 1, "1": 1}
    assert found.findings == [TranscriptFinding("blank_line", 2, 24), TranscriptFinding("blank_line", 4, 49)]
    assert found.finding_counts == {"blank_line": 5}


def test_a_compressed_rollout_is_read(tmp_path: Path) -> None:
    """Sizes and offsets are those of the content."""
    path = tmp_path / "rollout.jsonl.zst"
    path.write_bytes(b"".join(compressed([META * 3, b"torn"])))
    found = inspect_transcript(path)
    assert (found.bytes_count, found.origin, found.torn_at) == (3 * len(META) + 4, "/a", 3 * len(META))


def test_a_damaged_compressed_rollout_is_an_error(tmp_path: Path) -> None:
    """Content that cannot be read is no finding."""
    path = tmp_path / "rollout.jsonl.zst"
    path.write_bytes(b"".join(compressed([META]))[:-1])
    with pytest.raises(SessionError) as caught:
        inspect_transcript(path)
    assert caught.value.reason == "corrupt"
    assert caught.value.message.startswith(str(path))


def test_only_files_are_inspected(tmp_path: Path) -> None:
    """Of what is not there, and of a folder, nothing is told."""
    for name, reason in (("none", "not_found"), (".", "not_a_file")):
        with pytest.raises(WorkspaceError) as caught:
            inspect_transcript(tmp_path / name)
        assert caught.value.reason == reason


@given(transcript=TRANSCRIPTS)
def test_it_agrees_with_the_relocator(tmp_path_factory: pytest.TempPathFactory, transcript: bytes) -> None:
    """Origin, torn end and the count of the origin's values are what a relocation finds."""
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(transcript)
    found = inspect_transcript(path)
    relocator = Relocator("/somewhere/else")
    assert sum(map(len, [*relocator.feed(transcript), *relocator.finish()])) == relocator.written_bytes
    assert (found.origin, found.torn_at) == (relocator.origin, relocator.torn_at)
    assert found.ends_with_newline == relocator.ends_with_newline
    if found.origin is not None:
        assert found.directories[found.origin] == relocator.changed_count
    torn = found.finding_counts.get("torn_tail", 0)
    assert torn == (relocator.torn_at is not None)
    lines = transcript.removesuffix(b"\n").split(b"\n") if transcript else []
    assert found.lines_count == len(lines)
    bad = sum(values_of(line) is None for line in lines)
    assert bad == torn + sum(found.finding_counts.get(word, 0) for word in ("invalid_json", "blank_line"))
