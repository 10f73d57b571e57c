"""What a pass over a transcript finds."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from host_client.agents.claude import LAYOUT
from host_client.session import transcript_scan
from host_client.session.transcript_scan import MAX_VALUES_COUNT, TranscriptScan
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    import pytest

LINES = (
    b'{"type":"mode"}\n'
    b'{"cwd":"/a/p","slug":"calm-sea"}\n'
    b'{"cwd":"/b","nested":{"slug" : "\\u0062lue"},"text":"\\"slug\\":\\"not-this\\""}\n'
    b'\x00\x00\n{"slug":"calm-sea","n":1}'
)


def scan(pieces: list[bytes]) -> TranscriptScan:
    """Scan pieces to the end."""
    made = TranscriptScan(keys=("slug", "absent"), is_record=lambda line: b"cwd" in line)
    for piece in pieces:
        made.feed(piece)
    made.finish()
    return made


@given(st.integers(1, len(LINES)))
def test_what_is_found_does_not_depend_on_the_cuts(step_bytes: int) -> None:
    """Origin, values, NUL bytes and the end are the same for any split."""
    made = scan([LINES[start : start + step_bytes] for start in range(0, len(LINES), step_bytes)])
    assert made.origin == "/a/p"
    assert made.collected == {"slug": {"calm-sea", "blue"}, "absent": frozenset()}
    assert made.nul_at == LINES.index(b"\0")
    assert made.has_record
    assert made.torn_at is None
    assert not made.ends_with_newline
    assert made.read_bytes == len(LINES)


def test_a_torn_tail_is_told_with_its_offset() -> None:
    """A last line that is not whole is found; one that lacks only its newline is none."""
    assert scan([LINES, b"\n", b'{"cwd":"/a']).torn_at == len(LINES) + 1
    assert scan([LINES[:-1]]).torn_at == LINES.rindex(b"\n") + 1


def test_an_empty_transcript_has_nothing() -> None:
    """No bytes: no origin, no record, no newline."""
    made = scan([b""])
    assert (made.origin, made.has_record, made.torn_at, made.ends_with_newline) == (None, False, None, False)


def test_values_are_bounded() -> None:
    """At most 256 values of a key are remembered."""
    made = scan([json.dumps({"slug": str(number)}).encode() + b"\n" for number in range(1000)])
    assert len(made.collected["slug"]) == MAX_VALUES_COUNT


def test_a_long_line_is_not_copied_again_and_again() -> None:
    """Who is asked whether something was said gets one copy of a line, and nothing is decoded for the answer."""
    line = b'{"type":"user","text":"%b","cwd":"/w"}\n' % (b"x" * (16 << 20))
    pieces = [line[start : start + CHUNK_BYTES] for start in range(0, len(line), CHUNK_BYTES)]
    made = TranscriptScan(is_record=LAYOUT.is_record)
    tracemalloc.start()
    try:
        for piece in pieces:
            made.feed(piece)
        made.finish()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (made.has_record, made.origin) == (True, "/w")
    assert peak_bytes < 2.5 * len(line)


def test_lines_without_end_are_not_all_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that a sandbox filled with nothing costs no call for each of its lines, and holds no record."""
    monkeypatch.setattr(transcript_scan, "MAX_ASKED_COUNT", 100)
    asked: list[bytes] = []

    def is_record(line: bytes) -> bool:
        asked.append(line)
        return False

    made = TranscriptScan(is_record=is_record)
    for _ in range(50):
        made.feed(b"\n" * 10)
    made.finish()
    assert asked == [b""] * 100
    assert not made.has_record
