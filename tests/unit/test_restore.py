"""A restore: what is refused before anything changes, what is skipped, relocated and validated, and what it leaves."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core import placement, syscall
from sandbox_api.errors import (
    ConflictError,
    SessionError,
    UnavailableError,
)
from sandbox_api.limits import Limits
from sandbox_api.manifest import bundle_digest
from support.restoring import (
    NEW,
    OLD,
    entries_of,
    files_of,
    open_restore,
    picture,
    restore_files,
    restoring_sandbox,
    send,
    staged,
)
from support.sandbox import BUCKETED, FLAT, ID, make_session, place, write

MOVED = replace(
    FLAT,
    relocated=("state.json", "log/*.txt"),
    relocate="lambda path, text, context: text.replace('/old', context.cwd)",
)


def _session(home: Path, bucket: str = "") -> Path:
    return home / ".demo/sessions" / bucket / ID


def test_restore_into_an_empty_home(tmp_path: Path) -> None:
    """Bytes, paths and counts are those of the bundle; files are 0600 and directories 0700; nothing else is left."""
    with restoring_sandbox(tmp_path) as held:
        result = restore_files(held, NEW)
    session = _session(tmp_path)
    assert files_of(session) == NEW
    assert result.target == os.fsencode(session)
    assert (result.unchanged, result.recovery, result.not_atomic) == (False, "", False)
    assert (result.files_count, result.bytes_count) == (len(NEW), sum(map(len, NEW.values())))
    assert result.digest == bundle_digest(entries_of(NEW))
    for path in picture(tmp_path / ".demo"):
        mode = stat.S_IMODE((tmp_path / ".demo" / path).stat().st_mode)
        assert mode == (0o700 if (tmp_path / ".demo" / path).is_dir() else 0o600)
    assert staged(tmp_path) == []


def test_names_that_shells_fear(tmp_path: Path) -> None:
    """Odd names are restored as they are."""
    files = {
        "state.json": b"1",
        **dict.fromkeys(("[slug]", "a:b", "-rf", "new\nline", "x" * 255, " s ", "dot.", "ü"), b"2"),
    }
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, files)
    assert files_of(_session(tmp_path)) == files


@given(
    st.dictionaries(
        st.lists(st.sampled_from(["a", "b", "c.d"]), min_size=1, max_size=4).map("/".join),
        st.binary(max_size=40),
        max_size=8,
    ),
    st.integers(min_value=1, max_value=60),
)
def test_any_tree_in_any_split(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], split: int) -> None:
    """Whatever the tree and however its payload is cut, what is in place is the tree."""
    kept = {path: data for path, data in files.items() if not any(other.startswith(path + "/") for other in files)}
    kept["state.json"] = b"s"
    home = tmp_path_factory.mktemp("home")
    with restoring_sandbox(home) as held, open_restore(held, kept) as restore:
        send(restore, kept, restore.begin(), piece_bytes=split)
        restore.commit()
    assert files_of(_session(home)) == kept


def test_second_restore_changes_nothing(tmp_path: Path) -> None:
    """What is there already is not asked for, not written and not touched; nothing goes to recovery."""
    with restoring_sandbox(tmp_path) as held:
        first = restore_files(held, NEW)
        before, moments = picture(tmp_path), _moments(tmp_path)
        with open_restore(held, NEW, full_durability=True) as restore:
            assert restore.begin() == [False] * len(NEW)
            result = restore.commit()
        assert result == replace(first, unchanged=True)
        assert (picture(tmp_path), _moments(tmp_path)) == (before, moments)


def _moments(home: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in picture(home):
        status = (home / path).lstat()
        found[path] = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    return found


def test_only_what_differs_is_lacking(tmp_path: Path) -> None:
    """A file that the session in place holds is not asked for, whatever else changes."""
    with restoring_sandbox(tmp_path) as held:
        make_session(tmp_path, OLD)
        with open_restore(held, NEW) as restore:
            lacking = restore.begin()
            asked = [entry.path for entry, lacks in zip(entries_of(NEW), lacking, strict=True) if lacks]
            assert asked == [b"log/deep/b.txt", b"state.json", b"z"]
            send(restore, NEW, lacking)
            restore.commit()
        assert files_of(_session(tmp_path)) == NEW


def test_nothing_is_lacking_but_a_file_is_too_many(tmp_path: Path) -> None:
    """A session in place that has more than the bundle is replaced, by copies of what it has."""
    with restoring_sandbox(tmp_path) as held:
        make_session(tmp_path, {**NEW, "more": b"1"})
        result = restore_files(held, NEW)
        assert not result.unchanged
        assert files_of(_session(tmp_path)) == NEW


def test_what_the_profile_does_not_select_is_no_difference(tmp_path: Path) -> None:
    """Locks and logs of the session in place do not make it another session, and stay."""
    with restoring_sandbox(tmp_path) as held:
        make_session(tmp_path, {**NEW, "a.lock": b"", "logs/x": b""})
        assert restore_files(held, NEW).unchanged
        assert files_of(_session(tmp_path)) == {**NEW, "a.lock": b"", "logs/x": b""}


@pytest.mark.parametrize("content", ["link", "fifo", "too large"])
def test_session_that_cannot_be_walked_is_replaced_whole(tmp_path: Path, content: str) -> None:
    """A session with links or worse is no source; it goes to recovery as it is, and no link is followed."""
    outside = tmp_path / "outside"
    write(outside, {"secret": b"1"})
    home = tmp_path / "home"
    with restoring_sandbox(home) as held:
        session = make_session(home, OLD)
        if content == "link":
            (session / "link").symlink_to(outside)
        elif content == "fifo":
            os.mkfifo(session / "pipe")
        else:
            os.truncate(session / "state.json", Limits().max_bytes + 1)
        before = sorted(path.relative_to(session) for path in session.rglob("*"))
        with open_restore(held, NEW) as restore:
            lacking = restore.begin()
            assert all(lacking)
            send(restore, NEW, lacking)
            recovery = home / ".demo/.outpost-recovery" / restore.commit().recovery
        assert sorted(path.relative_to(recovery) for path in recovery.rglob("*")) == before
    assert files_of(outside) == {"secret": b"1"}


def test_relocation(tmp_path: Path) -> None:
    """Relocated files get the workspace of this sandbox, others keep their bytes; only changed ones are named."""
    files = {"state.json": b"in /old", "log/a.txt": b"nothing", "other": b"in /old"}
    with restoring_sandbox(tmp_path) as held:
        result = restore_files(held, files, place(MOVED))
        home = os.fsencode(tmp_path)
        expected = {**files, "state.json": b"in " + home}
        assert files_of(_session(tmp_path)) == expected
        assert result.relocated == [b"state.json"]
        assert result.digest == bundle_digest(entries_of(expected))
        assert result.bytes_count == sum(map(len, expected.values()))
        assert stat.S_IMODE((_session(tmp_path) / "state.json").stat().st_mode) == 0o600


def test_relocated_files_are_always_lacking(tmp_path: Path) -> None:
    """What relocation rewrites is asked for again, and when the result is what is in place, nothing changes."""
    files = {"state.json": b"in /old", "log/a.txt": b"nothing", "other": b"in /old"}
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, files, place(MOVED))
        before, moments = picture(tmp_path), _moments(_session(tmp_path))
        with open_restore(held, files, place(MOVED)) as restore:
            lacking = restore.begin()
            assert lacking == [True, False, True]
            send(restore, files, lacking)
            assert restore.commit().unchanged
        assert (picture(tmp_path), _moments(_session(tmp_path))) == (before, moments)


def test_relocation_is_told_where_the_session_will_be(tmp_path: Path) -> None:
    """The hook gets id, workspace and final path, and sees all files as they came whatever was rewritten before."""
    profile = replace(
        MOVED,
        relocate="lambda path, text, c: ' '.join([c.id, c.target, c.files.text('log/a.txt')])",
    )
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, {"state.json": b"1", "log/a.txt": b"came"}, place(profile))
    expected = f"{ID} {_session(tmp_path)} came".encode()
    assert files_of(_session(tmp_path)) == {"state.json": expected, "log/a.txt": expected}


def test_bucket_of_the_workspace(tmp_path: Path) -> None:
    """With buckets, the session lies in the one that the hook names, which is made when missing."""
    with restoring_sandbox(tmp_path) as held:
        result = restore_files(held, NEW, place(BUCKETED))
        assert result.target == os.fsencode(_session(tmp_path, "b"))
        assert files_of(_session(tmp_path, "b")) == NEW
        assert restore_files(held, OLD, place(BUCKETED)).recovery


def test_left_without_commit(tmp_path: Path) -> None:
    """A restore that is abandoned, as by a cancel, leaves nothing, at whatever point."""
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        with open_restore(held, NEW):
            pass
        with open_restore(held, NEW) as restore:
            restore.begin()
        with open_restore(held, NEW) as restore:
            send(restore, NEW, restore.begin())
        assert picture(tmp_path) == before


def test_abandoned_restore_keeps_folders_that_are_used(tmp_path: Path) -> None:
    """Folders that were missing before stay when somebody else put something there meanwhile."""
    with restoring_sandbox(tmp_path) as held:
        with open_restore(held, NEW) as restore:
            send(restore, NEW, restore.begin())
            make_session(tmp_path, OLD, conversation_id="other")
        assert files_of(tmp_path / ".demo/sessions") == {f"other/{path}": data for path, data in OLD.items()}


def test_folder_that_another_restore_took_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that goes between its making and the staging in it is made again."""
    with restoring_sandbox(tmp_path) as held:
        real, calls = placement.Staging, []

        def vanishing(*arguments: object) -> object:
            calls.append(1)
            if len(calls) == 1:
                (tmp_path / ".demo/sessions").rmdir()
            return real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(placement, "Staging", vanishing)
        restore_files(held, NEW)
        assert files_of(_session(tmp_path)) == NEW
        assert staged(tmp_path) == []


def test_clean_up_that_fails_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error is reported; without one, what could not be removed is."""

    def fail(_: object) -> None:
        raise PermissionError(13, "no")

    with restoring_sandbox(tmp_path) as held:
        monkeypatch.setattr("sandbox_agent.core.staging.Staging.remove", fail)
        with pytest.raises(SessionError) as caught, open_restore(held, NEW) as restore:
            send(restore, {**NEW, "z": b"y" * 5000}, restore.begin())
        assert caught.value.reason == "digest_mismatch"
        assert len(caught.value.__notes__) == 1
        with pytest.raises(UnavailableError) as left, open_restore(held, NEW) as restore:
            send(restore, NEW, restore.begin())
        assert left.value.reason == "io"
        monkeypatch.undo()
        assert len(held.journal.sweep(held.roots)) == 2
        assert staged(tmp_path) == []


def test_two_restores_at_once(tmp_path: Path) -> None:
    """One wins and the other gets a conflict; what is in place is one of the two, whole."""
    with restoring_sandbox(tmp_path) as held:
        for start in ({}, OLD):
            if start:
                restore_files(held, start)
            other = {**NEW, "state.json": b"the other"}
            with open_restore(held, NEW) as first, open_restore(held, other) as second:
                send(first, NEW, first.begin())
                send(second, other, second.begin())
                second.commit()
                with pytest.raises(ConflictError) as caught:
                    first.commit()
            assert caught.value.reason == "target_changed"
            assert files_of(_session(tmp_path)) == other
            assert staged(tmp_path) == []


def test_session_changes_while_it_is_replaced(tmp_path: Path) -> None:
    """A file that need not be sent and changes meanwhile is a conflict: what is placed was verified."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        with open_restore(held, NEW) as restore:
            send(restore, NEW, restore.begin())
            (session / "log/a.txt").write_bytes(b"SAME")
            with pytest.raises(ConflictError) as caught:
                restore.commit()
        assert caught.value.reason == "target_changed"
        assert files_of(session) == {**OLD, "log/a.txt": b"SAME"}
        assert staged(tmp_path) == []


def test_session_gets_another_file_meanwhile(tmp_path: Path) -> None:
    """A file that the CLI makes in the session after begin is noticed: it would be set aside unseen."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        with open_restore(held, NEW) as restore:
            send(restore, NEW, restore.begin())
            (session / "more").write_bytes(b"")
            with pytest.raises(ConflictError) as caught:
                restore.commit()
        assert caught.value.reason == "target_changed"
        assert files_of(session) == {**OLD, "more": b""}


def test_existing_session_goes_meanwhile(tmp_path: Path) -> None:
    """A session that is removed between begin and commit is a conflict."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        with open_restore(held, NEW) as restore:
            send(restore, NEW, restore.begin())
            restore._draft.complete()
            restore._draft._held.clear()
            session.rename(tmp_path / "gone")
            with pytest.raises(ConflictError) as caught:
                restore.commit()
        assert caught.value.reason == "target_changed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner(tmp_path: Path) -> None:
    """Everything that is made belongs to the owner, folders and recovery included; others keep theirs."""
    tmp_path.chmod(0o755)
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD, owner=(1001, 1002))
        restore_files(held, NEW, owner=(1001, 1002))
        for path in (tmp_path / ".demo", *(tmp_path / ".demo").rglob("*")):
            assert (path.stat().st_uid, path.stat().st_gid) == (1001, 1002), path
        assert restore_files(held, NEW, owner=(1001, 1002)).unchanged
        assert not restore_files(held, NEW, owner=(1001, 1003)).unchanged
        assert {path.stat().st_gid for path in (_session(tmp_path), *_session(tmp_path).rglob("*"))} == {1003}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner_gets_the_staging_directory_last(tmp_path: Path) -> None:
    """Before the commit, only the daemon reaches what is staged."""
    with restoring_sandbox(tmp_path) as held, open_restore(held, NEW, owner=(1001, 1001)) as restore:
        send(restore, NEW, restore.begin())
        staging = next((tmp_path / ".demo/sessions").glob(".outpost-session-*"))
        assert (staging.stat().st_uid, stat.S_IMODE(staging.stat().st_mode)) == (0, 0o700)


def test_full_durability_syncs_before_the_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system is synced once, when everything is written and before the place changes; not at all without."""
    with restoring_sandbox(tmp_path) as held:
        calls: list[str] = []
        real_rename, real_sync, real_fsync = syscall.renameat2, syscall.syncfs, os.fsync
        monkeypatch.setattr(syscall, "renameat2", lambda *args: (calls.append("rename"), real_rename(*args)))
        monkeypatch.setattr(syscall, "syncfs", lambda fd: (calls.append("syncfs"), real_sync(fd)))
        monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), real_fsync(fd)))
        restore_files(held, OLD)
        assert calls == ["rename"]
        calls.clear()
        restore_files(held, NEW, full_durability=True)
        # journal; content; sidecar, journal; exchange; its folder; to recovery; both folders
        assert calls == [
            *["fsync"] * 2,
            "syncfs",
            *["fsync"] * 5,
            "rename",
            "fsync",
            "rename",
            *["fsync"] * 2,
        ]


def test_memory_does_not_hold_the_content(tmp_path: Path) -> None:
    """A large file passes through in the pieces it comes in: the largest object kept is one piece."""
    content = os.urandom(1 << 20) * 24
    files = {"state.json": b"", "big": content}
    with restoring_sandbox(tmp_path) as held, open_restore(held, files) as restore:
        restore.begin()
        before = _resident_bytes()
        view = memoryview(content)
        for start in range(0, len(view), 1 << 20):
            restore.feed(bytes(view[start : start + (1 << 20)]))
        restore.commit()
        assert _resident_bytes() - before < 8 << 20


def _resident_bytes() -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10  # type: ignore[index]
