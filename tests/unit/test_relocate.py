"""Relocation of transcripts: only the bytes of the values change, however the input comes."""

from __future__ import annotations

import json
import os
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_client.session import line_block, origin
from host_client.session.relocate import Relocator
from support.transcript_text import DESTINATION, ORIGIN, TRANSCRIPTS, relocated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PATHS = st.text(st.characters(exclude_categories=["Cs"])) | st.binary().map(os.fsdecode)


def run(relocator: Relocator, pieces: Sequence[bytes]) -> bytes:
    """Feed all pieces and return what came out."""
    return b"".join([*(part for piece in pieces for part in relocator.feed(piece)), *relocator.finish()])


def relocate(data: bytes, destination: str = "/b", **settings_: str) -> bytes:
    """Return a transcript relocated in one piece."""
    return run(Relocator(destination, **settings_), [data])


def split(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    """Yield the data in pieces."""
    at = 0
    for cut in [*sorted(cuts), len(data)]:
        yield data[at:cut]
        at = max(at, cut)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few bytes, and lines that wait go to a file at once."""
    monkeypatch.setattr(line_block, "BLOCK_BYTES", 16)
    monkeypatch.setattr(origin, "_READ_BYTES", 7)
    monkeypatch.setattr(origin, "_MAX_MEMORY_BYTES", 8)


@settings(max_examples=150)
@given(transcript=TRANSCRIPTS)
def test_it_agrees_with_a_parser(transcript: bytes) -> None:
    """What changes is what a walk over the parsed lines would change, and not a byte more."""
    relocator = Relocator(DESTINATION)
    assert run(relocator, [transcript]) == relocated(transcript, DESTINATION)
    assert relocator.read_bytes == len(transcript)


@given(transcript=TRANSCRIPTS, cuts=st.lists(st.integers(0, 300)))
def test_any_split_gives_the_same(transcript: bytes, cuts: list[int]) -> None:
    """Pieces of any size, empty ones too, come out as the whole does."""
    whole, parts = Relocator(DESTINATION), Relocator(DESTINATION)
    assert run(parts, list(split(transcript, cuts))) == run(whole, [transcript])
    for name in (
        "origin",
        "changed_count",
        "read_bytes",
        "written_bytes",
        "line_origin",
        "line_read_bytes",
        "line_written_bytes",
        "torn_at",
        "ends_with_newline",
    ):
        assert getattr(parts, name) == getattr(whole, name), name


@pytest.mark.usefixtures("_small")
@settings(max_examples=60)
@given(transcript=TRANSCRIPTS)
def test_small_blocks_give_the_same(transcript: bytes) -> None:
    """Where blocks end, and whether lines wait in memory or in a file, makes no difference."""
    assert relocate(transcript, DESTINATION) == relocated(transcript, DESTINATION)


@settings(max_examples=60)
@given(transcript=TRANSCRIPTS, more=TRANSCRIPTS)
def test_going_on_is_the_same_as_starting_over(transcript: bytes, more: bytes) -> None:
    """What a grown transcript has behind its last whole line, relocated by itself, continues the first output."""
    first = Relocator(DESTINATION)
    before = run(first, [transcript])
    if first.line_origin is not None:
        grown = transcript + more
        after = relocate(grown[first.line_read_bytes :], DESTINATION, origin=first.line_origin)
        assert before[: first.line_written_bytes] + after == relocate(grown, DESTINATION)


@given(origin_=PATHS, destination=PATHS, data=st.data())
def test_there_and_back_is_the_identity(origin_: str, destination: str, data: st.DataObject) -> None:
    """A transcript in the spelling of the CLIs, which does not name the destination yet, comes back as it was."""
    names = st.sampled_from(["cwd", "text", "payload"])
    texts = st.sampled_from([origin_, origin_ + "x", "y"]).filter(lambda text: text != destination)
    values = st.recursive(texts, lambda inner: st.dictionaries(names, inner) | st.lists(inner), max_leaves=8)
    records = [{"cwd": origin_}, *data.draw(st.lists(st.dictionaries(names, values)))]
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in records]
    if origin_ == destination:
        return
    transcript = "\n".join(lines).encode("utf-8", "backslashreplace")
    there = relocate(transcript, destination)
    assert relocate(there, origin_) == transcript
    assert json.loads(there.split(b"\n")[0])["cwd"] == destination


@settings(max_examples=60)
@given(transcript=TRANSCRIPTS, cuts=st.lists(st.integers(0, 400), max_size=4), size=st.integers(1, 64))
def test_cuts_move_with_what_changes_in_front_of_them(transcript: bytes, cuts: list[int], size: int) -> None:
    """The place of a cut at the start of a line is where the lines before it end; in a line it keeps its distance."""
    relocator = Relocator(DESTINATION, cuts=cuts)
    output = run(relocator, [transcript[at : at + size] for at in range(0, len(transcript), size)])
    assert relocator.cut_positions.keys() == {cut for cut in cuts if cut <= len(transcript)}
    for cut, position in relocator.cut_positions.items():
        known = relocator.origin
        if known is None:
            assert position == cut
        elif transcript[:cut].endswith(b"\n"):
            assert position == len(relocated(transcript[:cut], DESTINATION, known))
        assert position <= len(output)
    in_order = [position for _, position in sorted(relocator.cut_positions.items())]
    assert in_order == sorted(in_order)


def test_a_cut_in_a_line_keeps_its_distance_from_the_last_change() -> None:
    """A cut before a value does not move with it, one behind it does; one through it counts as before."""
    data = b'{"cwd":"/a","x":1}\n{"cwd":"/a"}\n'
    relocator = Relocator("/longer", cuts=[0, 7, 9, 11, 12, 18, 19, 26, 200])
    run(relocator, [data])
    assert relocator.cut_positions == {0: 0, 7: 7, 9: 9, 11: 16, 12: 17, 18: 23, 19: 24, 26: 31}
    relocator = Relocator("/", cuts=[8, 12, 13])
    run(relocator, [b'{"cwd":"/abc"}\n'])
    assert relocator.cut_positions == {8: 8, 12: 10, 13: 10}


@pytest.mark.parametrize(
    ("data", "known", "known_for_good"),
    [
        (b'{"cwd":"/a"}\n', "/a", "/a"),
        (b'{"cwd":"/a"}', "/a", None),
        (b'{"x":{"cwd":"/a"}}\n{"cwd":"/a"}', "/a", None),
        (b'{"cwd":"/a"}\n{"cw', "/a", "/a"),
        (b"{}\n", None, None),
    ],
)
def test_an_origin_in_an_open_line_is_not_for_good(data: bytes, known: str | None, known_for_good: str | None) -> None:
    """What is appended to that line may make it another one, so nobody goes on from it."""
    relocator = Relocator("/b")
    run(relocator, [data])
    assert (relocator.origin, relocator.line_origin) == (known, known_for_good)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"cwd":"/a"}', b'{"cwd":"/b"}'),
        (b'{"payload":{"cwd":"/a"}}', b'{"payload":{"cwd":"/b"}}'),
        (b'{"payload":{"cwd":"/z"},"cwd":"/a"}', b'{"payload":{"cwd":"/z"},"cwd":"/b"}'),
        (b'{"cwd":1,"payload":{"cwd":"/a"}}', b'{"cwd":1,"payload":{"cwd":"/b"}}'),
        (b'{"cwd":"/z","cwd":"/a"}', b'{"cwd":"/z","cwd":"/b"}'),
        (b'{"x":{"cwd":"/a"}}', b'{"x":{"cwd":"/a"}}'),
        (b'{"x":{"cwd":"/a"}}\n{"cwd":"/a"}', b'{"x":{"cwd":"/b"}}\n{"cwd":"/b"}'),
        (b'{"cwd":"/a"}\n{"cwd":"/a/sub"}\n{"x":"/a"}', b'{"cwd":"/b"}\n{"cwd":"/a/sub"}\n{"x":"/a"}'),
        (b'{"cwd":"/a"}\n{"x":"\\"cwd\\":\\"/a\\""}', b'{"cwd":"/b"}\n{"x":"\\"cwd\\":\\"/a\\""}'),
        (b'{"cwd":"/a"}\n{"\\"cwd":"/a","\\\\\\"cwd":"/a"}', b'{"cwd":"/b"}\n{"\\"cwd":"/a","\\\\\\"cwd":"/a"}'),
        (b'{"\\u0063wd" : "\\/\\u0061"}', b'{"\\u0063wd" : "/b"}'),
        (b'{"cwd":"/a"}{"type":1,"cwd":"/a"}\n', b'{"cwd":"/b"}{"type":1,"cwd":"/b"}\n'),
        (b'{"cwd":"/a"}\n{"cwd":"/a"}x\n{"cwd":"/a"', b'{"cwd":"/b"}\n{"cwd":"/a"}x\n{"cwd":"/a"'),
        (b'{"cwd":"/a"x\n{"cwd":"/c"}\n{"cwd":"/a"}', b'{"cwd":"/a"x\n{"cwd":"/b"}\n{"cwd":"/a"}'),
        (b'\xef\xbb\xbf{"cwd":"/a"}\r\n\r\n', b'\xef\xbb\xbf{"cwd":"/b"}\r\n\r\n'),
        (b"\0" * 4096 + b'\n{"cwd":"/a"}\n' + b"\0" * 1728, b"\0" * 4096 + b'\n{"cwd":"/b"}\n' + b"\0" * 1728),
        (b'{"cwd":"/a"}\n\0{"cwd":"/a"}\n', b'{"cwd":"/b"}\n\0{"cwd":"/a"}\n'),
        (b'{"cwd":"/a","x":"\xe2\x80\xa8"}\n', b'{"cwd":"/b","x":"\xe2\x80\xa8"}\n'),
        (b'{"x":"\xff\\ud800","n":1e2 ,"cwd":"/a"}', b'{"x":"\xff\\ud800","n":1e2 ,"cwd":"/b"}'),
        (b'{"n":NaN,"cwd":"/a"}', b'{"n":NaN,"cwd":"/b"}'),
        (b'{"n":1' + b"0" * 5000 + b',"cwd":"/a"}', b'{"n":1' + b"0" * 5000 + b',"cwd":"/b"}'),
        (
            b'{"x":' + b"[" * 9999 + b"]" * 9999 + b',"cwd":"/a"}',
            b'{"x":' + b"[" * 9999 + b"]" * 9999 + b',"cwd":"/b"}',
        ),
        (b'{"cwd":"/a"}\n{"cwd":\n"/a"}\n', b'{"cwd":"/b"}\n{"cwd":\n"/a"}\n'),
        (b'{"cwd":"/a"}\n{"x":{"cwd":"/a"},\n"y":1}\n', b'{"cwd":"/b"}\n{"x":{"cwd":"/a"},\n"y":1}\n'),
        (b"", b""),
    ],
)
def test_known_oddities(before: bytes, after: bytes) -> None:
    """Each kind of line that is met in the wild comes out as it must, at the end and in a block of whole lines."""
    assert relocate(before) == after
    assert relocate(before + b"\n") == after + b"\n"


@pytest.mark.parametrize("name", ['a"b\\c\n', "/Проект/é", "/\udcff", "/😀", "/\x7f\u2028"])
def test_any_path_can_be_a_destination(name: str) -> None:
    """What a path may hold is spelled as JSON, in UTF-8, also what is not UTF-8 in the file system."""
    moved = relocate(b'{"cwd":"/a"}', name)
    assert json.loads(moved.decode("utf-8"))["cwd"] == name
    assert relocate(moved, "/a") == b'{"cwd":"/a"}'


def test_a_path_in_foreign_bytes_is_found_in_both_spellings() -> None:
    """A byte that is not UTF-8 equals the escape that stands for it."""
    assert relocate(b'{"cwd":"/\xff"}\n{"cwd":"/\\udcff"}') == b'{"cwd":"/b"}\n{"cwd":"/b"}'


@pytest.mark.parametrize(
    ("data", "torn_at", "ends"),
    [
        (b"", None, False),
        (b"{}\n", None, True),
        (b"{}", None, False),
        (b"{}\n{}", None, False),
        (b'{}\n{"a', 3, False),
        (b"{}\n\0\0", 3, False),
        (b'{"a\n', None, True),
    ],
)
def test_a_torn_end_is_told(data: bytes, torn_at: int | None, ends: bool) -> None:  # noqa: FBT001
    """A last line without newline is torn when it is not JSON; its place is told."""
    relocator = Relocator("/b")
    run(relocator, [data])
    assert (relocator.torn_at, relocator.ends_with_newline) == (torn_at, ends)


def test_without_an_origin_nothing_changes() -> None:
    """Lines that name no directory come out as they are, also when they are too many for the memory."""
    data = b'{"x":{"cwd":"/a"},"fill":"' + b"." * 1000 + b'"}\n'
    relocator = Relocator("/b")
    whole = run(relocator, [data] * 6000)
    assert whole == data * 6000
    assert (relocator.origin, relocator.changed_count, relocator.line_written_bytes) == (None, 0, len(whole))


def test_memory_is_that_of_the_longest_line() -> None:
    """A line of 16 MiB, fed in small pieces, takes little more than itself; its bytes come out in pieces."""
    size = 16 << 20
    pieces = [b'{"text":"', *[b"x\\n\\u001b" * 8192] * (size // 65536), b'","cwd":"/a"}\n']
    relocator = Relocator("/b")
    tracemalloc.start()
    try:
        longest = 0
        for piece in pieces:
            for part in relocator.feed(piece):
                longest = max(longest, len(part))
        assert not list(relocator.finish())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert relocator.changed_count == 1
    assert longest <= 1 << 20
    assert peak < 1.5 * size


def test_destination_and_origin_may_be_one() -> None:
    """A transcript that is where it belongs stays byte for byte, in whatever spelling."""
    data = b'{"cwd":"\\/a"}\n'
    relocator = Relocator("/a")
    assert run(relocator, [data]) == data
    assert (relocator.origin, relocator.changed_count) == ("/a", 0)


def test_a_given_origin_is_the_only_one() -> None:
    """Directories that the transcript names first do not count then."""
    assert relocate(b'{"cwd":"/z"}\n{"cwd":"/a"}\n', origin="/a") == b'{"cwd":"/z"}\n{"cwd":"/b"}\n'
    assert ORIGIN != DESTINATION
