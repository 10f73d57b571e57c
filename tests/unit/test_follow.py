"""Following files: the client ends up with what is there, whatever is done to the files, and with nothing else."""

from __future__ import annotations

import hashlib
import os
import tempfile
import tracemalloc
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.core import follow_folder
from sandbox_agent.core.file import name_matcher
from sandbox_agent.core.follow import Follow
from sandbox_agent.core.follow_file import Data, Held
from sandbox_agent.core.follow_folder import Pattern
from sandbox_agent.core.paths import Roots
from sandbox_api.errors import LimitError
from support.following import Followed
from support.special import make_special

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MIB = 1 << 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A CLI home; beside it lies what must not be reached."""
    (tmp_path / "home" / "p").mkdir(parents=True)
    return tmp_path / "home"


def pattern(directory: str = "p", glob: str = "*", *, whole_lines: bool = False) -> Pattern:
    """Name files to follow."""
    return Pattern(os.fsencode(directory), name_matcher(glob), whole_lines)


@contextmanager
def following(
    home: Path, *patterns: Pattern, held: Mapping[bytes, bytes] | None = None, max_files: int = 100
) -> Iterator[Followed]:
    """Follow files that are looked at each time."""
    named = {path: Held(len(data), hashlib.sha256(data).digest()) for path, data in (held or {}).items()}
    with (
        closing(Roots([bytes(home.parent)])) as roots,
        Follow(roots, bytes(home), patterns or [pattern()], named, max_files=max_files, subscription=None) as follow,
        closing(follow.batches()) as batches,  # type: ignore[type-var]
    ):
        yield Followed(batches, held)


def append(path: Path, data: bytes) -> None:
    """Write at the end of a file."""
    with path.open("ab") as file:
        file.write(data)


def test_files_are_sent_and_then_what_they_gain(home: Path) -> None:
    """Every file begins once and is marked, empty or not; after that only what is appended comes."""
    (home / "p/below").mkdir()
    (home / "p/a").write_bytes(b"one")
    (home / "p/below/b").touch()
    (home / "beside").write_bytes(b"not asked for")
    with following(home) as client:
        client.catch_up()
        assert client.contents == {b"p/a": b"one", b"p/below/b": b""}
        assert client.catch_up() == []
        append(home / "p/a", b", two")
        append(home / "p/below/b", b"three")
        (home / "p/new").write_bytes(b"four")
        client.catch_up()
        assert client.contents == {b"p/a": b"one, two", b"p/below/b": b"three", b"p/new": b"four"}
        assert client.begun == [(b"p/a", 0), (b"p/below/b", 0), (b"p/new", 0)]
        assert client.catch_up() == []


def test_what_the_client_holds_is_not_sent(home: Path) -> None:
    """A beginning that is held is where the data starts; another one, or more than there is, is sent anew."""
    for name in ("same", "grown", "other", "shorter"):
        (home / "p" / name).write_bytes(b"0123456789")
    held = {b"p/same": b"0123456789", b"p/grown": b"01234", b"p/other": b"0123X", b"p/shorter": b"0123456789a"}
    with following(home, held=held) as client:
        client.catch_up()
        assert client.begun == [(b"p/grown", 5), (b"p/other", 0), (b"p/same", 10), (b"p/shorter", 0)]
        assert set(client.contents.values()) == {b"0123456789"}


def test_what_is_held_counts_once(home: Path) -> None:
    """A file that begins again does so at 0, also with the content that was held."""
    (home / "p/a").write_bytes(b"held")
    with following(home, held={b"p/a": b"held"}) as client:
        client.catch_up()
        (home / "p/a").unlink()
        client.catch_up()
        (home / "p/a").write_bytes(b"held")
        client.catch_up()
        assert client.begun == [(b"p/a", 4), (b"p/a", 0)]


@pytest.mark.parametrize("change", ["truncate", "replace", "rewrite", "longer"])
def test_a_file_with_other_content_begins_again(home: Path, change: str) -> None:
    """Truncated, replaced by another, or written anew in place with as much or more."""
    path = home / "p/a"
    path.write_bytes(b"x" * 10_000)
    with following(home) as client:
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


def test_only_whole_lines_are_sent(home: Path) -> None:
    """What follows the last newline waits for its own; the mark is behind the last whole line."""
    path = home / "p/a"
    path.write_bytes(b"one\ntw")
    with following(home, pattern(whole_lines=True)) as client:
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
    with closing(Roots([bytes(home)])) as roots:
        patterns = [pattern(whole_lines=True)]
        with (
            Follow(roots, bytes(home), patterns, {}, max_files=1, subscription=None) as follow,
            closing(follow.batches()) as batches,  # type: ignore[type-var]
        ):
            tracemalloc.start()
            sent_bytes = 0
            for batch in batches:
                sizes = [len(part.data) for part in batch.parts if isinstance(part, Data)]
                assert sum(sizes) <= 2 * MIB
                sent_bytes += sum(sizes)
                if batch.is_last:
                    break
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    assert sent_bytes == (40 * MIB + 1 if ending else 0)
    assert peak_bytes < 6 * MIB


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
    batch = next(client._batches)
    for part in batch.parts:
        client.take(part)
    return list(batch.parts)


@pytest.mark.parametrize("kind", ["link", "fifo", "socket", "directory"])
def test_a_file_that_becomes_something_else_ends(home: Path, kind: str) -> None:
    """Nothing is followed, waited for or read; a file that comes back begins again."""
    (home.parent / "secret").write_bytes(b"secret")
    path = home / "p/a"
    path.write_bytes(b"file")
    with following(home) as client:
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


@pytest.mark.parametrize("folder", ["p", "p/q", "p/q/r"])
def test_a_directory_that_becomes_a_link_is_not_followed(home: Path, folder: str) -> None:
    """The files below it end, what the link leads to is not sent, and all is back when the directory is."""
    (home / "p/q/r").mkdir(parents=True)
    (home / "p/q/r/a").write_bytes(b"file")
    (home.parent / "outside/q/r").mkdir(parents=True)
    for name in ("r/a", "q/r/a", "a", "b"):
        (home.parent / "outside" / name).parent.mkdir(exist_ok=True)
        (home.parent / "outside" / name).write_bytes(b"secret")
    with following(home) as client:
        client.catch_up()
        (home / folder).rename(home / "aside")
        (home / folder).symlink_to(home.parent / "outside")
        assert client.catch_up() == []
        (home / folder).unlink()
        (home / "aside").rename(home / folder)
        client.catch_up()
        append(home / "p/q/r/a", b", more")
        client.catch_up()
        assert client.contents == {b"p/q/r/a": b"file, more"}
        assert client.begun == [(b"p/q/r/a", 0)] * 2


def test_files_of_a_moved_directory_begin_at_their_new_path(home: Path) -> None:
    """A directory that is moved takes its files along."""
    (home / "p/old").mkdir()
    (home / "p/old/a").write_bytes(b"file")
    with following(home) as client:
        client.catch_up()
        (home / "p/old").rename(home / "p/new")
        client.catch_up()
        assert client.begun == [(b"p/old/a", 0), (b"p/new/a", 0)]


@pytest.mark.parametrize("existing", ["", "late", "late/on"])
def test_a_directory_may_come_later(home: Path, existing: str) -> None:
    """Its files are followed once it is there, and so it is after it went."""
    (home / existing).mkdir(parents=True, exist_ok=True)
    with following(home, pattern("late/on/the/way")) as client:
        assert client.catch_up() == []
        for content in (b"first", b"second"):
            (home / "late/on/the/way").mkdir(parents=True)
            (home / "late/on/the/way/a").write_bytes(content)
            client.catch_up()
            assert client.contents == {b"late/on/the/way/a": content}
            (home / "late").rename(home / f"gone-{content.decode()}")
            assert client.catch_up() == []


def test_another_home_at_the_same_path(home: Path) -> None:
    """What is at the path counts, not what was there at the beginning; without a home nothing comes."""
    (home / "p/a").write_bytes(b"old")
    with following(home) as client:
        client.catch_up()
        home.rename(home.parent / "away")
        append(home.parent / "away/p/a", b"er")
        client.catch_up()
        (home / "p").mkdir(parents=True)
        (home / "p/a").write_bytes(b"new")
        client.catch_up()
        assert client.contents == {b"p/a": b"new"}


def test_the_home_itself_can_be_followed(home: Path) -> None:
    """An empty directory stands for it."""
    (home / "a").write_bytes(b"1")
    (home / "p/b").write_bytes(b"2")
    with following(home, pattern("")) as client:
        client.catch_up()
        assert client.contents == {b"a": b"1", b"p/b": b"2"}


def test_names_that_cannot_be_told_are_passed_over(home: Path) -> None:
    """What breaks the rules of paths, lies too deep, or is this daemon's own."""
    for name in (b"a\xff", b"b\\c", b".git/d", b".outpost-file-1", b".outpost-recovery/e", b"f\xff/g"):
        path = home / "p" / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    deep = home / "p" / "/".join("d" * 70)
    deep.mkdir(parents=True)
    (deep / "h").write_bytes(b"x")
    (home / "p/ok").write_bytes(b"x")
    with following(home) as client:
        client.catch_up()
        assert list(client.contents) == [b"p/ok"]


def test_too_many_files_are_refused(home: Path) -> None:
    """At the beginning, and when they come; files that do not match do not count."""
    for number in range(3):
        (home / f"p/{number}.x").touch()
        (home / f"p/{number}.y").touch()
    with following(home, pattern(glob="*.x"), max_files=3) as client:
        client.catch_up()
        (home / "p/3.x").touch()
        with pytest.raises(LimitError, match="max_files"):
            client.catch_up()
    with following(home, max_files=5) as client, pytest.raises(LimitError, match="max_files"):
        client.catch_up()


@pytest.mark.parametrize("folders", ["a b c d", "a/b/c/d"])
def test_too_many_directories_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch, folders: str) -> None:
    """A sandbox cannot have the daemon remember any number of them."""
    monkeypatch.setattr(follow_folder, "MAX_FOLDERS_COUNT", 3)
    for name in folders.split():
        (home / "p" / name).mkdir(parents=True)
    with following(home) as client, pytest.raises(LimitError, match="max_files"):
        client.catch_up()


@pytest.mark.parametrize(("patterns", "expected"), [([True, False], b"one\n"), ([False, True], b"one\ntwo")])
def test_the_first_pattern_counts(home: Path, patterns: Sequence[bool], expected: bytes) -> None:
    """A file that several patterns match is followed once, by the first of them."""
    (home / "p/q").mkdir()
    (home / "p/q/a").write_bytes(b"one\ntwo")
    wide, narrow = (pattern(name, whole_lines=lines) for name, lines in zip(("p", "p/q"), patterns, strict=True))
    with following(home, wide, narrow) as client:
        client.catch_up()
        assert client.contents == {b"p/q/a": expected}


def test_a_home_that_is_missing_is_refused(home: Path) -> None:
    """There is nothing to wait at."""
    with pytest.raises(FileNotFoundError), following(home / "none"):
        pass


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


@given(changes=CHANGES, whole_lines=st.booleans())
@settings(deadline=None, max_examples=150)
def test_any_sequence_of_changes(changes: list[tuple[str, bytes | int]], whole_lines: bool) -> None:  # noqa: FBT001
    """Whenever it is looked at, the client has the content, or its whole lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "p/a")
        path.parent.mkdir()
        path.touch()
        with following(Path(folder), pattern(whole_lines=whole_lines)) as client:
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
