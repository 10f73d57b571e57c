"""Following files: those that match, now and later, wherever directories come and go; and nothing outside."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import follow_folder
from sandbox_api.errors import LimitError
from support.following import append, following, pattern

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A CLI home; beside it lies what must not be reached."""
    (tmp_path / "home" / "p").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture(params=["looked", "told"])
def told(request: pytest.FixtureRequest) -> bool:
    """Run where everything is looked at every time, and where only what the kernel tells of is."""
    return bool(request.param == "told")


def test_files_are_sent_and_then_what_they_gain(home: Path, *, told: bool) -> None:
    """Every file begins once and is marked, empty or not; after that only what is appended comes."""
    (home / "p/below").mkdir()
    (home / "p/a").write_bytes(b"one")
    (home / "p/below/b").touch()
    (home / "beside").write_bytes(b"not asked for")
    with following(home, told=told) as client:
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


def test_files_of_a_moved_directory_begin_at_their_new_path(home: Path, *, told: bool) -> None:
    """A directory that is moved takes its files along."""
    (home / "p/old").mkdir()
    (home / "p/old/a").write_bytes(b"file")
    with following(home, told=told) as client:
        client.catch_up()
        (home / "p/old").rename(home / "p/new")
        client.catch_up()
        assert client.begun == [(b"p/old/a", 0), (b"p/new/a", 0)]


@pytest.mark.parametrize("is_stepwise", [False, True])
def test_a_directory_may_come_later(home: Path, *, told: bool, is_stepwise: bool) -> None:
    """Its files are followed once it is there, in whatever steps what leads to it is made."""
    with following(home, pattern("late/on/the/way"), told=told) as client:
        assert client.catch_up() == []
        for name in ("late", "late/on", "late/on/the", "late/on/the/way"):
            (home / name).mkdir()
            if is_stepwise:
                assert client.catch_up() == []
        (home / "late/on/the/way/a").write_bytes(b"file")
        client.catch_up()
        assert client.contents == {b"late/on/the/way/a": b"file"}


def test_a_directory_may_go_and_come_again(home: Path) -> None:
    """With other files, which begin anew."""
    with following(home, pattern("p/q/r")) as client:
        for content in (b"first", b"second"):
            (home / "p/q/r").mkdir(parents=True)
            (home / "p/q/r/a").write_bytes(content)
            client.catch_up()
            assert client.contents == {b"p/q/r/a": content}
            (home / "p/q").rename(home / content.decode())
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


def test_too_many_files_are_refused(home: Path, *, told: bool) -> None:
    """At the beginning, and when they come; files that do not match do not count."""
    for number in range(3):
        (home / f"p/{number}.x").touch()
        (home / f"p/{number}.y").touch()
    with following(home, pattern(glob="*.x"), max_files=3, told=told) as client:
        client.catch_up()
        (home / "p/3.x").touch()
        with pytest.raises(LimitError, match="max_files"):
            client.catch_up()
    with following(home, max_files=5, told=told) as client, pytest.raises(LimitError, match="max_files"):
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
