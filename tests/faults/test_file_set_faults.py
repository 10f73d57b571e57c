"""Restores of files under faults: killed anywhere, errors anywhere, odd file systems, races and hostile sandboxes."""

from __future__ import annotations

import errno
import json
import os
import re
import select
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from sandbox_agent.core import syscall
from sandbox_agent.core.file_set_recovery import list_files, prune_files, undo_files
from sandbox_agent.errors import from_os
from sandbox_api.errors import ConflictError, OutpostError, WorkspaceError
from support import file_swapper, killed_file_set
from support.file_set import (
    FORMAT,
    ID,
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
    send,
)
from support.filesystem import mounted, overlay
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
        assert prune_files(held.roots, place(agent_home), 0, None) == [result.recovery]
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


def _forge(agent_home: Path, *lines: dict[str, object]) -> Path:
    """Write a journal file as the sandbox may; return its staging directory."""
    head = {
        "version": 2,
        "home": str(home_of(agent_home)),
        "format": FORMAT,
        "conversation_id": ID,
        "recovery": f"{ID}-01234567-89ab-cdef-0123-456789abcdef",
    }
    path = agent_home / ".outpost-agent" / f"{'0' * 32}.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))
    return home_of(agent_home) / f".outpost-session-{'0' * 32}"


@pytest.mark.parametrize("is_undo", [False, True])
@pytest.mark.parametrize("where", ["staging", "folder of staging", "home", "shared"])
def test_forged_decision_leads_nowhere(tmp_path: Path, where: str, *, is_undo: bool) -> None:
    """A decision whose directories, or whose shared file, are links moves and writes nothing beyond them."""
    outside, agent_home = tmp_path / "outside", tmp_path / "home"
    write(outside, {"a/f": b"kept", "f": b"kept", SHARED: b"kept"})
    canary = picture(outside)
    with restoring_sandbox(agent_home) as held:
        home = make_home(agent_home, {})
        inode = (outside / "a/f").stat().st_ino
        staging = _forge(
            agent_home,
            {"undo": is_undo},
            {"file": ["a/f", inode, 0]},
            {"file": ["a/g", 0, inode]},
            {"append": SHARED},
            {"decided": 3},
        )
        if is_undo:
            staging = home / ".outpost-recovery" / f"{ID}-01234567-89ab-cdef-0123-456789abcdef"
        write(staging, {"x": b"", SHARED: LINES})
        if where == "staging":
            shutil.rmtree(staging)
            staging.symlink_to(outside)
        elif where == "folder of staging":
            (staging / "a").symlink_to(outside / "a")
        elif where == "home":
            write(staging, {"a/f": b"staged"})
            (home / "a").symlink_to(outside / "a")
        else:
            (home / SHARED).unlink()
            (home / SHARED).symlink_to(outside / SHARED)
        told = held.journal.sweep(held.roots)
        assert len(told) == 1
        held.journal.sweep(held.roots)
    assert picture(outside) == canary


def test_what_came_meanwhile_is_set_aside(tmp_path: Path) -> None:
    """What has come to a file's place since a crash, be it a file, a directory or a link, goes to recovery."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path, {})
        staging = _forge(tmp_path)
        write(staging, {"a/f": b"new f", "a/g": b"new g", "a/h": b"new h"})
        moves = [{"file": [path, (staging / path).stat().st_ino, 0]} for path in ("a/f", "a/g", "a/h")]
        _forge(tmp_path, *moves, {"decided": 3})
        write(home, {"a/f": b"since", "a/g/deep": b"since"})
        (home / "a/h").symlink_to("/etc/passwd")
        held.journal.sweep(held.roots)
        assert {path: (home / path).read_bytes() for path in ("a/f", "a/g", "a/h")} == {
            "a/f": b"new f",
            "a/g": b"new g",
            "a/h": b"new h",
        }
        [item] = list_files(held.roots, place(tmp_path))
        assert picture(home / ".outpost-recovery" / item.name) == {
            "a": "dir",
            "a/f": b"since",
            "a/g": "dir",
            "a/g/deep": b"since",
            "a/h": "-> /etc/passwd",
        }
        assert staged(tmp_path) == []


def test_one_file_that_cannot_be_moved_does_not_stop_the_others(tmp_path: Path) -> None:
    """A sweep that meets a link on the way to one file moves the others, and finishes when the link is gone."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path, {})
        staging = _forge(tmp_path)
        write(staging, {"a/f": b"new f", "b/g": b"new g"})
        moves = [{"file": [path, (staging / path).stat().st_ino, 0]} for path in ("a/f", "b/g")]
        _forge(tmp_path, *moves, {"decided": 2})
        (home / "a").symlink_to(tmp_path)
        assert held.journal.sweep(held.roots)[0].startswith("left ")
        assert (home / "b/g").read_bytes() == b"new g"
        (home / "a").unlink()
        assert held.journal.sweep(held.roots)[0].startswith("placed ")
        assert (home / "a/f").read_bytes() == b"new f"
        assert staged(tmp_path) == []


@pytest.mark.timeout(300)
def test_names_swapped_for_links(tmp_path: Path) -> None:
    """While the sandbox exchanges files and folders for links in a loop, nothing beyond them is ever touched."""
    outside, agent_home = tmp_path / "outside", tmp_path / "home"
    write(outside, {**OLD, SHARED: b"kept\n", ".outpost-recovery/x": b"kept"})
    canary, moments = picture(outside), _moments(outside)
    with restoring_sandbox(agent_home) as held:
        make_home(agent_home)
        swapper = subprocess.Popen(
            [sys.executable, file_swapper.__file__, home_of(agent_home), outside],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        outcomes: dict[str, int] = {}
        try:
            number = 0
            # On a slow or busy machine the swapper gets fewer turns: there are more restores then, not fewer swaps.
            while number < 200 or not select.select([swapper.stdout], [], [], 0)[0]:
                outcome = _try(held, agent_home, number)
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                number += 1
        finally:
            told, _ = swapper.communicate(b"end\n", timeout=60)
        held.journal.sweep(held.roots)
    assert picture(outside) == canary
    # Not for a moment was anything made there.
    assert _moments(outside) == moments
    assert int(re.fullmatch(rb"enough\n(\d+)\n", told)[1]) > file_swapper.ENOUGH_COUNT  # type: ignore[index]
    assert len(outcomes) > 1, outcomes
    assert "done" in outcomes, outcomes


def _moments(directory: Path) -> dict[str, int]:
    return {path: (directory / path).stat().st_mtime_ns for path in [".", *picture(directory)]}


def _try(held: Any, agent_home: Path, number: int) -> str:
    """Restore or undo; return what came of it. Anything but a failure of the table is a fault."""
    try:
        if number % 3 == 2:
            undo_files(held, place(agent_home), "")
        else:
            files = {**NEW, MAIN: b"%d\n" % number, "plans/S1.md": b"%d" % number}
            restore_set(held, files, lines={SHARED: b"%d\n" % number})
    except OutpostError as error:
        return f"{error.code}/{error.reason}"
    except OSError as error:
        failure = from_os(error)
        return f"{failure.code}/{failure.reason}"
    return "done"
