"""A restore: what is refused before anything changes, what is skipped, relocated and validated, and what it leaves."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core import placement, syscall, target
from sandbox_agent.core.bundle_check import validate_bundle
from sandbox_agent.core.recovery import list_recovery
from sandbox_agent.core.restore import Restore
from sandbox_api.errors import (
    ConfigurationError,
    ConflictError,
    LimitError,
    OutpostError,
    SessionError,
    UnavailableError,
    WorkspaceError,
)
from sandbox_api.limits import Limits
from sandbox_api.manifest import Entry, bundle_digest
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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox_agent.core.sandbox import Place, Sandbox

MOVED = replace(
    FLAT,
    relocated=("state.json", "log/*.txt"),
    relocate="lambda path, text, context: text.replace('/old', context.cwd)",
)
CHECKED = replace(
    FLAT,
    validate="lambda files, id: None if files.text('state.json').startswith('good') else 'bad ' + id",
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


def test_hook_that_fails_keeps_the_old_session(tmp_path: Path) -> None:
    """An exception in relocate aborts the restore; the session in place stays and nothing is staged."""
    profile = replace(MOVED, relocate="lambda path, text, context: 1 / 0")
    with restoring_sandbox(tmp_path) as held:
        make_session(tmp_path, OLD)
        before = picture(tmp_path)
        with pytest.raises(SessionError) as caught:
            restore_files(held, NEW, place(profile))
        assert caught.value.reason == "hook_failed"
        assert picture(tmp_path) == before


@pytest.mark.parametrize("has_old", [False, True])
def test_format_refuses_the_bundle(tmp_path: Path, *, has_old: bool) -> None:
    """What validate refuses is not placed; it is asked before relocation and sees files of both origins."""
    with restoring_sandbox(tmp_path) as held:
        if has_old:
            make_session(tmp_path, {"state.json": b"bad", "a": b"1"})
        before = picture(tmp_path)
        with pytest.raises(SessionError) as caught:
            restore_files(held, {"state.json": b"bad", "a": b"2"}, place(CHECKED))
        assert caught.value.reason == "invalid"
        assert f"bad {ID}" in caught.value.message
        assert picture(tmp_path) == before
        restore_files(held, {"state.json": b"good", "a": b"1"}, place(CHECKED))


def test_bucket_of_the_workspace(tmp_path: Path) -> None:
    """With buckets, the session lies in the one that the hook names, which is made when missing."""
    with restoring_sandbox(tmp_path) as held:
        result = restore_files(held, NEW, place(BUCKETED))
        assert result.target == os.fsencode(_session(tmp_path, "b"))
        assert files_of(_session(tmp_path, "b")) == NEW
        assert restore_files(held, OLD, place(BUCKETED)).recovery


def test_id_in_another_bucket(tmp_path: Path) -> None:
    """A session of that id elsewhere is refused with its path, before anything changes."""
    with restoring_sandbox(tmp_path) as held:
        other = make_session(tmp_path, OLD, bucket="elsewhere")
        before = picture(tmp_path)
        with pytest.raises(ConflictError) as caught:
            restore_files(held, NEW, place(BUCKETED))
        assert caught.value.reason == "other_bucket"
        assert caught.value.facts["path"] == str(other)
        assert "private home" in caught.value.hint
        assert picture(tmp_path) == before


def _refused(held: Sandbox, entries: Sequence[Entry], digest: bytes | None = None, **changes: object) -> OutpostError:
    settings: dict[str, object] = {
        "limits": held.limits,
        "full_durability": False,
        "owner": None,
        "force": False,
        "place": place(),
        **changes,
    }
    where: Place = settings.pop("place")  # type: ignore[assignment]
    restore = Restore(held, where, entries, bundle_digest(entries) if digest is None else digest, **settings)  # type: ignore[arg-type]
    with pytest.raises(OutpostError) as caught, restore:
        restore.begin()
    return caught.value


def test_what_is_refused_before_anything_changes(tmp_path: Path) -> None:
    """Every rule of the manifest is checked in begin; nothing is made, not even the CLI home."""
    good = entries_of(NEW)
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        assert _refused(held, []).reason == "empty"
        assert _refused(held, good, b"\0" * 32).reason == "digest_mismatch"
        assert _refused(held, entries_of({"z": b""})).reason == "missing_required"
        assert _refused(held, [*good, Entry(b"../x", 0, b"0" * 32)]).reason == "unsafe_name"
        assert _refused(held, entries_of({**NEW, ".git/x": b""})).reason == "unsafe_name"
        unselected = _refused(held, entries_of({**NEW, "logs/x": b"", "a.lock": b""}))
        assert (unselected.reason, unselected.offender_count) == ("unsafe_name", 2)
        assert _refused(held, good[::-1]).reason == "protocol"
        assert _refused(held, good, limits=Limits(max_bytes=10)).reason == "max_bytes"
        assert _refused(held, good, limits=Limits(max_files=1)).reason == "max_files"
        assert _refused(held, good, place=place(conversation_id="../x")).reason == "invalid_id"
        assert (
            _refused(held, good, place=place(replace(BUCKETED, bucket="lambda c, h: '..'"))).reason == "invalid_bucket"
        )
        outside = place(variables={"DEMO_HOME": "/outside"})
        assert _refused(held, good, place=outside).reason == "outside_roots"
        assert picture(tmp_path) == before


@pytest.mark.parametrize("where", [".demo", ".demo/sessions", f".demo/sessions/{ID}"])
def test_link_on_the_way(tmp_path: Path, where: str) -> None:
    """A link at the CLI home, the folder or the session is refused and not followed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    home = tmp_path / "home"
    with restoring_sandbox(home) as held:
        (home / where).parent.mkdir(parents=True, exist_ok=True)
        (home / where).symlink_to(outside)
        refused = _refused(held, entries_of(NEW))
    assert refused.reason == ("root_symlink" if where == ".demo" else "symlink")
    assert list(outside.iterdir()) == []


def test_recovery_folder_that_is_a_link(tmp_path: Path) -> None:
    """A link in the place of the recovery folder is refused; the old session stays and nothing is written outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    home = tmp_path / "home"
    with restoring_sandbox(home) as held:
        session = make_session(home, OLD)
        (home / ".demo/.outpost-recovery").symlink_to(outside)
        with pytest.raises(SessionError) as caught:
            restore_files(held, NEW)
        assert caught.value.reason == "symlink"
        assert files_of(session) == OLD
        assert staged(home) == []
    assert list(outside.iterdir()) == []


def test_file_in_the_place_of_the_session(tmp_path: Path) -> None:
    """What is no directory is not replaced."""
    with restoring_sandbox(tmp_path) as held:
        _session(tmp_path).parent.mkdir(parents=True)
        _session(tmp_path).write_bytes(b"1")
        assert _refused(held, entries_of(NEW)).reason == "exists"
        assert _session(tmp_path).read_bytes() == b"1"


def test_session_in_use(tmp_path: Path) -> None:
    """A session that a living process has open is refused, unless forced; a lock of a dead one does not count."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        (session / f"inuse.{os.getpid()}.lock").write_bytes(b"")
        with pytest.raises(ConflictError) as caught:
            restore_files(held, NEW)
        assert caught.value.reason == "in_use"
        assert caught.value.facts["pid"] == str(os.getpid())
        restore_files(held, NEW, force=True)
        assert files_of(session) == NEW


def test_session_comes_into_use_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again at the commit, under the lock."""
    with restoring_sandbox(tmp_path) as held:
        make_session(tmp_path, OLD)
        with open_restore(held, NEW) as restore:
            send(restore, NEW, restore.begin())
            monkeypatch.setattr(target, "in_use_pid", lambda *_: 4711)
            with pytest.raises(ConflictError) as caught:
                restore.commit()
        assert caught.value.reason == "in_use"


def test_content_that_is_not_what_was_promised(tmp_path: Path) -> None:
    """A wrong byte, a byte too many and an early end are refused; nothing is left, not even the folders."""
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        wrong = {**NEW, "z": b"y" * 5000}
        for payload, reason in ((wrong, "digest_mismatch"), ({**NEW, "z": b"z" * 5001}, "protocol")):
            with pytest.raises(SessionError) as caught, open_restore(held, NEW) as restore:
                send(restore, payload, restore.begin())
            assert caught.value.reason == reason
            assert picture(tmp_path) == before
        with open_restore(held, NEW) as restore:
            send(restore, {**NEW, "z": b"z"}, restore.begin())
            with pytest.raises(SessionError) as caught:
                restore.commit()
        assert caught.value.reason == "incomplete"
        assert picture(tmp_path) == before


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


def test_owner_without_privilege(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that this process may not give files to is refused before any change."""
    monkeypatch.setattr("sandbox_agent.core.owner._may_give_away", lambda: False)
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        refused = _refused(held, entries_of(NEW), owner=(os.geteuid() + 1, os.getegid()))
        assert isinstance(refused, ConfigurationError)
        assert refused.reason == "owner"
        assert picture(tmp_path) == before


def test_space_is_checked_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is refused before a byte is sent; what is in place already needs no space."""
    with restoring_sandbox(tmp_path) as held:
        make_session(tmp_path, NEW)
        monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result((4096, 4096, 100, 1, 1, 100, 9, 9, 0, 255)))
        assert restore_files(held, NEW).unchanged
        refused = _refused(held, entries_of({**NEW, "y": b"y" * 5000}))
        assert isinstance(refused, LimitError)
        assert refused.reason == "disk_full"


def test_no_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system refuses comes out as a failure of the table, not as an error of the system."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "no", b"/x")

    with restoring_sandbox(tmp_path) as held:
        monkeypatch.setattr(os, "mkdir", refuse)
        with pytest.raises(WorkspaceError) as caught:
            restore_files(held, NEW)
        assert caught.value.reason == "access"


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


def _check(held: Sandbox, files: Mapping[str, bytes], sent: bytes, profile: object = CHECKED) -> None:
    entries = entries_of(files)
    with validate_bundle(held, profile, ID, entries, bundle_digest(entries), held.limits) as check:  # type: ignore[arg-type]
        assert check.begin() == [True] * len(entries)
        for start in range(0, len(sent), 3):
            check.feed(sent[start : start + 3])
        check.finish()


@pytest.mark.parametrize("profile", [CHECKED, FLAT])
def test_bundle_check(tmp_path: Path, profile: object) -> None:
    """A bundle that is not placed gets the same checks, and leaves nothing."""
    with restoring_sandbox(tmp_path) as held:
        before = picture(tmp_path)
        _check(held, {"a": b"", "state.json": b"good one", "z": b""}, b"good one", profile)
        for files, sent, reason in (
            ({"state.json": b"good one"}, b"good two", "digest_mismatch"),
            ({"state.json": b"good one"}, b"good", "incomplete"),
            ({"state.json": b"good one"}, b"good one more", "protocol"),
            ({"other": b""}, b"", "missing_required"),
        ):
            with pytest.raises(SessionError) as caught:
                _check(held, files, sent, profile)
            assert caught.value.reason == reason
        assert picture(tmp_path) == before


def test_bundle_check_asks_the_format(tmp_path: Path) -> None:
    """The validate hook sees each file by itself."""
    with restoring_sandbox(tmp_path) as held:
        with pytest.raises(SessionError) as caught:
            _check(held, {"a": b"good", "state.json": b"bad"}, b"goodbad")
        assert caught.value.reason == "invalid"
        assert list_recovery(held, place()) == []
