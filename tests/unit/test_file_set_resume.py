"""Restores of files that go on with what broken attempts of the same id have staged, in the daemon's core."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.file_set import FileSet
from sandbox_agent.core.file_set_record import FileSetRecord
from sandbox_agent.core.file_set_resume import list_staged
from sandbox_agent.core.kept import Kept
from sandbox_api.errors import ConflictError, SessionError
from support.file_set import FORMAT, ID, MAIN, NEW, OLD, conversation, home_of, make_home, place
from support.restoring import restoring_sandbox

if TYPE_CHECKING:
    from sandbox_agent.core.file_set_resume import StagedFile
    from sandbox_agent.core.sandbox import Sandbox

RESTORE_ID = "r-1"
MAIN_BYTES = len(NEW[MAIN])


class StreamError(Exception):
    """Stands for whatever a broken stream raises."""


def attempt(held: Sandbox, restore_id: str = RESTORE_ID) -> FileSet:
    """Return a restore, not entered."""
    where = place(Path(os.fsdecode(held.home)))
    return FileSet(held, where, full_durability=False, owner=None, expected_bytes=1, restore_id=restore_id)


def break_set(held: Sandbox, main_bytes: int, restore_id: str = RESTORE_ID) -> None:
    """Send everything but for the end of the main transcript, then break the stream."""
    with suppress(StreamError), attempt(held, restore_id) as one:
        for path, data in NEW.items():
            one.begin_file(path.encode(), 0, append_lines=False)
            one.feed(data[:main_bytes] if path == MAIN else data)
            if path != MAIN:
                one.end_file(hashlib.sha256(data).digest())
        one.keep()
        raise StreamError


def staged(held: Sandbox, restore_id: str = RESTORE_ID) -> dict[str, StagedFile]:
    """Return what waits."""
    home = os.fsencode(home_of(Path(os.fsdecode(held.home))))
    record = FileSetRecord(home, FORMAT, ID, "", restore_id=restore_id)
    return {file.path.decode(): file for file in list_staged(held, record)}


def go_on(held: Sandbox, files: dict[str, StagedFile]) -> None:
    """Restore with all that waits."""
    with attempt(held) as one:
        for path, data in NEW.items():
            have = files.get(path)
            begin = partial(one.begin_file, path.encode(), 0, append_lines=False)
            begin(from_offset=have.size, prefix_sha256=have.sha256) if have else begin()
            one.feed(data[have.size if have else 0 :])
            one.end_file(hashlib.sha256(data).digest())
        one.commit(len(NEW), sum(map(len, NEW.values())))


def send_wrongly(held: Sandbox) -> None:
    """Send a file with a digest that is not its own."""
    with attempt(held) as one:
        one.begin_file(MAIN.encode(), 0, append_lines=False)
        one.end_file(bytes(32))


def stagings(agent_home: Path) -> list[Path]:
    """Return the staging directories."""
    return list(home_of(agent_home).glob(".outpost-session-*"))


@pytest.mark.parametrize("main_bytes", [0, 1, 4000, MAIN_BYTES])
def test_the_rest_is_put_behind_what_waits(tmp_path: Path, main_bytes: int) -> None:
    """Wherever it broke, all that waits is told with its digest, and the result is the same; nothing is left."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        break_set(held, main_bytes)
        assert conversation(tmp_path) == OLD
        waiting = staged(held)
        # What the home has already was not staged.
        assert waiting.keys() == NEW.keys() - {"todos/S1.json"}
        assert waiting[MAIN] == (MAIN.encode(), main_bytes, hashlib.sha256(NEW[MAIN][:main_bytes]).digest())
        go_on(held, {path: file for path, file in waiting.items() if file.size})
        assert conversation(tmp_path) == NEW
        assert not stagings(tmp_path)
        assert staged(held) == {}


def test_several_attempts_are_all_gone_on_with(tmp_path: Path) -> None:
    """What an attempt had not asked for when it broke waits on beside what it had taken; the most of a file is told."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        break_set(held, 4000)
        break_set(held, 2000)
        assert len(stagings(tmp_path)) == 2
        waiting = staged(held)
        assert waiting[MAIN].size == 4000
        go_on(held, waiting)
        assert conversation(tmp_path) == NEW
        assert not stagings(tmp_path)


def test_a_file_that_is_nearly_all_hole_is_not_read(tmp_path: Path) -> None:
    """The sandbox can make what waits larger than a daemon could ever hash; it is sent again."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        break_set(held, 4000)
        os.truncate(stagings(tmp_path)[0] / MAIN, 1 << 43)
        waiting = staged(held)
        assert waiting
        assert MAIN not in waiting
        go_on(held, waiting)
        assert conversation(tmp_path) == NEW
        assert not stagings(tmp_path)


def test_an_attempt_that_fails_otherwise_leaves_nothing(tmp_path: Path) -> None:
    """What waited goes with an attempt that was refused: it cannot be told what of it is wrong."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        break_set(held, 4000)
        with pytest.raises(SessionError):
            send_wrongly(held)
        assert conversation(tmp_path) == OLD
        assert not stagings(tmp_path)


@pytest.mark.parametrize("what", ["shorter", "other", "link", "hard link", "fifo", "directory", "gone"])
def test_what_is_not_as_it_was_is_refused(tmp_path: Path, what: str) -> None:
    """The sandbox may do what it likes with what waits: a file that does not begin as was told is a conflict."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        break_set(held, 4000)
        waiting = staged(held)[MAIN]
        path = stagings(tmp_path)[0] / MAIN
        content = path.read_bytes()
        path.unlink()
        match what:
            case "shorter":
                path.write_bytes(content[:-1])
            case "other":
                path.write_bytes(b"x" + content[1:])
            case "link":
                (tmp_path / "elsewhere").write_bytes(content)
                path.symlink_to(tmp_path / "elsewhere")
            case "hard link":
                (tmp_path / "elsewhere").write_bytes(content)
                path.hardlink_to(tmp_path / "elsewhere")
            case "fifo":
                os.mkfifo(path)
            case "directory":
                path.mkdir()
            case _:
                pass
        assert staged(held).get(MAIN) != waiting
        with pytest.raises((ConflictError, OSError)), attempt(held) as one:
            one.begin_file(MAIN.encode(), 0, append_lines=False, from_offset=4000, prefix_sha256=waiting.sha256)
        assert conversation(tmp_path) == OLD
        assert not stagings(tmp_path)


def test_only_an_attempt_with_an_id_goes_on_and_never_with_lines(tmp_path: Path) -> None:
    """An offset without an id, or for lines that are appended, breaks the rules."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        break_set(held, 4000)
        waiting = staged(held)[MAIN]
        for restore_id, is_lines in (("", False), (RESTORE_ID, True)):
            with pytest.raises(SessionError) as caught, attempt(held, restore_id) as one:
                one.begin_file(MAIN.encode(), 0, append_lines=is_lines, from_offset=4000, prefix_sha256=waiting.sha256)
            assert caught.value.reason == "protocol"


def test_attempts_of_one_id_exclude_each_other(tmp_path: Path) -> None:
    """While one is at work another of the id, and the question what waits, are refused; other ids are not."""
    with restoring_sandbox(tmp_path) as held:
        held.journal.kept = Kept(max_wait_seconds=0)
        make_home(tmp_path)
        with attempt(held):
            with pytest.raises(ConflictError) as caught, attempt(held):
                pass
            assert caught.value.reason == "busy"
            with pytest.raises(ConflictError):
                staged(held)
            with attempt(held, "r-2"):
                assert len(stagings(tmp_path)) == 2


def test_it_goes_when_its_time_is_over(tmp_path: Path) -> None:
    """The sweep removes what waited too long, and its note; asked about, it waits the whole time again."""
    now = [0.0]
    with restoring_sandbox(tmp_path) as held:
        held.journal.kept = Kept(60, now=lambda: now[0])
        make_home(tmp_path)
        break_set(held, 4000)
        now[0] = 50
        assert MAIN in staged(held)
        now[0] = 100
        held.journal.sweep(held.roots)
        assert stagings(tmp_path)
        now[0] = 120
        held.journal.sweep(held.roots)
        assert not stagings(tmp_path)
        assert staged(held) == {}


def test_nothing_waits_in_a_home_that_is_not_there(tmp_path: Path) -> None:
    """A question about a home that was never made is answered by nothing, and makes nothing."""
    with restoring_sandbox(tmp_path) as held:
        assert staged(held) == {}
        assert not home_of(tmp_path).exists()
