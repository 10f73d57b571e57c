"""A restore of files: what is in place after it, what is set aside, and what refuses it."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import file_set_record, syscall
from sandbox_agent.core.file_set_commit import Commit
from sandbox_api.limits import MAX_FILES_COUNT
from support.file_set import (
    LINES,
    MAIN,
    NEW,
    OLD,
    OTHERS,
    SHARED,
    conversation,
    home_of,
    make_home,
    open_set,
    place,
    restore_set,
)
from support.restoring import files_of, restoring_sandbox, staged

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox_agent.core.file_set_commit import Planned

REPLACED = {path: data for path, data in OLD.items() if NEW[path] != data}


def _age(path: Path) -> None:
    os.utime(path, (1, 1))


def _is_young(path: Path) -> bool:
    return abs(path.stat().st_mtime - time.time()) < 60


@pytest.mark.parametrize("full_durability", [False, True])
def test_all_files_are_replaced_and_set_aside(tmp_path: Path, *, full_durability: bool) -> None:
    """New files are in place, what they replaced is in recovery, others' files are as they were, nothing is staged."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        result = restore_set(held, NEW, lines={SHARED: LINES}, full_durability=full_durability)
    assert conversation(tmp_path) == NEW
    assert files_of(home / ".outpost-recovery" / result.recovery) == REPLACED
    assert result.replaced == [path.encode() for path in NEW if path in REPLACED]
    assert result.added == [path.encode() for path in NEW if path not in OLD]
    assert not result.is_unchanged
    assert (home / SHARED).read_bytes() == OTHERS[SHARED] + LINES
    assert (home / "projects/-ws/S2.jsonl").read_bytes() == OTHERS["projects/-ws/S2.jsonl"]
    assert staged(tmp_path) == []


def test_home_that_is_missing_is_made(tmp_path: Path) -> None:
    """The first conversation of a home makes it, private; nothing is set aside."""
    with restoring_sandbox(tmp_path) as held:
        result = restore_set(held, NEW, lines={SHARED: LINES})
    assert result.recovery == ""
    assert set(result.added) == {path.encode() for path in (*NEW, SHARED)}
    assert {path: data for path, data in files_of(home_of(tmp_path)).items() if path != SHARED} == NEW
    for path in (home_of(tmp_path), *(home_of(tmp_path) / name for name in ("projects", "projects/-ws/S1"))):
        assert path.stat().st_mode & 0o777 == 0o700
    assert (home_of(tmp_path) / SHARED).stat().st_mode & 0o777 == 0o600
    assert not (home_of(tmp_path) / ".outpost-recovery").exists()


def test_home_may_be_a_root_itself(tmp_path: Path) -> None:
    """A daemon whose root is the home restores into it."""
    with restoring_sandbox(tmp_path) as held:
        restore_set(held, {"a.jsonl": b"1"}, replace(place(tmp_path), home=os.fsencode(tmp_path)))
    assert (tmp_path / "a.jsonl").read_bytes() == b"1"


def test_same_again_is_unchanged(tmp_path: Path) -> None:
    """What is there byte for byte keeps its inode and gets the present time; there is no recovery entry."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path, NEW)
        (home / SHARED).write_bytes(OTHERS[SHARED] + LINES)
        for path in NEW:
            _age(home / path)
        before = {path: (home / path).stat().st_ino for path in NEW}
        result = restore_set(held, NEW, lines={SHARED: LINES})
        assert (result.is_unchanged, result.recovery, result.replaced, result.added) == (True, "", [], [])
        assert {path: (home / path).stat().st_ino for path in NEW} == before
        assert all(_is_young(home / path) for path in NEW)
        assert staged(tmp_path) == []
        assert not (home / ".outpost-recovery").exists()


def test_unchanged_file_among_new_ones_gets_the_present_time(tmp_path: Path) -> None:
    """CLIs remove companions that have not changed for long: all files of the conversation are young afterwards."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        for path in OLD:
            _age(home / path)
        kept = (home / "todos/S1.json").stat().st_ino
        restore_set(held, NEW)
        assert (home / "todos/S1.json").stat().st_ino == kept
        assert all(_is_young(home / path) for path in NEW)


def test_same_size_is_not_the_same(tmp_path: Path) -> None:
    """A file of equal size and other content is replaced."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path, {"todos/S1.json": b"s4me"})
        assert restore_set(held, {"todos/S1.json": b"same"}).replaced == [b"todos/S1.json"]
    assert conversation(tmp_path) == {"todos/S1.json": b"same"}


def test_only_missing_lines_are_a_change(tmp_path: Path) -> None:
    """Where all files are there and a line is not, it is added and nothing is set aside."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path, NEW)
        result = restore_set(held, NEW, lines={SHARED: LINES})
        assert (result.is_unchanged, result.recovery, result.added) == (False, "", [])
        assert (home / SHARED).read_bytes() == OTHERS[SHARED] + LINES
        assert staged(tmp_path) == []


def test_modes(tmp_path: Path) -> None:
    """A file has the mode that was asked for, or 0600."""
    with restoring_sandbox(tmp_path) as held, open_set(held) as one:
        for path, mode in ((b"a", 0o640), (b"b", 0)):
            one.begin_file(path, mode, append_lines=False)
            one.end_file(hashlib.sha256().digest())
        one.commit(2, 0)
    assert [(home_of(tmp_path) / name).stat().st_mode & 0o777 for name in "ab"] == [0o640, 0o600]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner(tmp_path: Path) -> None:
    """All that is made belongs to the owner; a file that is there with another one is replaced."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        result = restore_set(held, NEW, lines={"new.jsonl": LINES}, owner=(1001, 1002))
        assert b"todos/S1.json" in result.replaced
        made = [*NEW, "new.jsonl", "projects/-ws/S1/tool-results/deep", ".outpost-recovery"]
        made.append(f".outpost-recovery/{result.recovery}.json")
        for path in made:
            status = (home / path).stat()
            assert (status.st_uid, status.st_gid) == (1001, 1002), path
        assert (home / SHARED).stat().st_uid == 0


def test_last_file_is_moved_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files take their places in the order in which they were sent: whoever sees the last one sees all."""
    moved = []
    real = syscall.renameat2

    def note(old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
        moved.append(new)
        real(old_fd, old, new_fd, new, flags)

    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        monkeypatch.setattr(syscall, "renameat2", note)
        restore_set(held, NEW)
    assert moved[:-1] == [path.rpartition("/")[2].encode() for path in NEW if OLD.get(path) != NEW[path]]


def test_most_files_fit_into_a_note() -> None:
    """The decision about as many files as are allowed, with names of an ordinary length, is one a sweep reads."""
    path = (
        b"projects/-home-somebody-a-project/00000000-0000-0000-0000-000000000000/subagents/agent-0123456789abcdef.jsonl"
    )
    moves = [file_set_record.Move(path, 1 << 60, 1 << 60)] * MAX_FILES_COUNT
    size = sum(len(json.dumps(line)) + 1 for line in file_set_record.decision(moves, []))
    assert size < file_set_record.MAX_LINES_BYTES


def test_what_is_to_be_last_takes_its_place_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A main transcript that comes first is moved behind its companions, which keep their order."""
    moved: list[str] = []
    real = Commit._move

    def move(commit: Commit, index: int, planned: Planned) -> None:
        moved.append(planned.path.decode())
        real(commit, index, planned)

    monkeypatch.setattr(Commit, "_move", move)
    files = {MAIN: NEW[MAIN], **{path: data for path, data in NEW.items() if path != MAIN}}
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path, {})
        with open_set(held) as one:
            for path, data in files.items():
                one.begin_file(path.encode(), 0, append_lines=False, placed_last=path == MAIN)
                one.feed(data)
                one.end_file(hashlib.sha256(data).digest())
            one.commit(len(files), sum(map(len, files.values())))
        assert moved == [path for path in files if path != MAIN] + [MAIN]
        assert conversation(tmp_path) == NEW
