"""What refuses a restore of files: nothing is in place then, and nothing is left of it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from functools import partial
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import file_set, file_set_recovery, file_set_target
from sandbox_agent.core.file_set_recovery import prune_files, undo_files
from sandbox_agent.core.holder import Holder
from sandbox_agent.core.lock import folder_lock
from sandbox_agent.errors import from_os
from sandbox_api.errors import (
    ConfigurationError,
    ConflictError,
    LimitError,
    OutpostError,
    SessionError,
    WorkspaceError,
)
from sandbox_api.lock import LockSign
from support.file_set import (
    LINES,
    MAIN,
    NEW,
    OLD,
    SHARED,
    conversation,
    home_of,
    make_home,
    open_set,
    place,
    restore_set,
    send,
)
from support.restoring import picture, restoring_sandbox, staged
from support.sandbox import write

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox_agent.core.sandbox import Sandbox

SIGN = LockSign("sessions", r"^(?P<pid>\d+)\.json$", b"S1")


def _send_empty(held: Sandbox, *paths: bytes, mode: int = 0, is_lines: bool = False) -> None:
    """Begin a restore with empty files; it is not committed."""
    with open_set(held) as one:
        for path in paths:
            one.begin_file(path, mode, append_lines=is_lines)
            one.end_file(hashlib.sha256().digest())


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (b"../x", "unsafe_name"),
        (b"/x", "unsafe_name"),
        (b"a//b", "unsafe_name"),
        (b"", "unsafe_name"),
        (b"a/.git/x", "unsafe_name"),
        (b"\xff", "unsafe_name"),
        (b".outpost-recovery/x", "unsafe_name"),
        (b"a/.outpost-old-0", "unsafe_name"),
        (b"first", "protocol"),
        (b"first/below", "protocol"),
        (b"second", "protocol"),
    ],
)
def test_paths_that_are_refused(tmp_path: Path, path: bytes, reason: str) -> None:
    """A path that leaves the home, is this product's own, comes twice or is a file and a directory at once."""
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        with pytest.raises(SessionError) as caught:
            _send_empty(held, b"first", b"second/below", path)
        assert caught.value.reason == reason
        assert picture(tmp_path) == before


def test_mode_that_is_refused(tmp_path: Path) -> None:
    """Bits beyond the permissions are a mistake of the caller."""
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        with pytest.raises(ConfigurationError) as caught:
            _send_empty(held, b"x", mode=0o4755)
        assert caught.value.reason == "invalid_argument"
        assert picture(tmp_path) == before


def _make(path: Path, kind: str, outside: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            os.chdir(path.parent)
            made.bind(path.name)
    elif kind == "link":
        path.symlink_to(outside)
    else:
        path.parent.rmdir()
        path.parent.symlink_to(outside.parent) if kind == "folder link" else path.parent.write_bytes(b"a file")


@pytest.mark.parametrize("is_lines", [False, True])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("directory", "not_a_file"),
        ("fifo", "not_a_file"),
        ("socket", "not_a_file"),
        ("link", "unsafe_path"),
        ("folder link", "unsafe_path"),
        ("folder file", "not_a_file"),
    ],
)
def test_what_is_no_file_is_refused_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str, *, is_lines: bool
) -> None:
    """A directory, special file or link where a file belongs, or on the way to it, ends the restore at once."""
    monkeypatch.chdir(tmp_path)
    outside = tmp_path / "outside" / "x"
    write(outside.parent, {"x": b"kept"})
    home = tmp_path / "home"
    with restoring_sandbox(home) as held:
        make_home(home)
        _make(home_of(home) / "odd/x", kind, outside)
        before = picture(tmp_path)
        with pytest.raises((OutpostError, OSError)) as caught:
            _send_empty(held, b"fine/y", b"odd/x", is_lines=is_lines)
        failure = from_os(caught.value) if isinstance(caught.value, OSError) else caught.value
        assert (failure.code, failure.reason) == ("workspace", reason)
        assert picture(tmp_path) == before


def _change(target: Path, change: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if change == "append" and target.exists():
        with target.open("ab") as file:
            file.write(b"written by the CLI")
    elif change == "remove" and target.exists():
        target.unlink()
    elif change == "link":
        target.unlink(missing_ok=True)
        target.symlink_to("/etc/passwd")
    else:
        fresh = target.with_name("fresh")
        fresh.write_bytes(target.read_bytes() if target.exists() else b"")
        fresh.rename(target)


@pytest.mark.parametrize("change", ["append", "replace", "remove", "create", "link"])
@pytest.mark.parametrize("path", ["todos/S1.json", MAIN, "projects/-ws/S1/tool-results/deep/r.txt"])
def test_target_that_changes_meanwhile(tmp_path: Path, change: str, path: str) -> None:
    """A file that is not what it was when its part came, an unchanged one as well, refuses the commit."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        with open_set(held) as one:
            numbers = send(one, NEW, lines={SHARED: LINES})
            _change(home / path, change)
            before = picture(home)
            with pytest.raises((ConflictError, OSError)) as caught:
                one.commit(*numbers)
        assert change == "link" or getattr(caught.value, "reason", "") == "target_changed"
        left = {name: data for name, data in before.items() if ".outpost-" not in name}
        assert picture(home) == left
        assert staged(tmp_path) == []


def test_numbers_of_the_commit(tmp_path: Path) -> None:
    """A commit that names other numbers than what has arrived places nothing, nor does one without a file."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        before = picture(tmp_path)
        for files, more_files, more_bytes in ((NEW, 1, 0), (NEW, 0, 1), (NEW, -1, 0), ({}, 0, 0)):
            with open_set(held) as one:
                files_count, bytes_count = send(one, files)
                with pytest.raises(SessionError) as caught:
                    one.commit(files_count + more_files, bytes_count + more_bytes)
            assert caught.value.reason == ("incomplete" if files else "empty")
            assert picture(tmp_path) == before


def test_wrong_digest(tmp_path: Path) -> None:
    """Content that is not what was promised leaves nothing, and a home that was made goes again."""
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        with open_set(held) as one:
            send(one, NEW)
            one.begin_file(b"x", 0, append_lines=False)
            one.feed(b"x")
            with pytest.raises(SessionError) as caught:
                one.end_file(hashlib.sha256(b"y").digest())
        assert caught.value.reason == "digest_mismatch"
        assert picture(tmp_path) == before


def test_more_files_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of files is limited."""
    monkeypatch.setattr("sandbox_agent.core.file_set_staging.MAX_FILES_COUNT", 4)
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        with pytest.raises(LimitError) as caught, open_set(held) as one:
            send(one, NEW)
        assert caught.value.reason == "max_files"
        assert picture(tmp_path) == before
        restore_set(held, OLD)


def test_paths_too_long_to_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths count with those of their directories, each once: a client cannot have the daemon hold any number."""
    monkeypatch.setattr("sandbox_agent.core.file_set_staging.MAX_LINES_BYTES", 20)
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        _send_empty(held, b"a/b/1", b"a/b/2", b"a/b/3")  # 15, and 4 for the directories
        with pytest.raises(LimitError) as caught:
            _send_empty(held, b"a/b/1", b"a/c/2", b"a/d/3")
        assert (caught.value.reason, caught.value.facts) == ("max_bytes", {"max_bytes": "20"})
        assert picture(tmp_path) == before


def test_names_too_long_to_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that no sweep would read is not made: the old files stay, nothing is left."""
    monkeypatch.setattr("sandbox_agent.core.intent.MAX_LINES_BYTES", 200)
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        before = picture(tmp_path)
        with pytest.raises(LimitError) as caught:
            restore_set(held, NEW)
        assert caught.value.reason == "max_bytes"
        assert picture(tmp_path) == before


def test_disk_that_is_too_small(tmp_path: Path) -> None:
    """More than the disk has is refused before anything arrives."""
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        with pytest.raises(LimitError) as caught, open_set(held, expected_bytes=1 << 60):
            pass
        assert caught.value.reason == "disk_full"
        assert picture(tmp_path) == before


@pytest.mark.parametrize("begins_late", [False, True])
def test_conversation_that_is_open(tmp_path: Path, *, begins_late: bool) -> None:
    """A sign of a running process refuses the restore, at its beginning and again at its commit; force overrides."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        sign = home / "sessions" / f"{os.getpid()}.json"
        if not begins_late:
            write(home, {f"sessions/{sign.name}": b'{"sessionId":"S1"}'})
        before = picture(home)

        def run() -> None:
            with open_set(held, place(tmp_path, signs=[SIGN])) as one:
                numbers = send(one, NEW)
                write(home, {f"sessions/{sign.name}": b'{"sessionId":"S1"}'})
                one.commit(*numbers)

        with pytest.raises(ConflictError) as caught:
            run()
        assert caught.value.reason == "in_use"
        assert caught.value.facts == {"pid": str(os.getpid()), "path": str(sign)}
        assert {path: data for path, data in picture(home).items() if not path.startswith("sessions")} == {
            path: data for path, data in before.items() if not path.startswith("sessions")
        }
        restore_set(held, NEW, place(tmp_path, signs=[SIGN], force=True))


def test_holder_whose_process_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock whose process cannot be told is a sign as well."""
    monkeypatch.setattr(file_set_target, "find_holders", lambda *_: [Holder(b"/x/lock", 0)])
    with restoring_sandbox(tmp_path) as held, pytest.raises(ConflictError, match="unknown"), open_set(held):
        pass


def test_failure_after_all_files_were_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are moved back, directories that were made for them go, and so does the recovery folder."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        before = picture(tmp_path)
        real = os.fsync

        def fail(fd: int) -> None:
            if ".outpost-recovery" in os.readlink(f"/proc/self/fd/{fd}") and conversation(tmp_path) == NEW:  # noqa: PTH115
                raise OSError(5, "injected")
            real(fd)

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="injected"):
            restore_set(held, NEW, full_durability=True)
        assert picture(tmp_path) == before


def test_shared_file_with_another_name(tmp_path: Path) -> None:
    """A file that may be another's outside is refused before any other is moved."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        (tmp_path / "outside").hardlink_to(home / SHARED)
        before = picture(tmp_path)
        inodes = {path: (home / path).stat().st_ctime_ns for path in OLD}
        with pytest.raises(WorkspaceError) as caught:
            restore_set(held, NEW, lines={SHARED: LINES})
        assert caught.value.reason == "unsafe_path"
        assert picture(tmp_path) == before
        assert {path: (home / path).stat().st_ctime_ns for path in OLD} == inodes


def test_outside_the_roots(tmp_path: Path) -> None:
    """A home that lies in no root, or is a link, is refused."""
    with restoring_sandbox(tmp_path / "home") as held:
        with pytest.raises(WorkspaceError) as caught:
            restore_set(held, NEW, place(tmp_path))
        assert caught.value.reason == "outside_roots"
        home_of(tmp_path / "home").symlink_to(tmp_path)
        with pytest.raises(OSError, match="symbolic links"):
            restore_set(held, NEW)
        assert not (tmp_path / "projects").exists()


@pytest.mark.parametrize("what", ["restore", "undo", "prune"])
def test_home_that_another_daemon_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A change of a home while another daemon holds it is refused as busy, and nothing is changed."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        restore_set(held, NEW)
        before = picture(tmp_path)
        for module in (file_set, file_set_recovery):
            monkeypatch.setattr(module, "folder_lock", partial(folder_lock, wait_seconds=0.05))
        other = os.open(home, os.O_RDONLY)
        try:
            fcntl.flock(other, fcntl.LOCK_EX)
            with pytest.raises(ConflictError) as caught:
                _change_home(held, tmp_path, what)
        finally:
            os.close(other)
        assert caught.value.reason == "busy"
        assert picture(tmp_path) == before
        _change_home(held, tmp_path, what)


def _change_home(held: Sandbox, agent_home: Path, what: str) -> None:
    if what == "restore":
        restore_set(held, OLD)
    elif what == "undo":
        undo_files(held, place(agent_home), "")
    else:
        prune_files(held, place(agent_home), 0, None)
