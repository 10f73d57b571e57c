"""What restores of files set aside: listed, put back, put back again, pruned, and kept apart from sessions."""

from __future__ import annotations

import os
import time
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import file_set_entry, recovery_entry, syscall
from sandbox_agent.core.file_set_recovery import list_files, prune_files, undo_files
from sandbox_agent.core.recovery import list_recovery, prune_recovery, undo_restore
from sandbox_agent.core.recovery_entry import Sidecar, new_entry_name
from sandbox_api.errors import ConfigurationError, ConflictError, OutpostError, SessionError
from sandbox_api.lock import LockSign
from support.file_set import (
    ID,
    LINES,
    MAIN,
    NEW,
    OLD,
    SHARED,
    conversation,
    home_of,
    make_home,
    place,
    restore_set,
)
from support.filesystem import without_exchange
from support.killed_file_set import PLACED, REPLACED
from support.restoring import files_of, picture, restore_files, restoring_sandbox, staged
from support.sandbox import FLAT, make_session, write
from support.sandbox import place as place_of_session

if TYPE_CHECKING:
    from pathlib import Path


def _folder(agent_home: Path) -> Path:
    return home_of(agent_home) / ".outpost-recovery"


def test_undo_and_undo_again(tmp_path: Path) -> None:
    """An undo puts old files back and takes added ones away; undone itself, all is as the restore left it."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        name = restore_set(held, NEW, lines={SHARED: LINES}).recovery
        shared = (home / SHARED).read_bytes()
        undone = undo_files(held, place(tmp_path), "")
        assert conversation(tmp_path) == OLD
        assert (home / SHARED).read_bytes() == shared
        assert (undone.recovery, undone.restored) == (name, [path.encode() for path in NEW if path in REPLACED])
        assert undone.removed == [b"projects/-ws/S1/tool-results/deep/r.txt"]
        assert files_of(_folder(tmp_path) / name) == PLACED
        again = undo_files(held, place(tmp_path), name)
        assert conversation(tmp_path) == NEW
        assert (again.recovery, again.restored, again.removed) == (name, [path.encode() for path in PLACED], [])
        assert files_of(_folder(tmp_path) / name) == REPLACED
        assert staged(tmp_path) == []


def test_undo_gives_files_the_present_time(tmp_path: Path) -> None:
    """A file that was old when it was replaced is young when it is put back, so that no CLI removes it at once."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        os.utime(home / MAIN, (1, 1))
        restore_set(held, NEW)
        undo_files(held, place(tmp_path), "")
        assert time.time() - (home / MAIN).stat().st_mtime < 60


def test_undo_where_nothing_is_any_more(tmp_path: Path) -> None:
    """When the conversation was removed meanwhile, an undo puts it back, and no entry is left."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path, {MAIN: OLD[MAIN]})
        restore_set(held, {MAIN: NEW[MAIN]})
        (home / MAIN).unlink()
        undone = undo_files(held, place(tmp_path), "")
        assert (undone.recovery, undone.restored, undone.removed) == ("", [MAIN.encode()], [])
        assert conversation(tmp_path) == {MAIN: OLD[MAIN]}
        assert list(_folder(tmp_path).iterdir()) == []


def test_list_newest_first(tmp_path: Path) -> None:
    """Entries of one conversation or of all of the format, with their files; an undo makes its entry the newest."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        names = [restore_set(held, {MAIN: b"%d\n" % number}).recovery for number in range(3)]
        other = replace(place(tmp_path), conversation_id="S2")
        others = restore_set(held, {"projects/-ws/S2.jsonl": b"new"}, other).recovery
        items = list_files(held.roots, place(tmp_path))
        assert [item.name for item in items] == names[::-1]
        assert all((item.conversation_id, item.files) == (ID, [MAIN.encode()]) for item in items)
        assert all(abs(item.set_aside_ns - time.time_ns()) < 60 * 10**9 for item in items)
        all_items = list_files(held.roots, replace(place(tmp_path), conversation_id=""))
        assert [item.name for item in all_items] == [others, *names[::-1]]
        undo_files(held, place(tmp_path), names[0])
        assert [item.name for item in list_files(held.roots, place(tmp_path))] == [names[0], names[2], names[1]]
        assert list_files(held.roots, replace(place(tmp_path), format="else")) == []


def test_entries_of_sessions_and_of_files_do_not_mix(tmp_path: Path) -> None:
    """One home and one id: calls for sessions see sessions alone, calls for files see files alone."""
    of_session = place_of_session(conversation_id=ID)
    of_all = place_of_session(conversation_id="")
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        make_session(tmp_path, {"state.json": b"old"}, conversation_id=ID)
        files_name = restore_set(held, NEW).recovery
        session_name = restore_files(held, {"state.json": b"new"}, of_session).recovery
        assert FLAT.format == place(tmp_path).format
        assert [item.name for item in list_recovery(held, of_all)] == [session_name]
        assert [item.name for item in list_files(held.roots, place(tmp_path))] == [files_name]
        with pytest.raises(SessionError) as caught:
            undo_restore(held, of_session, files_name, force=False)
        assert caught.value.reason == "not_found"
        with pytest.raises(SessionError) as caught:
            undo_files(held, place(tmp_path), session_name)
        assert caught.value.reason == "not_found"
        assert prune_recovery(held, of_all, 0, None) == [session_name]
        assert files_of(_folder(tmp_path) / files_name) == REPLACED
        restore_files(held, {"state.json": b"newer"}, of_session)
        assert prune_files(held, place(tmp_path), 0, None) == [files_name]
        assert len(list_recovery(held, of_all)) == 1


def test_prune(tmp_path: Path) -> None:
    """The newest stay for each conversation, older ones go by either rule; no rule is a mistake."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        names = [restore_set(held, {MAIN: b"%d\n" % number}).recovery for number in range(3)]
        with pytest.raises(ConfigurationError):
            prune_files(held, place(tmp_path), None, None)
        assert prune_files(held, place(tmp_path), None, 3600) == []
        assert prune_files(held, replace(place(tmp_path), conversation_id=""), 1, None) == names[1::-1]
        assert prune_files(held, place(tmp_path), None, 0) == names[2:]
        assert list(_folder(tmp_path).iterdir()) == []
        assert prune_files(held, replace(place(tmp_path), home=b"%b/none" % held.home), 0, None) == []


def test_undo_of_what_is_not_there(tmp_path: Path) -> None:
    """No home, no entry, an entry of another conversation: not found, and nothing changes."""
    with restoring_sandbox(tmp_path) as held:
        for name in ("", new_entry_name(ID)):
            with pytest.raises(SessionError) as caught:
                undo_files(held, place(tmp_path), name)
            assert caught.value.reason == "not_found"
        make_home(tmp_path)
        other = restore_set(held, NEW, replace(place(tmp_path), conversation_id="other")).recovery
        with pytest.raises(SessionError) as caught:
            undo_files(held, place(tmp_path), other)
        assert caught.value.reason == "not_found"
        assert conversation(tmp_path) == NEW


def test_list_of_many_files(tmp_path: Path) -> None:
    """An entry tells how many files it has, but names only some: the sandbox may make any number of such entries."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        name = restore_set(held, NEW).recovery
        told = (_folder(tmp_path) / f"{name}.json").read_bytes().partition(b"\n")[0]
        lines = [told, *(b'{"file": "%d"}' % number for number in range(200)), b""]
        (_folder(tmp_path) / f"{name}.json").write_bytes(b"\n".join(lines))
        [item] = list_files(held.roots, place(tmp_path))
    assert (item.files, item.files_count) == ([b"%d" % number for number in range(100)], 200)


def test_forged_list_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of as many lines as fit is not taken apart before it is known to have too many."""
    monkeypatch.setattr(file_set_entry, "MAX_LINES_BYTES", 3 << 20)
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        name = restore_set(held, NEW).recovery
        told = (_folder(tmp_path) / f"{name}.json").read_bytes().partition(b"\n")[0]
        (_folder(tmp_path) / f"{name}.json").write_bytes(told + b"\n" + b"00\n" * (1 << 20))
        tracemalloc.start()
        [item] = list_files(held.roots, place(tmp_path))
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (item.files, item.files_count) == ([], 0)
    assert peak_bytes < 5 * (3 << 20)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b"no json"],
        [b"[]"],
        [b'{"file": "../../outside"}'],
        [b'{"file": ".outpost-recovery/x"}'],
        [b'{"file": "a"}', b'{"file": "a"}'],
        [b'{"file": "a"}', b'{"file": "a/b"}'],
        [b'{"file": "\\ud800"}'],
        [b"[" * 100_000],
    ],
)
def test_forged_list_of_files(tmp_path: Path, lines: list[bytes]) -> None:
    """A list that no restore wrote is told as unknown, and not acted on."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        name = restore_set(held, NEW).recovery
        path = _folder(tmp_path) / f"{name}.json"
        head = path.read_bytes().split(b"\n")[0]
        path.write_bytes(b"\n".join([head, *lines, b""]))
        assert [item.files for item in list_files(held.roots, place(tmp_path))] == [[]]
        before = picture(tmp_path)
        with pytest.raises(SessionError):
            undo_files(held, place(tmp_path), "")
        assert picture(tmp_path) == before
        assert prune_files(held, place(tmp_path), 0, None) == [name]


@pytest.mark.parametrize("where", ["entry", "home"])
@pytest.mark.parametrize("kind", ["link", "directory"])
def test_undo_with_something_odd(tmp_path: Path, where: str, kind: str) -> None:
    """A link or directory where a file was is refused before anything moves."""
    outside = tmp_path / "outside"
    write(outside, {"x": b"kept"})
    with restoring_sandbox(tmp_path / "home") as held:
        home = make_home(tmp_path / "home")
        name = restore_set(held, NEW).recovery
        odd = (home if where == "home" else _folder(tmp_path / "home") / name) / "plans/S1.md"
        odd.unlink()
        odd.symlink_to(outside / "x") if kind == "link" else odd.mkdir()
        before = picture(tmp_path)
        with pytest.raises((OutpostError, OSError)):
            undo_files(held, place(tmp_path / "home"), "")
        assert picture(tmp_path) == before


def test_undo_of_what_is_open(tmp_path: Path) -> None:
    """A running process that has the conversation open refuses an undo; force overrides."""
    sign = LockSign("sessions", r"^(?P<pid>\d+)\.json$")
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        restore_set(held, NEW)
        write(home, {f"sessions/{os.getpid()}.json": b"{}"})
        with pytest.raises(ConflictError) as caught:
            undo_files(held, place(tmp_path, signs=[sign]), "")
        assert caught.value.reason == "in_use"
        undo_files(held, place(tmp_path, signs=[sign], force=True), "")
        assert (home / MAIN).read_bytes() == OLD[MAIN]


@pytest.mark.parametrize("has_exchange", [False, True])
def test_undo_that_fails_halfway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_exchange: bool) -> None:
    """An error in the middle leaves files and entry as they were, and no note."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        name = restore_set(held, NEW).recovery
        before = picture(home_of(tmp_path))
        with monkeypatch.context() as patch:
            if not has_exchange:
                without_exchange(patch)
            patch.setattr(syscall, "syncfs", _fail)
            with pytest.raises(OSError, match="injected"):
                undo_files(held, place(tmp_path), "")
        after = {path: data for path, data in picture(home_of(tmp_path)).items() if data != "dir"}
        assert after == {path: data for path, data in before.items() if data != "dir"}
        assert staged(tmp_path) == []
        assert undo_files(held, place(tmp_path), "").recovery == name


def _fail(*_: object) -> None:
    raise OSError(5, "injected")


def test_sidecar_tells_its_kind(tmp_path: Path) -> None:
    """What stands beside an entry of files is read as such from its first line, however long the rest is."""
    with restoring_sandbox(tmp_path) as held, held.roots.directory(os.fsencode(tmp_path)) as folder:
        name = new_entry_name(ID)
        sidecar = Sidecar("demo", b"", is_file_set=True)
        paths = [b"a/%06d" % number for number in range(5000)]
        recovery_entry.write_sidecar(folder, name, sidecar, None, durable=True, files=paths)
        assert recovery_entry.read_sidecar(folder, name) == sidecar
        assert (tmp_path / f"{name}.json").stat().st_mode & 0o777 == 0o600
