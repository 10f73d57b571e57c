"""What a restore refuses, with its reason; then the old session is as it was and nothing new is there."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import target
from sandbox_agent.core.recovery import undo_restore
from sandbox_agent.core.restore import Restore
from sandbox_api.errors import (
    ConfigurationError,
    ConflictError,
    LimitError,
    OutpostError,
    SessionError,
    WorkspaceError,
)
from sandbox_api.limits import Limits
from sandbox_api.manifest import Entry, bundle_digest
from support.filesystem import mounted
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
    from collections.abc import Sequence
    from pathlib import Path

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


def test_session_that_is_a_mount_point(tmp_path: Path) -> None:
    """It cannot be exchanged for another: refused by that name, by a restore as by an undo, and what it holds stays."""
    with restoring_sandbox(tmp_path) as held:
        restore_files(held, OLD)
        restore_files(held, NEW)
        session = tmp_path / ".demo/sessions" / ID
        with mounted(session, "tmpfs", "size=1m"):
            write(session, {"state.json": b"mounted"})
            before = picture(tmp_path)
            for replace_it in (
                lambda: restore_files(held, OLD),
                lambda: undo_restore(held, place(), "", force=False),
            ):
                with pytest.raises(WorkspaceError, match=f"a file system is mounted at {session}") as caught:
                    replace_it()
                assert caught.value.reason == "mounted"
                assert caught.value.hint
            assert picture(tmp_path) == before
