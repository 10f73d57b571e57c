"""Followed files as they arrive: what a proper daemon says is passed on, and every breach of the order is refused."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import ConfigurationError, LimitError, SessionError
from host_client.sandbox import reply
from host_client.sandbox.capture import MAX_HELD_BYTES
from host_client.sandbox.follow import (
    FollowBeat,
    FollowBegin,
    FollowData,
    FollowHeld,
    Following,
    FollowMark,
    FollowPattern,
    follow_request,
)
from sandbox_api.limits import CHUNK_BYTES, MAX_MESSAGE_BYTES
from sandbox_api.v1 import transcript_pb2
from support.followed import BEAT, MAIN, begin, data, mark

HOME = PurePosixPath("/home/agent/.claude")
PATTERNS = [
    FollowPattern(PurePosixPath("projects/p"), "S1*.jsonl", whole_lines=True),
    FollowPattern(PurePosixPath("tasks"), "*", whole_lines=False),
]
TASK = b"tasks/S1/1.json"
LINE = b'{"a": 1}\n'
SHA256 = bytes(range(32))


def following(held: dict[bytes, int] | None = None) -> Following:
    """Return the checks of a call that has begun."""
    return Following(dict(held or {}), PATTERNS)


def told(*messages: transcript_pb2.FollowResponse, held: dict[bytes, int] | None = None) -> list[Any]:
    """Return what these messages tell, in order."""
    checks = following(held)
    return [part for message in messages for part in checks.accept(message)]


def test_proper_order_is_passed_on() -> None:
    """Two files that grow in turns are told as they come, and beats between them."""
    assert told(
        begin(1, offset=100),
        BEAT,
        data(1, 100, LINE),
        begin(2, TASK),
        mark(1, 109, SHA256),
        data(2, 0, b"half", SHA256),
        data(1, 109, LINE[:3]),
        data(1, 112, LINE[3:]),
        mark(1, 118, SHA256),
        mark(1, 118, SHA256),
        held={MAIN: 100},
    ) == [
        FollowBegin(1, PurePosixPath("projects/p/S1.jsonl"), 100),
        FollowBeat(),
        FollowData(1, 100, LINE),
        FollowBegin(2, PurePosixPath("tasks/S1/1.json"), 0),
        FollowMark(1, 109, SHA256),
        FollowData(2, 0, b"half"),
        FollowMark(2, 4, SHA256),
        FollowData(1, 109, LINE[:3]),
        FollowData(1, 112, LINE[3:]),
        FollowMark(1, 118, SHA256),
        FollowMark(1, 118, SHA256),
    ]


def test_file_begins_again_under_a_new_number() -> None:
    """A file that was replaced starts at 0 with a larger number, numbers may be left out, and the old one is gone."""
    checks = following({MAIN: 9})
    for message in (begin(1, offset=9), data(1, 9, LINE), begin(4), data(4, 0, LINE), mark(4, 9, SHA256), begin(5)):
        checks.accept(message)
    with pytest.raises(SessionError) as caught:
        checks.accept(data(4, 9, LINE))
    assert caught.value.reason == "protocol"


BREACHES: dict[str, tuple[transcript_pb2.FollowResponse, ...]] = {
    "no part": (transcript_pb2.FollowResponse(),),
    "number 0": (begin(0),),
    "number again": (begin(1), begin(1, TASK)),
    "number that shrinks": (begin(2), begin(1, TASK)),
    "path with a step up": (begin(1, b"projects/p/../S1.jsonl"),),
    "path from the root": (begin(1, b"/projects/p/S1.jsonl"),),
    "path with a NUL": (begin(1, b"tasks/a\0b"),),
    "path that is not UTF-8": (begin(1, b"tasks/\xff"),),
    "no path": (begin(1, b""),),
    "path of another folder": (begin(1, b"projects/q/S1.jsonl"),),
    "path of a folder with the same beginning": (begin(1, b"projects/p2/S1.jsonl"),),
    "the folder itself": (begin(1, b"projects/p"),),
    "name that was not asked for": (begin(1, b"projects/p/S2.jsonl"),),
    "offset of nothing that is held": (begin(1, offset=5),),
    "offset beyond what is held": (begin(1, b"tasks/held", offset=101),),
    "offset into what is held": (begin(1, b"tasks/held", offset=99),),
    "held content a second time": (begin(1, b"tasks/held", offset=100), begin(2, b"tasks/held", offset=100)),
    "held content after a beginning at 0": (begin(1, b"tasks/held"), begin(2, b"tasks/held", offset=100)),
    "data without a beginning": (data(1, 0, LINE),),
    "data of another number": (begin(1), data(2, 0, LINE)),
    "data of a number that began again": (begin(1), begin(2), data(1, 0, LINE)),
    "data too early": (begin(1), data(1, 0, LINE), data(1, 8, LINE)),
    "data too late": (begin(1), data(1, 0, LINE), data(1, 10, LINE)),
    "data before what is held": (begin(1, b"tasks/held", offset=100), data(1, 0, LINE)),
    "empty data": (begin(1), data(1, 0, b"")),
    "empty data with a mark": (begin(1), data(1, 0, b"", SHA256)),
    "data that is too large": (begin(1), data(1, 0, bytes(CHUNK_BYTES + 1))),
    "mark without a beginning": (mark(1, 0, SHA256),),
    "mark before the data": (begin(1), mark(1, 9, SHA256)),
    "mark of less than came": (begin(1), data(1, 0, LINE), mark(1, 8, SHA256)),
    "mark with half a digest": (begin(1), data(1, 0, LINE), mark(1, 9, bytes(16))),
    "mark without a digest": (begin(1), data(1, 0, LINE), mark(1, 9, b"")),
    "mark in the data with half a digest": (begin(1), data(1, 0, LINE, mark=bytes(16))),
    "mark in the middle of a line": (begin(1), data(1, 0, LINE[:-1]), mark(1, 8, SHA256)),
    "mark in the data in the middle of a line": (begin(1), data(1, 0, LINE[:-1], SHA256)),
}


@pytest.mark.parametrize("case", BREACHES)
def test_every_breach_is_refused(case: str) -> None:
    """Only the last message of each case is wrong, and it is refused as a breach of the protocol."""
    checks = following({b"tasks/held": 100})
    *before, last = BREACHES[case]
    for message in before:
        checks.accept(message)
    with pytest.raises(SessionError) as caught:
        checks.accept(last)
    assert caught.value.reason == "protocol"


def test_breach_leaves_the_checks_as_they_were() -> None:
    """A beginning that was refused has not ended the file of that path."""
    checks = following()
    checks.accept(begin(1))
    with pytest.raises(SessionError):
        checks.accept(begin(2, offset=7))
    assert checks.accept(data(1, 0, LINE)) == (FollowData(1, 0, LINE),)


def test_files_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon cannot make the client remember any number of files, but one file may begin again and again."""
    monkeypatch.setattr(reply, "MAX_LISTED_COUNT", 3)
    checks = following()
    for number in range(1, 20):
        checks.accept(begin(number))
    checks.accept(begin(20, b"tasks/a"))
    checks.accept(begin(21, b"tasks/b"))
    with pytest.raises(LimitError) as caught:
        checks.accept(begin(22, b"tasks/c"))
    assert caught.value.reason == "max_files"


def test_first_pattern_that_matches_counts() -> None:
    """Whether only whole lines may come is said by the first pattern that matches, as the contract says."""
    anywhere = FollowPattern(PurePosixPath(), "*", whole_lines=False)
    for patterns, is_fine in (([anywhere, *PATTERNS], True), ([*PATTERNS, anywhere], False)):
        checks = Following({}, patterns)
        checks.accept(begin(1))
        checks.accept(data(1, 0, b"half"))
        if is_fine:
            assert checks.accept(mark(1, 4, SHA256)) == (FollowMark(1, 4, SHA256),)
        else:
            with pytest.raises(SessionError):
                checks.accept(mark(1, 4, SHA256))


@given(content=st.binary(max_size=60), cuts=st.lists(st.integers(1, 59), max_size=8), held=st.integers(0, 60))
def test_content_arrives_whole(content: bytes, cuts: list[int], held: int) -> None:
    """However the rest of a file is split and marked, offsets and sizes fit what came."""
    held = min(held, len(content))
    bounds = sorted({held, len(content), *(cut for cut in cuts if held < cut < len(content))})
    messages = [begin(1, TASK, held)]
    for start, stop in pairwise(bounds):
        sha256 = hashlib.sha256(content[:stop]).digest()
        messages.append(data(1, start, content[start:stop], sha256 if start % 2 else b""))
        messages.append(mark(1, stop, sha256))
    arrived = bytearray(content[:held])
    for part in told(*messages, held={TASK: held}):
        if isinstance(part, FollowData):
            assert part.offset == len(arrived)
            arrived += part.data
        elif isinstance(part, FollowMark):
            assert (part.size, part.sha256) == (len(arrived), hashlib.sha256(arrived).digest())
    assert bytes(arrived) == content


def test_request_says_what_is_wanted() -> None:
    """Home, patterns, what is held, and the interval in milliseconds, of which there is at least one."""
    held = [
        FollowHeld(PurePosixPath("projects/p/S1.jsonl"), [(7, SHA256)]),
        FollowHeld(PurePosixPath("tasks/S1/1.json"), [(2, SHA256), (3, bytes(32))]),
        FollowHeld(PurePosixPath("tasks/S1/2.json"), []),
    ]
    for seconds, milliseconds in ((0.25, 250), (60, 60_000), (1e-9, 1)):
        request, _ = follow_request(
            HOME, held, [*PATTERNS, FollowPattern(PurePosixPath(), "x", whole_lines=True)], seconds
        )
        assert request.home == b"/home/agent/.claude"
        assert request.interval_milliseconds == milliseconds
        assert [(item.path, item.size, item.sha256, list(item.prefix_sizes)) for item in request.held] == [
            (MAIN, 7, SHA256, []),
            (TASK, 5, SHA256 + bytes(32), [2, 3]),
        ]
        assert [(item.directory, item.pattern, item.whole_lines) for item in request.patterns] == [
            (b"projects/p", "S1*.jsonl", True),
            (b"tasks", "*", False),
            (b"", "x", True),
        ]


@pytest.mark.parametrize("seconds", [0.0, -1.0, 60.1, float("nan"), float("inf")])
def test_impossible_interval_is_refused(seconds: float) -> None:
    """An interval that a daemon would take for another one is refused."""
    with pytest.raises(ConfigurationError) as caught:
        follow_request(HOME, [], PATTERNS, seconds)
    assert caught.value.reason == "invalid_argument"


def test_request_stays_below_the_largest_message() -> None:
    """Of more held files than a request can name the largest are named, and the others may begin at 0 only."""
    name = "x" * 200
    held = [FollowHeld(PurePosixPath(f"tasks/{name}/{number}"), [(number, SHA256)]) for number in range(30_000)]
    request, checks = follow_request(HOME, held, PATTERNS, 1)
    assert MAX_HELD_BYTES / 2 < len(request.SerializeToString()) < MAX_MESSAGE_BYTES
    assert min(item.size for item in request.held) == 30_000 - len(request.held)
    with pytest.raises(SessionError):
        checks.accept(begin(1, f"tasks/{name}/5".encode(), 5))
    assert checks.accept(begin(1, f"tasks/{name}/29999".encode(), 29_999))
    parts = [(1, SHA256)] * 4096
    held = [FollowHeld(PurePosixPath(f"tasks/{number}"), parts) for number in range(40)]
    request, _ = follow_request(HOME, held, PATTERNS, 1)
    assert MAX_HELD_BYTES / 2 < len(request.SerializeToString()) < MAX_MESSAGE_BYTES
