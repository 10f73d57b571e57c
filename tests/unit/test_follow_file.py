"""One followed file: the client ends up with what is in it, whatever is done to it, and with nothing else."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox_agent.core import paths
from sandbox_agent.core.follow_file import Data
from support.following import Followed, append, following, pattern
from support.special import make_special

MIB = 1 << 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A CLI home; beside it lies what must not be reached."""
    (tmp_path / "home" / "p").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture(params=["looked", "told"])
def told(request: pytest.FixtureRequest) -> bool:
    """Run where everything is looked at every time, and where only what the kernel tells of is."""
    return bool(request.param == "told")


def test_what_the_client_holds_is_not_sent(home: Path) -> None:
    """A beginning that is held is where the data starts; another one, or more than there is, is sent anew."""
    for name in ("same", "grown", "other", "shorter"):
        (home / "p" / name).write_bytes(b"0123456789")
    held = {b"p/same": b"0123456789", b"p/grown": b"01234", b"p/other": b"0123X", b"p/shorter": b"0123456789a"}
    with following(home, held=held) as client:
        client.catch_up()
        assert client.begun == [(b"p/grown", 5), (b"p/other", 0), (b"p/same", 10), (b"p/shorter", 0)]
        assert set(client.contents.values()) == {b"0123456789"}


def test_what_is_held_counts_once(home: Path, *, told: bool) -> None:
    """A file that begins again does so at 0, also with the content that was held."""
    (home / "p/a").write_bytes(b"held")
    with following(home, held={b"p/a": b"held"}, told=told) as client:
        client.catch_up()
        (home / "p/a").unlink()
        client.catch_up()
        (home / "p/a").write_bytes(b"held")
        client.catch_up()
        assert client.begun == [(b"p/a", 4), (b"p/a", 0)]


def test_what_is_held_is_compared_once(home: Path) -> None:
    """Also when the file that had it is written anew in its place."""
    (home / "p/a").write_bytes(b"held")
    with following(home, held={b"p/a": b"held"}) as client:
        for content in (b"held", b"other", b"held"):
            (home / "p/a").write_bytes(content)
            client.catch_up()
        assert client.begun == [(b"p/a", 4), (b"p/a", 0), (b"p/a", 0)]


@pytest.mark.parametrize("change", ["truncate", "replace", "rewrite", "longer"])
def test_a_file_with_other_content_begins_again(home: Path, *, told: bool, change: str) -> None:
    """Truncated, replaced by another, or written anew in place with as much or more."""
    path = home / "p/a"
    path.write_bytes(b"x" * 10_000)
    with following(home, told=told) as client:
        client.catch_up()
        if change == "truncate":
            os.truncate(path, 9_999)
        elif change == "replace":
            (home / "other").write_bytes(b"x" * 10_001)
            (home / "other").rename(path)
        else:
            path.write_bytes(b"y" * (10_000 if change == "rewrite" else 20_000))
        client.catch_up()
        assert client.begun == [(b"p/a", 0), (b"p/a", 0)]
        assert client.contents == {b"p/a": path.read_bytes()}


def test_only_whole_lines_are_sent(home: Path, *, told: bool) -> None:
    """What follows the last newline waits for its own; the mark is behind the last whole line."""
    path = home / "p/a"
    path.write_bytes(b"one\ntw")
    with following(home, pattern(whole_lines=True), told=told) as client:
        client.catch_up()
        assert client.contents == {b"p/a": b"one\n"}
        append(path, b"o")
        assert client.catch_up() == []
        append(path, b"\nthree\nfou")
        client.catch_up()
        assert client.contents == {b"p/a": b"one\ntwo\nthree\n"}


def test_a_torn_line_that_is_taken_back(home: Path) -> None:
    """What waits was not sent: when it is truncated away, what is written instead simply goes on."""
    path = home / "p/a"
    path.write_bytes(b"one\n" + b"x" * 100)
    with following(home, pattern(whole_lines=True)) as client:
        client.catch_up()
        os.truncate(path, 4)
        append(path, b"two\n")
        client.catch_up()
        path.write_bytes(b"one\ntwo\nxxxx")
        client.catch_up()
        path.write_bytes(b"one\ntwo\nxxx\n")  # as long as before
        client.catch_up()
        assert client.contents == {b"p/a": b"one\ntwo\nxxx\n"}
        assert client.begun == [(b"p/a", 0)]


def test_lines_are_split_only_when_they_must_be(home: Path) -> None:
    """A line of up to a part's size is in one part; a longer one waits for its newline, then comes in several."""
    path = home / "p/a"
    path.write_bytes((b"x" * (700 << 10) + b"\n") * 3 + b"y" * (5 * MIB))
    with following(home, pattern(whole_lines=True)) as client:
        sizes = [len(part.data) for part in client.catch_up() if isinstance(part, Data)]
        assert sizes == [(700 << 10) + 1] * 3
        append(path, b"y\nz\n")
        parts = [part for part in client.catch_up() if isinstance(part, Data)]
        assert [len(part.data) for part in parts] == [MIB] * 5 + [4]
        assert client.contents[b"p/a"] == path.read_bytes()


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_memory_does_not_grow_with_a_line(home: Path, ending: bytes) -> None:
    """A line of any length is looked at, and sent, in pieces."""
    (home / "p/a").write_bytes(b"x" * (40 * MIB) + ending)
    with following(home, pattern(whole_lines=True)) as client:
        tracemalloc.start()
        sent_bytes = 0
        for batch in client.batches:
            sizes = [len(part.data) for part in batch.parts if isinstance(part, Data)]
            assert sum(sizes) <= 2 * MIB
            sent_bytes += sum(sizes)
            if batch.is_last:
                break
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert sent_bytes == (40 * MIB + 1 if ending else 0)
    assert peak_bytes < 6 * MIB


def test_memory_does_not_grow_with_what_many_files_have(home: Path) -> None:
    """Of each file that is followed little is kept between two looks, however much it has."""
    for number in range(500):
        (home / f"p/{number}").write_bytes(b"x" * 10_000)
    with following(home, max_files=500) as client:
        tracemalloc.start()
        for batch in client.batches:
            if batch.is_last:
                break
        del batch
        kept_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert kept_bytes < 500 * 3000


@pytest.mark.timeout(30)
def test_a_line_without_end_does_not_hold_a_thread(home: Path) -> None:
    """A file of many TiB that has no newline is searched in steps: the call can end, and the daemon too, in between."""
    with (home / "p/a").open("wb") as file:
        file.truncate(1 << 42)
    with following(home, pattern(whole_lines=True)) as client:
        batches = [next(client.batches) for _ in range(3)]
    assert not any(batch.is_last for batch in batches)


def test_an_unfinished_line_is_looked_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no newline is not searched again each time the line gets longer: only its end is compared."""
    path = home / "p/a"
    path.write_bytes(b"x" * MIB)
    pread, read_bytes = os.pread, 0

    def counting(fd: int, size: int, offset: int) -> bytes:
        nonlocal read_bytes
        read_bytes += size
        return pread(fd, size, offset)

    with following(home, pattern(whole_lines=True)) as client:
        client.catch_up()
        monkeypatch.setattr(os, "pread", counting)
        for _ in range(10):
            append(path, b"x" * 10)
            client.catch_up()
    assert read_bytes == 10 * (10 + 2 * 4096)


def test_a_file_rewritten_while_its_lines_are_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line is never sent for a whole one: the file begins again instead."""
    path = home / "p/a"
    path.write_bytes(b"one\ntwo\n")
    pread = os.pread

    def rewriting(fd: int, size: int, offset: int) -> bytes:
        data = pread(fd, size, offset)
        if data == b"one\ntwo\n" and not rewritten:
            rewritten.append(path.write_bytes(b"one, two"))
            return data  # by which the newline is found
        return data

    rewritten: list[int] = []
    monkeypatch.setattr(os, "pread", rewriting)
    with following(home, pattern(whole_lines=True)) as client:
        assert not any(isinstance(part, Data) for part in _first_batch(client))
        append(path, b"\n")
        client.catch_up()
        assert client.contents == {b"p/a": b"one, two\n"}


def _first_batch(client: Followed) -> list[object]:
    batch = next(client.batches)
    for part in batch.parts:
        client.take(part)
    return list(batch.parts)


@pytest.mark.parametrize("kind", ["fifo", "socket", "directory"])
def test_a_file_that_is_swapped_between_look_and_open(home: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """What was opened is what counts: it is not read when it is no regular file."""
    (home / "p/a").write_bytes(b"file")
    make_special(home / "other", kind)
    opened = os.open

    def swapping(path: Any, *arguments: Any, **keywords: Any) -> int:
        return opened(bytes(home / "other") if path == b"a" else path, *arguments, **keywords)

    monkeypatch.setattr(paths, "has_openat2", lambda: False)
    monkeypatch.setattr(os, "open", swapping)
    with following(home) as client:
        assert client.catch_up() == []


@pytest.mark.parametrize("kind", ["link", "fifo", "socket", "directory"])
def test_a_file_that_becomes_something_else_ends(home: Path, *, told: bool, kind: str) -> None:
    """Nothing is followed, waited for or read; a file that comes back begins again."""
    (home.parent / "secret").write_bytes(b"secret")
    path = home / "p/a"
    path.write_bytes(b"file")
    with following(home, told=told) as client:
        client.catch_up()
        path.unlink()
        if kind == "link":
            path.symlink_to(home.parent / "secret")
        else:
            make_special(path, kind)
        assert client.catch_up() == []
        path.rmdir() if kind == "directory" else path.unlink()
        path.write_bytes(b"back")
        client.catch_up()
        assert client.contents == {b"p/a": b"back"}
        assert client.begun == [(b"p/a", 0)] * 2


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(min_size=1, max_size=40)),
        st.tuples(st.just("truncate"), st.integers(0, 60)),
        st.tuples(st.just("replace"), st.binary(max_size=40)),
        st.tuples(st.just("remove"), st.just(b"")),
        st.tuples(st.just("look"), st.just(b"")),
    ),
    max_size=30,
)


@given(changes=CHANGES, whole_lines=st.booleans(), told=st.booleans())
@example(  # the second file is likely to have the inode number of the first
    changes=[("look", b""), ("remove", b""), ("append", b"1"), ("look", b""), ("append", b"2")],
    whole_lines=False,
    told=True,
)
@example(  # the third file is likely to have the inode number of the first, which was searched up to its newline
    changes=[("append", bytes(19)), ("look", b""), ("replace", b""), ("replace", bytes(18) + b"\n\0")],
    whole_lines=True,
    told=False,
)
@settings(max_examples=200)
def test_any_sequence_of_changes(changes: list[tuple[str, bytes | int]], *, whole_lines: bool, told: bool) -> None:
    """Whenever it is looked at, the client has the content, or its whole lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "p/a")
        path.parent.mkdir()
        path.touch()
        with following(Path(folder), pattern(whole_lines=whole_lines), told=told) as client:
            for change, value in [*changes, ("look", b"")]:
                if change == "append" and isinstance(value, bytes):
                    append(path, value)
                elif change == "truncate" and isinstance(value, int) and path.exists():
                    os.truncate(path, min(value, path.stat().st_size))
                elif change == "replace" and isinstance(value, bytes):
                    path.with_name("b").write_bytes(value)
                    path.with_name("b").rename(path)
                elif change == "remove":
                    path.unlink(missing_ok=True)
                else:
                    client.catch_up()
                    if path.exists():
                        content = path.read_bytes()
                        expected = content[: content.rfind(b"\n") + 1] if whole_lines else content
                        assert client.contents[b"p/a"] == expected
