"""Transcripts on their way: what changes, what does not, and offsets into each other."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import ConfigurationError, SessionError
from host_client.session.compression import compressed, decompressed
from host_client.stores.layout import Reference
from host_client.stores.transcript_move import Move
from support.transcript_format import LAYOUT, lines

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

PARENT, FORK, GRANDCHILD = (PurePosixPath(f"{name}.jsonl") for name in ("parent", "fork", "grandchild"))
DESTINATIONS = ["/", "/old", "/a/much/longer/place/than/the/old/one/was"]


def reference(first_line: bytes, path: PurePosixPath, related: Sequence[PurePosixPath]) -> Reference | None:
    """Read `"base":[name,offset]` of a first line."""
    del path
    found = re.search(rb'"base":\["([a-z]+)",(\d+)\]', first_line)
    if not found:
        return None
    other = PurePosixPath(f"{found[1].decode()}.jsonl")
    return Reference(next((one for one in related if one == other), other), int(found[2]), found.span(2))


REFERRING = replace(LAYOUT, reference=reference)


def forked(name: str, offset: int, cwd: str = "/old") -> bytes:
    """Return a transcript that begins with the first bytes of another."""
    first = b'{"cwd":%b,"base":["%b",%d]}\n' % (json.dumps(cwd).encode(), name.encode(), offset)
    return first + lines(cwd)


def moved(
    files: dict[PurePosixPath, bytes], destination: str, *, origin: str | None = "/old"
) -> dict[PurePosixPath, bytes]:
    """Move files that refer to each other."""

    def content(path: PurePosixPath) -> Generator[bytes, None, None]:
        for start in range(0, len(files[path]), 7):
            yield files[path][start : start + 7]

    move = Move(REFERRING, content, list(files), destination=destination, origin=origin)
    return {path: b"".join(move.pieces(path, content(path))) for path in files}


def plain(move_layout: object, content: bytes, path: str = "x.jsonl", **options: str | None) -> tuple[bytes, Move]:
    """Move one file."""

    def read(_: PurePosixPath) -> Generator[bytes, None, None]:
        yield from decompressed([content]) if path.endswith(".zst") else [content]

    settings = {"destination": "/new", "origin": "/old", **options}
    move = Move(move_layout, read, [PurePosixPath(path)], **settings)  # type: ignore[arg-type]
    return b"".join(move.pieces(PurePosixPath(path), iter([content]))), move


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_offsets_follow_what_they_point_to(destination: str) -> None:
    """A fork of a fork points behind the same line of its parent after a move, and there and back nothing differs."""
    parent = lines(count=9)
    cut = parent.index(b"\n", 150) + 1
    fork = forked("parent", cut)
    fork_cut = fork.index(b"\n") + 1 + len(lines()) // 2
    fork_cut = fork.index(b"\n", fork_cut) + 1
    files = {PARENT: parent, FORK: fork, GRANDCHILD: forked("fork", fork_cut)}
    new = moved(files, destination)
    for path, base, old_cut in ((FORK, PARENT, cut), (GRANDCHILD, FORK, fork_cut)):
        found = reference(new[path].partition(b"\n")[0], path, list(files))
        assert found is not None
        kept = new[base][: found.offset]
        assert kept.endswith(b"\n")
        assert kept.count(b"\n") == files[base][:old_cut].count(b"\n")
        assert json.loads(new[path].partition(b"\n")[0])["cwd"] == destination
    assert moved(new, "/old", origin=destination) == files


@given(st.integers(0, 400))
def test_offsets_without_a_move_stay(offset: int) -> None:
    """With no origin, or at the same place, not one byte differs, whatever an offset says."""
    files = {PARENT: lines(), FORK: forked("parent", offset)}
    assert moved(files, "/old") == files
    assert moved(files, "/new", origin=None) == files


def test_an_offset_behind_the_end_stays_behind_it() -> None:
    """What the CLI would refuse is not made to look right."""
    parent = lines()
    new = moved({PARENT: parent, FORK: forked("parent", len(parent) + 5)}, "/longer")
    found = reference(new[FORK].partition(b"\n")[0], FORK, [PARENT])
    assert found is not None
    assert found.offset == len(new[PARENT]) + 5


def test_transcripts_that_refer_in_a_circle_are_refused() -> None:
    """A circle, or a transcript that is not one of the conversation, ends the move."""
    with pytest.raises(SessionError) as circle:
        moved({PARENT: forked("fork", 1), FORK: forked("parent", 1)}, "/new")
    assert circle.value.reason == "corrupt"
    with pytest.raises(ConfigurationError) as unknown:
        moved({FORK: forked("parent", 1)}, "/new")
    assert unknown.value.reason == "invalid_argument"


def test_forks_of_forks_are_moved_in_any_number() -> None:
    """A sandbox may make more of them than Python calls itself."""
    names = ["".join(chr(ord("a") + int(digit)) for digit in f"{number:04}") for number in range(1500)]
    files = {PurePosixPath(f"{names[0]}.jsonl"): lines()}
    for before, name in pairwise(names):
        files[PurePosixPath(f"{name}.jsonl")] = forked(before, 5)
    got = moved(dict(reversed(files.items())), "/new")
    assert got[PurePosixPath(f"{names[-1]}.jsonl")] == forked(names[-2], 5, "/new")


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b'{"a":1}', b'{"a":1}\n'), (b'{"a":1}\n', b'{"a":1}\n'), (b'{"to', b'{"to\n'), (b"", b"")],
)
def test_a_last_newline_is_added_where_the_cli_needs_it(content: bytes, expected: bytes) -> None:
    """Only for a layout that says so, and not to an empty file; that alone is no relocation."""
    got, move = plain(replace(LAYOUT, ends_with_newline=True), content)
    assert got == expected
    assert move.relocated == set()
    assert plain(LAYOUT, content)[0] == content


def test_a_compressed_transcript_is_moved_inside() -> None:
    """It is unpacked, relocated and packed again; where nothing changes its bytes stay."""
    packed = b"".join(compressed([lines()])) + b"".join(compressed([b""]))
    got, move = plain(LAYOUT, packed, "x.jsonl.zst")
    assert b"".join(decompressed([got])) == lines("/new")
    assert move.relocated == {PurePosixPath("x.jsonl.zst")}
    same, unmoved = plain(LAYOUT, packed, "x.jsonl.zst", destination="/old")
    assert same == packed
    assert unmoved.relocated == set()
