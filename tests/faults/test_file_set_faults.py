"""Restores of files under faults: killed anywhere, errors anywhere, odd file systems, races and hostile sandboxes."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from sandbox_agent.core import syscall
from sandbox_agent.core.file_set_record import FileSetRecord
from sandbox_agent.core.file_set_recovery import list_files, prune_files, undo_files
from sandbox_agent.core.recovery_entry import new_entry_name
from sandbox_agent.errors import from_os
from sandbox_api.errors import ConflictError, OutpostError, WorkspaceError
from support import killed_file_set
from support.file_set import (
    FORMAT,
    ID,
    LINES,
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
    send,
)
from support.filesystem import mounted, overlay
from support.killed import killed_at
from support.killed_file_set import PLACED, REPLACED
from support.restoring import files_of, picture, restoring_sandbox, staged
from support.sandbox import write
from support.traced import changing_calls, survivors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_STEPS = ("open", "mkdir", "write", "fsync", "unlink", "rmdir", "fchmod", "ftruncate", "utime")


@pytest.mark.timeout(400)
def test_kill_at_every_system_call(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A restore that is killed at any call that changes something leaves, after a sweep, all old files or all new."""
    program = killed_file_set.__file__
    calls = changing_calls(program, killed_file_set.MARK, make_home, tmp_path_factory)
    assert {"renameat2", "fsync", "syncfs", "mkdirat", "unlinkat"} <= {name for name, _ in calls}
    assert survivors(program, calls, make_home, killed_file_set.verify, tmp_path) == []


@pytest.mark.timeout(400)
@pytest.mark.parametrize("detour", killed_file_set.DETOURS)
@pytest.mark.parametrize("action", ["restore", "undo"])
def test_kill_at_every_step(tmp_path: Path, action: str, detour: str) -> None:
    """The same at every smaller step, of undos too, and where the file system cannot exchange, link or rename."""
    if (action, detour) == ("undo", "recovery-elsewhere"):
        pytest.skip("what lies on another file system is not undone")
    command = [sys.executable, killed_file_set.__file__, "every", str(tmp_path / "home"), action, detour]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 140


def _fail_at(patch: pytest.MonkeyPatch, step: int, code: int) -> Callable[[], bool]:
    """Make one step of those that change something fail; return what tells whether it was reached."""
    count = [0]

    def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            count[0] += 1
            if count[0] == step:
                raise OSError(code, os.strerror(code))
            return real(*arguments, **more)

        return call

    for name in _STEPS:
        patch.setattr(os, name, guarded(getattr(os, name)))
    for name in ("renameat2", "syncfs", "openat2"):
        patch.setattr(syscall, name, guarded(getattr(syscall, name)))
    return lambda: count[0] >= step


@pytest.mark.timeout(400)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_error_at_every_step(tmp_path: Path, code: int) -> None:
    """An error of the device at any step leaves all old files or all new ones, and what is left goes with a sweep."""
    step, is_reached = 1, True
    outcomes = set()
    while is_reached:
        agent_home = tmp_path / str(step)
        make_home(agent_home)
        with restoring_sandbox(agent_home) as held:
            failure: BaseException | None = None
            with pytest.MonkeyPatch.context() as patch:
                reached = _fail_at(patch, step, code)
                try:
                    restore_set(held, NEW, lines={SHARED: LINES}, full_durability=True)
                except (OSError, OutpostError) as error:
                    failure = error
                is_reached = reached()
            is_clean = failure is not None and not hasattr(failure, "__notes__")
            assert conversation(agent_home) in ((OLD,) if is_clean else (OLD, NEW)), step
            if is_clean:
                assert staged(agent_home) == [], step
            assert isinstance(failure, OutpostError | OSError | None)
            held.journal.sweep(held.roots)
            expected = ((OLD, []), (NEW, [REPLACED]))
            recovered = [
                files_of(home_of(agent_home) / ".outpost-recovery" / item.name)
                for item in list_files(held.roots, place(agent_home))
            ]
            assert (conversation(agent_home), recovered) in expected, step
            assert staged(agent_home) == [], step
            shared = (home_of(agent_home) / SHARED).read_bytes()
            assert shared in (OTHERS[SHARED], OTHERS[SHARED] + LINES)
            outcomes.add((failure is None, conversation(agent_home) == NEW))
        shutil.rmtree(agent_home)
        step += 1
    assert step > 150
    assert outcomes >= {(True, True), (False, False)}


def _kill_half_way(act: Callable[[], object]) -> None:
    """Kill an act when it has moved some files."""
    real = syscall.renameat2
    count = [0]

    def die(*arguments: Any) -> None:
        count[0] += 1
        if count[0] > 2:
            os.kill(os.getpid(), signal.SIGKILL)
        real(*arguments)

    assert killed_at(-1, act, lambda patch: patch.setattr(syscall, "renameat2", die))


def _restore(agent_home: Path) -> None:
    with restoring_sandbox(agent_home) as held:
        restore_set(held, NEW)


def _undo(agent_home: Path) -> None:
    with restoring_sandbox(agent_home) as held:
        undo_files(held, place(agent_home), "")


@pytest.mark.parametrize("is_undo", [False, True])
def test_what_was_left_is_finished_before_more_is_done(tmp_path: Path, *, is_undo: bool) -> None:
    """A restore or an undo after one that was killed is not taken back in part by the next start."""
    newer = {path: b"newer " + data for path, data in NEW.items()}
    make_home(tmp_path)
    _kill_half_way(lambda: _restore(tmp_path))
    assert conversation(tmp_path) not in (OLD, NEW)
    with restoring_sandbox(tmp_path) as held:
        if is_undo:
            undo_files(held, place(tmp_path), "")
        else:
            restore_set(held, newer)
        assert held.journal.sweep(held.roots) == []
    assert conversation(tmp_path) == (OLD if is_undo else newer)
    assert staged(tmp_path) == []


def test_undo_that_was_killed_is_finished_before_a_prune(tmp_path: Path) -> None:
    """The old files that an undo has not put back yet are not removed with its entry."""
    make_home(tmp_path)
    _restore(tmp_path)
    _kill_half_way(lambda: _undo(tmp_path))
    assert conversation(tmp_path) not in (OLD, NEW)
    with restoring_sandbox(tmp_path) as held:
        assert len(prune_files(held, place(tmp_path), 0, None)) == 1
    assert conversation(tmp_path) == OLD


@pytest.mark.parametrize("is_undo", [False, True])
@pytest.mark.parametrize("is_empty", [False, True])
def test_home_that_is_mounted_late(tmp_path: Path, *, is_undo: bool, is_empty: bool) -> None:
    """A daemon that starts before the home is mounted leaves its note, and a later start finishes what was begun."""
    home = make_home(tmp_path)
    if is_undo:
        _restore(tmp_path)
    _kill_half_way(lambda: _undo(tmp_path) if is_undo else _restore(tmp_path))
    assert conversation(tmp_path) not in (OLD, NEW)
    home.rename(tmp_path / "disk")
    with restoring_sandbox(tmp_path) as held:
        if is_empty:
            home.mkdir()
        [told] = held.journal.sweep(held.roots)
        assert "is not there" in told
        if is_empty:
            home.rmdir()
        (tmp_path / "disk").rename(home)
        assert len(held.journal.sweep(held.roots)) == 1
    assert conversation(tmp_path) == (OLD if is_undo else NEW)


def test_what_was_left_elsewhere_is_not_waited_for(tmp_path: Path) -> None:
    """A restore finishes only what was left in its own home."""
    with restoring_sandbox(tmp_path) as held:
        record = FileSetRecord(os.fsencode(tmp_path / "other"), FORMAT, ID, new_entry_name(ID))
        held.journal.begin(record, durable=False).close()
        make_home(tmp_path)
        restore_set(held, NEW)
        assert len(held.journal.sweep(held.roots)) == 1


def test_error_that_cannot_be_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When neither the rest can be moved nor what was moved back, the next start puts the rest in place."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        real = syscall.renameat2
        count = [0]

        def stuck(*arguments: Any) -> None:
            count[0] += 1
            if count[0] > 2:
                raise OSError(errno.EIO, "injected")
            real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(syscall, "renameat2", stuck)
            with pytest.raises(OSError, match="injected") as caught:
                restore_set(held, NEW, lines={SHARED: LINES})
        assert caught.value.__notes__
        assert conversation(tmp_path) not in (OLD, NEW)
        assert len(held.journal.sweep(held.roots)) == 1
        assert conversation(tmp_path) == NEW
        [item] = list_files(held.roots, place(tmp_path))
        assert files_of(home_of(tmp_path) / ".outpost-recovery" / item.name) == REPLACED
        assert staged(tmp_path) == []


def test_full_disk(tmp_path: Path) -> None:
    """4 MiB into a file system of 1 MiB are refused early where that is known, and late as well; old files stay."""
    big = {**NEW, "big": os.urandom(4 << 20)}
    with mounted(tmp_path / "disk", "tmpfs", "size=1m") as agent_home, restoring_sandbox(agent_home) as held:
        make_home(agent_home)
        before = picture(agent_home)
        for expected_bytes in (4 << 20, 0):
            with pytest.raises((OutpostError, OSError)) as caught, open_set(held, expected_bytes=expected_bytes) as one:
                send(one, big)
            failure = from_os(caught.value) if isinstance(caught.value, OSError) else caught.value
            assert (failure.code, failure.reason) == ("limit", "disk_full")
            assert picture(agent_home) == before
        restore_set(held, NEW)


def test_what_waits_takes_no_room(tmp_path: Path) -> None:
    """A restore that does not fit beside what waits for another attempt takes its room, and only then."""
    big = os.urandom(600_000)
    with mounted(tmp_path / "disk", "tmpfs", "size=1m") as agent_home, restoring_sandbox(agent_home) as held:
        make_home(agent_home)
        with suppress(ConnectionError), open_set(held, restore_id="r-1") as one:
            one.begin_file(b"big", 0, append_lines=False)
            one.feed(big)
            one.keep()
            raise ConnectionError
        assert staged(agent_home)
        with open_set(held, expected_bytes=100_000) as one:
            assert staged(agent_home)
        with open_set(held, expected_bytes=600_000) as one:
            one.commit(*send(one, {**NEW, "big": big}))
        assert staged(agent_home) == []


@pytest.mark.parametrize("is_read_only", [False, True])
def test_files_of_an_image_layer(tmp_path: Path, *, is_read_only: bool) -> None:
    """Files that came with a container's image are replaced, set aside and put back, whatever their inodes become."""
    image = tmp_path / "image"
    home = make_home(image)
    if is_read_only:
        for path in OLD:
            (home / path).chmod(0o400)
    with overlay(tmp_path, image) as agent_home, restoring_sandbox(agent_home) as held:
        result = restore_set(held, NEW, lines={SHARED: LINES}, full_durability=True)
        assert conversation(agent_home) == NEW
        assert files_of(home_of(agent_home) / ".outpost-recovery" / result.recovery) == REPLACED
        assert undo_files(held, place(agent_home), "").recovery == result.recovery
        assert conversation(agent_home) == OLD
        assert files_of(home_of(agent_home) / ".outpost-recovery" / result.recovery) == PLACED
        assert staged(agent_home) == []
        assert prune_files(held, place(agent_home), 0, None) == [result.recovery]
    assert conversation(image) == OLD


def test_recovery_folder_of_its_own_mount(tmp_path: Path) -> None:
    """Old files are copied to a recovery folder that is another file system; such an entry is not put back."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        (home / ".outpost-recovery").mkdir()
        with mounted(home / ".outpost-recovery", "tmpfs", "size=8m"):
            result = restore_set(held, NEW, full_durability=True)
            assert conversation(tmp_path) == NEW
            assert files_of(home / ".outpost-recovery" / result.recovery) == REPLACED
            assert staged(tmp_path) == []
            with pytest.raises(WorkspaceError) as caught:
                undo_files(held, place(tmp_path), "")
            assert caught.value.reason == "mounted"
            assert conversation(tmp_path) == NEW


@pytest.mark.parametrize("path", ["todos/S1.json", "projects", "projects/-ws"])
def test_mount_in_the_home(tmp_path: Path, path: str) -> None:
    """A file that is a mount point, also one of the same file system, or a directory that is one, is refused early."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        other = tmp_path / "other"
        shutil.copytree(home / path, other) if (home / path).is_dir() else shutil.copy(home / path, other)
        with mounted(tmp_path / "probe", "tmpfs", "size=1m"):
            subprocess.run(["mount", "--bind", other, home / path], check=True)
        try:
            before = picture(tmp_path)
            with pytest.raises(WorkspaceError) as caught:
                restore_set(held, {**NEW, "todos/S1.json": b"other"})
            assert caught.value.reason == "mounted"
            assert picture(tmp_path) == before
        finally:
            subprocess.run(["umount", home / path], check=True)


def test_mount_that_nothing_tells_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not number mounts, the rename tells; what was moved before it is moved back."""
    monkeypatch.setattr("sandbox_agent.core.file_set_target.mount_id", lambda _: 0)
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        with mounted(home / "projects", "tmpfs", "size=1m"):
            write(home, {path: data for path, data in OLD.items() if path.startswith("projects")})
            before = picture(tmp_path)
            files = {"plans/S1.md": b"moved first", **NEW}
            with pytest.raises(WorkspaceError) as caught:
                restore_set(held, files, full_durability=True)
            assert caught.value.reason == "mounted"
            assert picture(tmp_path) == before


def test_many_restores_at_once(tmp_path: Path) -> None:
    """Of several that began on the same files exactly one wins; all files in place are its own."""
    count = 4
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        for round_number in range(8):
            sets = [dict.fromkeys(OLD, b"%d of %d" % (number, round_number)) for number in range(count)]
            barrier = threading.Barrier(count)
            won: list[int] = []
            refused: list[str] = []

            def run(number: int) -> None:
                with open_set(held) as one:
                    numbers = send(one, sets[number], lines={SHARED: LINES})  # noqa: B023 -- joined in the same round
                    barrier.wait(60)  # noqa: B023
                    try:
                        one.commit(*numbers)
                        won.append(number)  # noqa: B023
                    except ConflictError as error:
                        refused.append(error.reason)  # noqa: B023

            threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(won) == 1
            assert refused == ["target_changed"] * (count - 1)
            assert conversation(tmp_path) == sets[won[0]]
            assert staged(tmp_path) == []
        assert (home_of(tmp_path) / SHARED).read_bytes() == OTHERS[SHARED] + LINES
