"""Restores under faults: killed anywhere, full disks, file systems that lack things, races and hostile sandboxes."""

from __future__ import annotations

import errno
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import draft, room
from sandbox_agent.core.recovery import list_recovery, prune_recovery, undo_restore
from sandbox_api.errors import ConfigurationError, ConflictError, LimitError, OutpostError, UnavailableError
from support import killed_restore, link_swapper
from support.broken_restore import break_restore, staging_of
from support.filesystem import mounted, overlay
from support.restoring import (
    NEW,
    OLD,
    files_of,
    open_restore,
    picture,
    restore_files,
    restoring_sandbox,
    send,
    staged,
)
from support.sandbox import ID, make_session, place, write
from support.traced import CALLS, changing_calls, survivors

if TYPE_CHECKING:
    from collections.abc import Iterator

BIG = {**NEW, "big": os.urandom(4 << 20)}


def _session(home: Path) -> Path:
    return home / ".demo/sessions" / ID


@pytest.mark.timeout(400)
def test_kill_at_every_system_call(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A restore that is killed at any call that changes something leaves, after a sweep, the old session or the new."""
    program = killed_restore.__file__
    calls = changing_calls(program, killed_restore.MARK, _make_old, tmp_path_factory)
    assert {name for name, _ in calls} == CALLS - {"openat2"}
    assert survivors(program, calls, _make_old, killed_restore.verify, tmp_path) == []


def _make_old(home: Path) -> Path:
    return make_session(home, OLD)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("detour", killed_restore.DETOURS)
def test_kill_at_every_step(tmp_path: Path, detour: str) -> None:
    """The same at every smaller step, and where the file system cannot exchange, or not rename to recovery."""
    command = [sys.executable, killed_restore.__file__, "every", str(tmp_path / "home"), detour]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 60


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 MiB into a file system of 1 MiB are refused early, and late as well; the old session stays, staging goes."""
    with mounted(tmp_path / "disk", "tmpfs", "size=1m") as home, restoring_sandbox(home) as held:
        make_session(home, OLD)
        before = picture(home)
        with pytest.raises(LimitError) as caught, open_restore(held, BIG) as early:
            early.begin()
        assert caught.value.reason == "disk_full"
        monkeypatch.setattr(room, "check_room", lambda *_: None)
        with pytest.raises(LimitError) as caught:
            restore_files(held, BIG, full_durability=True)
        assert caught.value.reason == "disk_full"
        assert picture(home) == before
        restore_files(held, NEW)


def test_what_waits_takes_no_room(tmp_path: Path) -> None:
    """A restore that does not fit beside what waits for another attempt takes its room, and only then."""
    with mounted(tmp_path / "disk", "tmpfs", "size=1m") as home, restoring_sandbox(home) as held:
        break_restore(held, {"state.json": b"{}", "big": b"b" * 700_000}, 600_000)
        restore_files(held, NEW)
        assert len(staging_of(home)) == 1
        restore_files(held, {"state.json": b"{}", "large": b"l" * 500_000})
        assert staged(home) == []


def test_disk_that_fills_while_the_rest_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No space for what need not be sent, but has to be copied, is refused in the same way."""
    half = {**OLD, "half": b"h" * 700_000}
    with mounted(tmp_path / "disk", "tmpfs", "size=1m") as home, restoring_sandbox(home) as held:
        make_session(home, half)
        before = picture(home)
        for is_early in (True, False):
            if not is_early:
                monkeypatch.setattr(draft, "check_room", lambda *_: None)
            with pytest.raises(LimitError) as caught:
                restore_files(held, {**half, "state.json": b"new"})
            assert caught.value.reason == "disk_full"
            assert ("free_bytes" in caught.value.facts) is is_early
            assert picture(home) == before


@pytest.mark.parametrize("has_recovery", [False, True])
def test_session_of_an_image_layer(tmp_path: Path, *, has_recovery: bool) -> None:
    """A session that came with a container's image is replaced and set aside whole, and can be put back."""
    image = tmp_path / "image"
    session = make_session(image, OLD)
    (session / "link").symlink_to("/etc/passwd")
    if has_recovery:
        write(image / ".demo/.outpost-recovery/id-1-01234567-89ab-cdef-0123-456789abcdef", {"state.json": b"older"})
    with overlay(tmp_path, image) as home, restoring_sandbox(home) as held:
        before = picture(_session(home))
        result = restore_files(held, NEW, full_durability=True)
        assert result.not_atomic
        assert files_of(_session(home)) == NEW
        assert picture(home / ".demo/.outpost-recovery" / result.recovery) == before
        assert staged(home) == []
        assert not restore_files(held, OLD).not_atomic
        undo_restore(held, place(), result.recovery, force=False)
        assert picture(_session(home)) == before
        if has_recovery:
            undo_restore(held, place(), list_recovery(held, place())[-1].name, force=False)
        prune_recovery(held, place(), 0, None)
        assert list((home / ".demo/.outpost-recovery").iterdir()) == []
    assert files_of(session) == OLD


def test_undo_of_an_image_layer(tmp_path: Path) -> None:
    """A session that came with the image is replaced by an undo as well."""
    image = tmp_path / "image"
    make_session(image, NEW)
    write(image / ".demo/.outpost-recovery/id-1-01234567-89ab-cdef-0123-456789abcdef", OLD)
    with overlay(tmp_path, image) as home, restoring_sandbox(home) as held:
        _, kept = undo_restore(held, place(), "", force=False)
        assert files_of(_session(home)) == OLD
        assert [item.name for item in list_recovery(held, place())] == [kept]
        assert files_of(home / ".demo/.outpost-recovery" / kept) == NEW
        assert staged(home) == []


def test_sessions_on_a_mount_of_their_own(tmp_path: Path) -> None:
    """When recovery is on another file system, the swap is atomic and the old session is copied there."""
    with restoring_sandbox(tmp_path) as held:
        _session(tmp_path).parent.mkdir(parents=True)
        with mounted(_session(tmp_path).parent, "tmpfs", "size=8m"):
            make_session(tmp_path / "elsewhere", OLD)
            shutil.copytree(_session(tmp_path / "elsewhere"), _session(tmp_path))
            result = restore_files(held, NEW, full_durability=True)
            assert not result.not_atomic
            assert files_of(_session(tmp_path)) == NEW
            assert files_of(tmp_path / ".demo/.outpost-recovery" / result.recovery) == OLD
            _, kept = undo_restore(held, place(), "", force=False)
            assert files_of(_session(tmp_path)) == OLD
            assert files_of(tmp_path / ".demo/.outpost-recovery" / kept) == NEW
            assert staged(tmp_path) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.EDQUOT])
def test_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """An error of the device in the middle is what is reported, and nothing is left."""
    with restoring_sandbox(tmp_path) as held:
        make_session(tmp_path, OLD)
        before = picture(tmp_path)
        real = os.write

        def write_half(fd: int, data: bytes | memoryview) -> int:
            if len(data) == len(NEW["z"]):
                raise OSError(code, os.strerror(code))
            return real(fd, data)

        monkeypatch.setattr(os, "write", write_half)
        with pytest.raises(OutpostError) as caught:
            restore_files(held, NEW)
        assert isinstance(caught.value, UnavailableError if code == errno.EIO else LimitError)
        assert picture(tmp_path) == before


def test_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that writes less than it was given is asked again."""
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:7]) if len(data) > 300 else data))
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, NEW)
    assert files_of(_session(tmp_path)) == NEW


def test_many_restores_at_once(tmp_path: Path) -> None:
    """Of several that began on the same session exactly one wins; what is in place is its bundle, whole."""
    count = 4
    with restoring_sandbox(tmp_path) as held:
        for round_number in range(8):
            bundles = [{**NEW, "state.json": b"%d of %d" % (number, round_number)} for number in range(count)]
            barrier = threading.Barrier(count)
            won: list[int] = []
            refused: list[str] = []

            def run(number: int) -> None:
                with open_restore(held, bundles[number]) as one:  # noqa: B023 -- joined in the same round
                    send(one, bundles[number], one.begin())  # noqa: B023
                    barrier.wait(60)  # noqa: B023
                    try:
                        one.commit()
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
            assert files_of(_session(tmp_path)) == bundles[won[0]]
            assert staged(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_owner_of_a_daemon_without_privilege(tmp_path: Path) -> None:
    """A daemon that is user 1001 may give files to itself and to nobody else; the refusal comes before any change."""
    os.chown(tmp_path, 1001, 1001)
    for parent in tmp_path.parents:
        if parent != Path(tempfile.gettempdir()) and parent.is_relative_to(tempfile.gettempdir()):
            parent.chmod(0o755)
    with _as_user(1001), restoring_sandbox(tmp_path / "home") as held:
        before = picture(tmp_path)
        for owner in ((1002, 1001), (1001, 1002), (0, 0)):
            with pytest.raises(ConfigurationError) as caught:
                restore_files(held, NEW, owner=owner)
            assert caught.value.reason == "owner"
        assert picture(tmp_path) == before
        restore_files(held, NEW, owner=(1001, 1001))
        assert files_of(_session(tmp_path / "home")) == NEW


@contextmanager
def _as_user(user: int) -> Iterator[None]:
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def test_folders_swapped_for_links(tmp_path: Path) -> None:
    """While the sandbox exchanges folders for links in a loop, restores never touch what they lead to."""
    outside, home = tmp_path / "outside", tmp_path / "home"
    write(outside / "sessions" / ID, OLD)
    write(outside / ".outpost-recovery/id-1-01234567-89ab-cdef-0123-456789abcdef", OLD)
    canary, moments = picture(outside), _moments(outside)
    with restoring_sandbox(home) as held:
        make_session(home, OLD)
        swapper = subprocess.Popen(
            [sys.executable, link_swapper.__file__, home, outside], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        outcomes: dict[str, int] = {}
        try:
            number = 0
            # On a slow or busy machine the swapper gets fewer turns: there are more restores then, not fewer swaps.
            while number < 400 or not select.select([swapper.stdout], [], [], 0)[0]:
                outcome = _try_to_restore(held, number)
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                number += 1
        finally:
            told, _ = swapper.communicate(b"end\n", timeout=60)
        held.journal.sweep(held.roots)
        prune_recovery(held, place(), 0, None)
    assert picture(outside) == canary
    # Not for a moment was anything made there.
    assert _moments(outside) == moments
    assert int(re.fullmatch(rb"enough\n(\d+)\n", told)[1]) > link_swapper.ENOUGH_COUNT  # type: ignore[index]
    assert len(outcomes) > 1, outcomes


def _moments(directory: Path) -> dict[str, int]:
    return {path: (directory / path).stat().st_mtime_ns for path in [".", *picture(directory)]}


def _try_to_restore(held: object, number: int) -> str:
    """Restore or undo; return what came of it. Anything but a failure of the table is a fault."""
    try:
        if number % 3 == 2:
            undo_restore(held, place(), "", force=False)  # type: ignore[arg-type]
        else:
            files = {**NEW, "state.json": b"%d" % number}
            restore_files(held, files, full_durability=False)  # type: ignore[arg-type]
    except OutpostError as error:
        return f"{error.code}/{error.reason}"
    return "done"
