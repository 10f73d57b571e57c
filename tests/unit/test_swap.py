"""The swap: one step where the file system can, a journaled detour where it cannot, all of it taken back on failure."""

from __future__ import annotations

import errno
import os
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import lock, placement, slot, swap, syscall
from sandbox_agent.core.lock import folder_lock
from sandbox_agent.core.paths import Directory
from sandbox_agent.core.recovery import list_recovery
from sandbox_agent.core.rename import rename_exclusive
from sandbox_agent.core.rollback import Rollback
from sandbox_api.errors import ConflictError, LimitError, OutpostError, SessionError, UnavailableError
from support.filesystem import without_exchange, without_flags, without_moves, without_moves_across
from support.restoring import NEW, OLD, files_of, open_restore, picture, restore_files, restoring_sandbox, send, staged
from support.sandbox import ID, make_session, place, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sandbox_agent.core.sandbox import Sandbox


def _recovered(held: Sandbox, home: Path) -> list[dict[str, bytes]]:
    return [files_of(home / ".demo/.outpost-recovery" / item.name) for item in list_recovery(held, place())]


def _no_moves_of_sessions(patch: pytest.MonkeyPatch) -> None:
    without_moves(patch, lambda name: name == ID.encode())


DETOURS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], bool]] = {
    "none": (lambda _: None, False),
    "no exchange": (without_exchange, True),
    "no flags": (without_flags, True),
    "image layer": (_no_moves_of_sessions, True),
    "recovery elsewhere": (without_moves_across, False),
}


@pytest.mark.parametrize("detour", DETOURS)
def test_old_session_goes_to_recovery_on_every_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detour: str
) -> None:
    """Whatever the file system lacks, the new session ends in place and the old one, links included, in recovery."""
    prepare, not_atomic = DETOURS[detour]
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        (session / "link").symlink_to("/etc/passwd")
        before = picture(session)
        prepare(monkeypatch)
        result = restore_files(held, NEW, full_durability=True)
        assert result.not_atomic is not_atomic
        assert files_of(session) == NEW
        assert picture(tmp_path / ".demo/.outpost-recovery" / result.recovery) == before
        assert staged(tmp_path) == []


@pytest.mark.parametrize("detour", DETOURS)
def test_first_session_is_placed_on_every_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detour: str
) -> None:
    """With nothing in place, a rename is enough, which every file system has."""
    DETOURS[detour][0](monkeypatch)
    with restoring_sandbox(tmp_path) as held:
        assert restore_files(held, NEW).not_atomic is False
        assert files_of(tmp_path / ".demo/sessions" / ID) == NEW


# Those of the sidecar and the journal come first, the swap's own last; every one may fail.
_FSYNCS = [f"fsync {count}" for count in range(9)]
_STEPS = [
    (detour, step)
    for detour, steps in {
        "none": ["take", *_FSYNCS[:8]],
        "no exchange": ["take", "rename", *_FSYNCS],
        "no flags": ["rename"],
        "image layer": ["copy", "holds_all", "empty", "rename", "syncfs"],
        "recovery elsewhere": ["copy", "holds_all", "syncfs"],
    }.items()
    for step in steps
]


@pytest.mark.parametrize(("detour", "step"), _STEPS)
def test_failed_step_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detour: str, step: str) -> None:
    """A commit that fails at any step leaves the old session whole, nothing staged, and says what failed."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        before = picture(tmp_path)
        DETOURS[detour][0](monkeypatch)
        with pytest.raises(OutpostError) as caught:
            _restore_with_fault(held, monkeypatch, _fault(step))
        assert (caught.value.code, caught.value.reason) in {("unavailable", "io"), ("conflict", "target_changed")}
        assert files_of(session) == OLD
        assert picture(tmp_path) == before
        assert not getattr(caught.value, "__notes__", [])


def _restore_with_fault(held: Sandbox, patch: pytest.MonkeyPatch, inject: Callable[[pytest.MonkeyPatch], None]) -> None:
    with open_restore(held, NEW, full_durability=True) as restore:
        send(restore, NEW, restore.begin())
        inject(patch)
        restore.commit()


def _fail(*_: object) -> None:
    raise OSError(errno.EIO, "injected")


def _empty_half(directory: Directory) -> None:
    os.unlink(b"state.json", dir_fd=directory.fd)
    _fail()


def _fail_to_place(folder: Directory, name: bytes, new_folder: Directory, new_name: bytes) -> None:
    if name.startswith(b".outpost-session-") and new_name == ID.encode():
        _fail()
    rename_exclusive(folder, name, new_folder, new_name)


_FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "syncfs": lambda patch: patch.setattr(syscall, "syncfs", _after(1, syscall.syncfs)),
    "take": lambda patch: patch.setattr(slot.Slot, "take", _fail),
    "copy": lambda patch: patch.setattr(slot, "copy_tree", _fail),
    "holds_all": lambda patch: patch.setattr(slot, "holds_all", lambda *_: False),
    "empty": lambda patch: patch.setattr(swap, "empty_directory", _empty_half),
    "rename": lambda patch: patch.setattr(swap, "rename_exclusive", _fail_to_place),
}


def _fault(step: str) -> Callable[[pytest.MonkeyPatch], None]:
    name, _, count = step.partition(" ")
    return _FAULTS[name] if name in _FAULTS else lambda patch: patch.setattr(os, name, _after(int(count), os.fsync))


def _after(count: int, real: Callable[[int], None]) -> Callable[[int], None]:
    calls = [0]

    def counted(fd: int) -> None:
        calls[0] += 1
        if calls[0] > count:
            raise OSError(errno.EIO, "injected")
        real(fd)

    return counted


@pytest.mark.parametrize("detour", ["none", "no exchange"])
def test_session_replaced_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detour: str) -> None:
    """When the swap gets hold of another directory than the one expected, that one goes back to its place."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        DETOURS[detour][0](monkeypatch)
        real = syscall.renameat2
        raced: list[bool] = []

        def racing(old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
            if ID.encode() in (old, new) and not raced:
                raced.append(True)
                session.rename(tmp_path / "moved away")
                write(session, {"state.json": b"theirs"})
            real(old_fd, old, new_fd, new, flags)

        monkeypatch.setattr(syscall, "renameat2", racing)
        with pytest.raises(ConflictError) as caught:
            restore_files(held, NEW)
        assert caught.value.reason == "target_changed"
        assert files_of(session) == {"state.json": b"theirs"}
        assert files_of(tmp_path / "moved away") == OLD
        assert staged(tmp_path) == []
        assert _recovered(held, tmp_path) == []


@pytest.mark.parametrize("detour", ["none", "no exchange"])
@pytest.mark.parametrize("has_old", [True, False])
def test_staging_replaced_within_the_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detour: str, *, has_old: bool
) -> None:
    """What the sandbox puts under the staging name at the very last moment does not stay in place."""
    with restoring_sandbox(tmp_path) as held:
        session = tmp_path / ".demo/sessions" / ID
        if has_old:
            make_session(tmp_path, OLD)
        DETOURS[detour][0](monkeypatch)
        real = syscall.renameat2
        raced: list[bool] = []

        def racing(old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
            if old.startswith(b".outpost-session-") and not raced:
                raced.append(True)
                staging = session.parent / os.fsdecode(old)
                staging.rename(tmp_path / "ours")
                write(staging, {"state.json": b"theirs"})
            real(old_fd, old, new_fd, new, flags)

        monkeypatch.setattr(syscall, "renameat2", racing)
        with pytest.raises(ConflictError) as caught:
            restore_files(held, NEW)
        assert caught.value.reason == "target_changed"
        assert (files_of(session) if session.exists() else None) == (OLD if has_old else None)
        assert _recovered(held, tmp_path) == []


def test_session_written_to_after_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the old session has to be removed after it was copied, what was written meanwhile is not lost."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        _no_moves_of_sessions(monkeypatch)
        real = slot.Slot.copy

        def copy(self: slot.Slot, original: Directory, scratch_name: bytes) -> None:
            real(self, original, scratch_name)
            (session / "state.json").write_bytes(b"written meanwhile")

        monkeypatch.setattr(slot.Slot, "copy", copy)
        with pytest.raises(ConflictError) as caught:
            restore_files(held, NEW)
        assert caught.value.reason == "target_changed"
        assert files_of(session) == {**OLD, "state.json": b"written meanwhile"}
        assert staged(tmp_path) == []
        assert _recovered(held, tmp_path) == []


def test_link_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that takes the session's place between the look and the swap is put back, and not followed."""
    outside = tmp_path / "outside"
    with restoring_sandbox(tmp_path / "home") as held:
        session = make_session(tmp_path / "home", OLD)
        write(outside, OLD)
        real = syscall.renameat2
        raced: list[bool] = []

        def racing(old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
            if not raced:
                raced.append(True)
                session.rename(tmp_path / "moved away")
                session.symlink_to(outside)
            real(old_fd, old, new_fd, new, flags)

        monkeypatch.setattr(syscall, "renameat2", racing)
        with pytest.raises(ConflictError):
            restore_files(held, NEW)
    assert session.is_symlink()
    assert files_of(outside) == OLD


def test_staging_exchanged_before_the_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that the sandbox puts under the staging name never becomes the session, not even for a moment."""
    renames: list[object] = []
    monkeypatch.setattr(syscall, "renameat2", lambda *arguments: renames.append(arguments))
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        with open_restore(held, NEW) as restore:
            send(restore, NEW, restore.begin())
            staging = next((tmp_path / ".demo/sessions").glob(".outpost-session-*"))
            staging.rename(tmp_path / "ours")
            write(staging, {"state.json": b"theirs"})
            with pytest.raises(ConflictError) as caught:
                restore.commit()
        assert caught.value.reason == "target_changed"
        assert files_of(session) == OLD
        assert files_of(staging) == {"state.json": b"theirs"}
        assert files_of(tmp_path / "ours") == {}
        assert renames == []


def test_swap_that_cannot_be_taken_back_is_for_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When even going back fails, nothing of either session is removed, and the sweep finishes."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        real = syscall.renameat2
        exchanges: list[int] = []

        def once(old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
            exchanges.append(flags)
            if len(exchanges) > 1:
                raise OSError(errno.EIO if len(exchanges) == 2 else errno.EROFS, "injected")
            real(old_fd, old, new_fd, new, flags)

        with monkeypatch.context() as patch:
            patch.setattr(syscall, "renameat2", once)
            with pytest.raises(UnavailableError) as caught:
                restore_files(held, NEW)
        assert caught.value.facts["errno"] == "EIO"
        assert len(caught.value.__notes__) == 1
        assert files_of(session) == NEW
        held.journal.sweep(held.roots)
        assert files_of(session) == NEW
        assert _recovered(held, tmp_path) == [OLD]
        assert staged(tmp_path) == []


def test_special_file_cannot_be_copied_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the old session can only be copied, a FIFO in it is a refusal that names it, before any change."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        os.mkfifo(session / "pipe")
        before = picture(tmp_path)
        _no_moves_of_sessions(monkeypatch)
        with pytest.raises(SessionError) as caught:
            restore_files(held, NEW)
        assert caught.value.reason == "special_file"
        assert picture(tmp_path) == before


def test_rollback_reports_the_first_error() -> None:
    """Steps run last to first; one that fails is a note, and the others run all the same."""
    ran: list[str] = []

    def fail() -> None:
        ran.append("fails")
        raise OSError(errno.EIO, "second")

    back = Rollback()
    back.add(lambda: ran.append("first"))
    back.add(fail)
    back.add(lambda: ran.append("last"))
    first = LimitError("disk_full", "first")
    back.run(first)
    back.run(first)
    assert ran == ["last", "fails", "first"]
    assert len(first.__notes__) == 1


def test_commit_waits_for_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit while another daemon holds the folder is refused as busy, and nothing is left of it."""
    monkeypatch.setattr(placement, "folder_lock", partial(folder_lock, wait_seconds=0.05))
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        before = picture(tmp_path)
        with _open(session.parent) as other:
            assert lock._try_lock(other.fd)
            with pytest.raises(ConflictError) as caught:
                restore_files(held, NEW)
        assert caught.value.reason == "busy"
        assert picture(tmp_path) == before


def test_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    """A second restore waits for the folder as long as told, then is refused as busy; afterwards it gets it."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with _open(tmp_path) as folder, folder_lock(folder):
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(60)
    with _open(tmp_path) as folder:
        with pytest.raises(ConflictError) as caught, folder_lock(folder, wait_seconds=0.01):
            pass
        assert (caught.value.reason, caught.value.retryable) == ("busy", True)
        leave.set()
        with folder_lock(folder, wait_seconds=60):
            pass
    thread.join()


def test_folder_is_held_among_processes(tmp_path: Path) -> None:
    """A lock of another daemon's open file counts like one of our own."""
    with _open(tmp_path) as folder, _open(tmp_path) as other:
        assert lock._try_lock(other.fd)
        with pytest.raises(ConflictError), folder_lock(folder, wait_seconds=0.05):
            pass


def _open(path: Path) -> Directory:
    return Directory(os.open(path, os.O_RDONLY | os.O_DIRECTORY), os.fsencode(path))
