"""Recovery: what was set aside is listed, put back and pruned; what is not ours is left alone."""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sandbox_agent.core import recovery_folder, syscall, undo
from sandbox_agent.core.recovery import list_recovery, prune_recovery, undo_restore
from sandbox_api.errors import ConfigurationError, ConflictError, SessionError, WorkspaceError
from support.filesystem import without_exchange, without_flags, without_moves
from support.restoring import NEW, OLD, files_of, picture, restore_files, restoring_sandbox, staged
from support.sandbox import BUCKETED, FLAT, ID, make_session, place, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UUID = "01234567-89ab-cdef-0123-456789abcdef"
THIRD = {"state.json": b"third"}


def _folder(home: Path) -> Path:
    return home / ".demo/.outpost-recovery"


def _session(home: Path, bucket: str = "") -> Path:
    return home / ".demo/sessions" / bucket / ID


def test_list_is_newest_first(tmp_path: Path) -> None:
    """Each replaced session is listed with its place and moment; of one conversation when an id is given."""
    with restoring_sandbox(tmp_path) as held:
        start_ns = time.time_ns() - 10**9
        restore_files(held, OLD)
        names = [restore_files(held, files).recovery for files in (NEW, THIRD)]
        other = place(conversation_id="other")
        restore_files(held, OLD, other)
        names.append(restore_files(held, NEW, other).recovery)
        items = list_recovery(held, place(conversation_id=""))
        assert [item.name for item in items] == names[::-1]
        assert {item.session_path for item in items[1:]} == {os.fsencode(_session(tmp_path))}
        assert all(start_ns < item.set_aside_ns < time.time_ns() + 10**9 for item in items)
        assert [item.conversation_id for item in items] == ["other", ID, ID]
        assert [item.name for item in list_recovery(held, place())] == names[1::-1]


def test_list_without_anything(tmp_path: Path) -> None:
    """No CLI home and no recovery folder mean nothing was set aside."""
    with restoring_sandbox(tmp_path) as held:
        assert list_recovery(held, place()) == []
        assert prune_recovery(held, place(), 0, None) == []
        (tmp_path / ".demo").mkdir()
        assert list_recovery(held, place()) == []
        assert prune_recovery(held, place(), 0, None) == []


def test_undo_and_undo_of_the_undo(tmp_path: Path) -> None:
    """An undo exchanges the session and its entry, so that a second one brings the first state back."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        name = restore_files(held, NEW).recovery
        before = picture(tmp_path)
        target, kept = undo_restore(held, place(), name, force=False)
        assert (target, kept) == (os.fsencode(_session(tmp_path)), name)
        assert files_of(_session(tmp_path)) == OLD
        assert files_of(_folder(tmp_path) / name) == NEW
        assert undo_restore(held, place(), "", force=False) == (target, name)
        assert picture(tmp_path) == before


def test_undo_where_nothing_is(tmp_path: Path) -> None:
    """With no session in place, the entry moves there, folders are made again, and nothing is kept."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD, place(BUCKETED))
        restore_files(held, NEW, place(BUCKETED))
        _session(tmp_path, "b").rename(tmp_path / "gone")
        _session(tmp_path, "b").parent.rmdir()
        target, kept = undo_restore(held, place(BUCKETED), "", force=False)
        assert (target, kept) == (os.fsencode(_session(tmp_path, "b")), "")
        assert files_of(_session(tmp_path, "b")) == OLD
        assert list(_folder(tmp_path).iterdir()) == []
        with pytest.raises(SessionError) as caught:
            undo_restore(held, place(BUCKETED), "", force=False)
        assert caught.value.reason == "not_found"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_undo_keeps_the_owner(tmp_path: Path) -> None:
    """Folders that an undo makes, and what it writes, belong to who owns what was set aside."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD, place(BUCKETED), owner=(1001, 1001))
        name = restore_files(held, NEW, place(BUCKETED), owner=(1001, 1001)).recovery
        (_folder(tmp_path) / f"{name}.json").unlink()
        undo_restore(held, place(BUCKETED), "", force=False)
        (_session(tmp_path, "b")).rename(tmp_path / "gone")
        _session(tmp_path, "b").parent.rmdir()
        undo_restore(held, place(BUCKETED), "", force=False)
        assert {path.stat().st_uid for path in (tmp_path / ".demo").rglob("*")} == {1001}


@pytest.mark.parametrize(
    "lack",
    [without_exchange, without_flags, lambda patch: without_moves(patch, lambda name: name.startswith(ID.encode()))],
    ids=["no exchange", "no flags", "image layer"],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_undo_on_other_file_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: Callable[[pytest.MonkeyPatch], None], *, is_there: bool
) -> None:
    """Where nothing can be exchanged or moved, a copy is put in place and the entry goes; it can be undone as well."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        name = restore_files(held, NEW).recovery
        if not is_there:
            _session(tmp_path).rename(tmp_path / "gone")
        lack(monkeypatch)
        _, kept = undo_restore(held, place(), name, force=False)
        assert files_of(_session(tmp_path)) == OLD
        assert [item.name for item in list_recovery(held, place())] == ([kept] if is_there else [])
        assert staged(tmp_path) == []
        if is_there:
            assert files_of(_folder(tmp_path) / kept) == NEW
            undo_restore(held, place(), "", force=False)
            assert files_of(_session(tmp_path)) == NEW


def test_undo_by_a_copy_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the copy is in place the undo has succeeded, also when its original cannot be removed."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        name = restore_files(held, NEW).recovery
        without_exchange(monkeypatch)

        def refuse(*_: object) -> None:
            raise PermissionError(errno.EACCES, "injected")

        monkeypatch.setattr(undo, "remove_tree", refuse)
        _, kept = undo_restore(held, place(), name, force=False)
        assert files_of(_session(tmp_path)) == OLD
        assert {item.name for item in list_recovery(held, place())} == {name, kept}


def test_undo_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync that fails after the exchange takes the exchange back."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        name = restore_files(held, NEW).recovery
        before = picture(tmp_path)

        def fail(*_: object) -> None:
            raise OSError(errno.EIO, "injected")

        monkeypatch.setattr("sandbox_agent.core.undo._sync", fail)
        with pytest.raises(Exception, match="EIO"):
            undo_restore(held, place(), name, force=False)
        assert picture(tmp_path) == before
        _session(tmp_path).rename(tmp_path / "gone")
        with pytest.raises(Exception, match="EIO"):
            undo_restore(held, place(), name, force=False)
        assert files_of(_folder(tmp_path) / name) == OLD


@pytest.mark.parametrize("which", ["session", "entry"])
def test_undo_gets_hold_of_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """What was put under either name at the last moment goes back to where it was."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        name = restore_files(held, NEW).recovery
        path = _session(tmp_path) if which == "session" else _folder(tmp_path) / name
        real = syscall.renameat2
        raced: list[bool] = []

        def racing(old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
            if not raced:
                raced.append(True)
                path.rename(tmp_path / "moved away")
                write(path, THIRD)
            real(old_fd, old, new_fd, new, flags)

        monkeypatch.setattr(syscall, "renameat2", racing)
        with pytest.raises(ConflictError) as caught:
            undo_restore(held, place(), name, force=False)
        assert caught.value.reason == "target_changed"
        assert files_of(_session(tmp_path)) == (THIRD if which == "session" else NEW)
        assert files_of(_folder(tmp_path) / name) == (THIRD if which == "entry" else OLD)


def test_undo_is_refused(tmp_path: Path) -> None:
    """Unknown names, names of other conversations, sessions in use and other buckets are refused; nothing moves."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD, place(BUCKETED))
        name = restore_files(held, NEW, place(BUCKETED)).recovery
        before = picture(tmp_path)
        for where, wanted in (
            (place(BUCKETED), f"{ID}-{UUID}"),
            (place(BUCKETED), "../x"),
            (place(BUCKETED, conversation_id="other"), name),
        ):
            with pytest.raises(SessionError) as caught:
                undo_restore(held, where, wanted, force=False)
            assert caught.value.reason == "not_found"
        lock = _session(tmp_path, "b") / f"inuse.{os.getpid()}.lock"
        lock.write_bytes(b"")
        with pytest.raises(ConflictError) as conflict:
            undo_restore(held, place(BUCKETED), name, force=False)
        assert conflict.value.reason == "in_use"
        lock.unlink()
        _session(tmp_path, "b").rename(tmp_path / "gone")
        make_session(tmp_path, OLD, bucket="elsewhere")
        with pytest.raises(ConflictError) as conflict:
            undo_restore(held, place(BUCKETED), name, force=False)
        assert conflict.value.reason == "other_bucket"
        (tmp_path / "gone").rename(_session(tmp_path, "b"))
        (tmp_path / ".demo/sessions/elsewhere" / ID).rename(tmp_path / "elsewhere")
        (tmp_path / ".demo/sessions/elsewhere").rmdir()
        assert {path: data for path, data in picture(tmp_path).items() if not path.startswith("elsewhere")} == before


@pytest.mark.parametrize("sidecar", [None, b"", b"[]", b'{"version": 1, "format": "demo", "session": "../../x"}'])
def test_entry_of_another_implementation(tmp_path: Path, sidecar: bytes | None) -> None:
    """An entry without a place that could be true goes to where the format keeps its id."""
    with restoring_sandbox(tmp_path) as held:
        make_session(tmp_path, NEW)
        write(_folder(tmp_path) / f"{ID}-{UUID}", OLD)
        if sidecar is not None:
            (_folder(tmp_path) / f"{ID}-{UUID}.json").write_bytes(sidecar)
        [item] = list_recovery(held, place())
        assert item.session_path == os.fsencode(_session(tmp_path))
        undo_restore(held, place(), "", force=False)
        assert files_of(_session(tmp_path)) == OLD
        told = json.loads((_folder(tmp_path) / f"{ID}-{UUID}.json").read_text()) if sidecar != b"" else {}
        assert told.get("session", f"sessions/{ID}").endswith((ID, "x"))
        undo_restore(held, place(), "", force=False)
        assert files_of(_session(tmp_path)) == NEW


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "surrogate"])
def test_forged_sidecar_hides_no_entry(tmp_path: Path, kind: str) -> None:
    """What the sandbox puts beside an entry does not keep recovery from being listed, pruned and undone."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        restore_files(held, NEW)
        write(_folder(tmp_path) / f"forged-{UUID}", OLD)
        forged = _folder(tmp_path) / f"forged-{UUID}.json"
        if kind == "link":
            forged.symlink_to("/etc/passwd")
        elif kind == "fifo":
            os.mkfifo(forged)
        elif kind == "directory":
            forged.mkdir()
        else:
            forged.write_text('{"version": 1, "format": "demo", "session": "sessions/\\ud800"}')
        assert len(list_recovery(held, place(conversation_id=""))) == 2
        undo_restore(held, place(), "", force=False)
        assert files_of(_session(tmp_path)) == OLD
        assert len(prune_recovery(held, place(conversation_id=""), 0, None)) == 2
        assert list(_folder(tmp_path).iterdir()) == []


def test_bucket_of_an_entry_of_another_implementation(tmp_path: Path) -> None:
    """Its bucket is the one that has the id now; with none, or with several, it is not known."""
    with restoring_sandbox(tmp_path) as held:
        write(_folder(tmp_path) / f"{ID}-{UUID}", OLD)
        [item] = list_recovery(held, place(BUCKETED))
        assert item.session_path == b""
        with pytest.raises(SessionError) as caught:
            undo_restore(held, place(BUCKETED), "", force=False)
        assert caught.value.reason == "not_found"
        make_session(tmp_path, NEW, bucket="x")
        make_session(tmp_path, NEW, bucket="y")
        with pytest.raises(SessionError) as caught:
            undo_restore(held, place(BUCKETED), "", force=False)
        assert (caught.value.reason, caught.value.offender_count) == ("ambiguous", 2)
        _session(tmp_path, "y").rename(tmp_path / "gone")
        undo_restore(held, place(BUCKETED), "", force=False)
        assert files_of(_session(tmp_path, "x")) == OLD
        [item] = list_recovery(held, place(BUCKETED))
        assert item.session_path == os.fsencode(_session(tmp_path, "x"))


def test_foreign_things_in_the_folder(tmp_path: Path) -> None:
    """What has another name or kind, or is of another format, is neither listed nor pruned."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        restore_files(held, NEW)
        folder = _folder(tmp_path)
        write(folder / "theirs", {"a": b""})
        write(folder / f"{ID}-{UUID[:-1]}", {"a": b""})
        (folder / f"file-{UUID}").write_bytes(b"")
        (folder / f"link-{UUID}").symlink_to("/etc")
        write(folder / f"other-{UUID}", {"a": b""})
        (folder / f"other-{UUID}.json").write_text('{"version": 1, "format": "else", "session": "sessions/other"}')
        (folder / os.fsdecode(b"\xff")).write_bytes(b"")
        assert len(list_recovery(held, place(conversation_id=""))) == 1
        assert len(prune_recovery(held, place(conversation_id=""), 0, None)) == 1
        assert len(list(folder.iterdir())) == 7
        elsewhere = place(replace(FLAT, format="else"), conversation_id="")
        assert [item.conversation_id for item in list_recovery(held, elsewhere)] == ["other"]


def test_prune_by_count(tmp_path: Path) -> None:
    """The newest of each conversation are kept; trees and their files go together."""
    with restoring_sandbox(tmp_path) as held:
        names = [restore_files(held, {"state.json": b"%d" % number}).recovery for number in range(4)]
        other = place(conversation_id="other")
        restore_files(held, OLD, other)
        kept = restore_files(held, NEW, other).recovery
        assert prune_recovery(held, place(conversation_id=""), 1, None) == names[2:0:-1]
        assert sorted(path.name for path in _folder(tmp_path).iterdir()) == sorted(
            [kept, f"{kept}.json", names[3], f"{names[3]}.json"]
        )
        assert prune_recovery(held, place(), 0, None) == [names[3]]
        assert [item.name for item in list_recovery(held, place(conversation_id=""))] == [kept]


def test_prune_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was set aside longer ago than told goes; any rule is enough, and one must be given."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        name = restore_files(held, NEW).recovery
        assert prune_recovery(held, place(), None, 60) == []
        assert prune_recovery(held, place(), 1, 60) == []
        now_ns = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: now_ns + 61 * 10**9)
        assert prune_recovery(held, place(), 9, 60) == [name]
        with pytest.raises(ConfigurationError) as caught:
            prune_recovery(held, place(), None, None)
        assert caught.value.reason == "invalid_argument"


@pytest.mark.parametrize("is_image_layer", [False, True])
def test_interrupted_prune_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_image_layer: bool
) -> None:
    """An entry that is half removed is no entry any more; the next prune, whatever its rules, removes the rest."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        restore_files(held, NEW)

        def fail(*_: object) -> None:
            raise PermissionError(errno.EACCES, "injected")

        if is_image_layer:
            without_moves(monkeypatch, lambda _: True)
        with monkeypatch.context() as patch:
            patch.setattr(recovery_folder, "remove_tree", fail)
            with pytest.raises(WorkspaceError):
                prune_recovery(held, place(), 0, None)
        assert list_recovery(held, place()) == []
        assert prune_recovery(held, place(), 5, None) == []
        assert list(_folder(tmp_path).iterdir()) == []


def test_prune_on_an_image_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that cannot be renamed is removed where it is."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        restore_files(held, NEW)
        without_moves(monkeypatch, lambda _: True)
        assert len(prune_recovery(held, place(), 0, None)) == 1
        assert list(_folder(tmp_path).iterdir()) == []


def test_prune_spares_what_an_undo_has_just_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An undo between a prune's look and its step puts the session of now under the entry's name: it stays."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        restore_files(held, NEW)
        real = recovery_folder._doomed

        def undoing(*arguments: Any) -> Any:
            doomed = real(*arguments)
            undo_restore(held, place(), "", force=False)
            return doomed

        monkeypatch.setattr(recovery_folder, "_doomed", undoing)
        assert prune_recovery(held, place(), 0, None) == []
        assert files_of(_session(tmp_path)) == OLD
        [item] = list_recovery(held, place())
        assert files_of(_folder(tmp_path) / item.name) == NEW


def test_prune_follows_no_link(tmp_path: Path) -> None:
    """A set-aside session with links is removed, and nothing they lead to."""
    outside = tmp_path / "outside"
    write(outside, {"kept": b"1"})
    with restoring_sandbox(tmp_path / "home") as held:
        session = make_session(tmp_path / "home", OLD)
        (session / "link").symlink_to(outside)
        restore_files(held, NEW)
        assert len(prune_recovery(held, place(), 0, None)) == 1
    assert files_of(outside) == {"kept": b"1"}
