"""The journal: what a dead daemon left is finished or removed, and nothing else is touched, whatever an entry says."""

from __future__ import annotations

import fcntl
import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from sandbox_agent.core.intent import Intent, Record
from sandbox_agent.core.recovery import list_recovery
from sandbox_agent.core.recovery_entry import Sidecar, new_entry_name, read_sidecar, write_sidecar
from support.restoring import OLD, files_of, picture, restoring_sandbox, staged
from support.sandbox import ID, make_session, place, write

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox_agent.core.sandbox import Sandbox

NEW = {"state.json": b"the new one"}


def _begin(held: Sandbox, home: Path, **fields: Any) -> Path:
    """Note a restore and stage NEW, then let go as a crash does; return the staging directory."""
    intent = held.journal.begin(Record(os.fsencode(home / ".demo"), b"sessions", ID), durable=False)
    staging = home / ".demo/sessions" / intent.staging_name.decode()
    staging.mkdir(parents=True)
    write(staging, NEW)
    if fields.pop("told", True):
        intent.write(durable=False, staging_inode=staging.stat().st_ino, **fields)
    intent.close()
    return staging


def _prepare(home: Path, held: Sandbox) -> str:
    """Write the sidecar of a recovery entry that is about to be."""
    name = new_entry_name(ID)
    folder = home / ".demo/.outpost-recovery"
    folder.mkdir(parents=True, exist_ok=True)
    with held.roots.directory(os.fsencode(folder)) as directory:
        write_sidecar(directory, name, Sidecar("demo", f"sessions/{ID}".encode()), None, durable=False)
    return name


def test_nothing_was_exchanged_yet(tmp_path: Path) -> None:
    """A staging directory with the journaled inode is the new session: it goes, and the old one stays."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        name = _prepare(tmp_path, held)
        _begin(held, tmp_path, recovery=name, old_inode=session.stat().st_ino)
        assert len(held.journal.sweep(held.roots)) == 1
        assert files_of(session) == OLD
        assert staged(tmp_path) == []
        assert list((tmp_path / ".demo/.outpost-recovery").iterdir()) == []


def test_crash_before_the_inode_was_known(tmp_path: Path) -> None:
    """A staging directory whose inode was never noted cannot have been exchanged: it goes."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        _begin(held, tmp_path, told=False)
        held.journal.sweep(held.roots)
        assert files_of(session) == OLD
        assert staged(tmp_path) == []


def test_crash_before_anything_was_made(tmp_path: Path) -> None:
    """An entry without a directory, or without a CLI home, is done."""
    with restoring_sandbox(tmp_path) as held:
        held.journal.begin(Record(os.fsencode(tmp_path / ".demo"), b"sessions", ID), durable=True).close()
        assert len(held.journal.sweep(held.roots)) == 1
        assert picture(tmp_path) == {".outpost-agent": "dir"}


def test_a_home_that_is_mounted_later_keeps_its_note(tmp_path: Path) -> None:
    """A start that does not find the home leaves the note; the next one sets the old session aside."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        name = _prepare(tmp_path, held)
        staging = _begin(held, tmp_path, recovery=name, old_inode=session.stat().st_ino)
        session.rename(tmp_path / "old")
        staging.rename(session)
        (tmp_path / "old").rename(staging)
        (tmp_path / ".demo").rename(tmp_path / "elsewhere")
        (told,) = held.journal.sweep(held.roots)
        assert "mount the home" in told
        (tmp_path / "elsewhere").rename(tmp_path / ".demo")
        assert len(held.journal.sweep(held.roots)) == 1
        assert files_of(session) == NEW
        assert files_of(tmp_path / ".demo/.outpost-recovery" / name) == OLD
        assert staged(tmp_path) == []


def test_exchanged_and_not_set_aside(tmp_path: Path) -> None:
    """A staging name with another inode than the journaled one holds the old session: it moves to recovery."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        name = _prepare(tmp_path, held)
        staging = _begin(held, tmp_path, recovery=name, old_inode=session.stat().st_ino)
        session.rename(tmp_path / "x")
        staging.rename(session)
        (tmp_path / "x").rename(staging)
        held.journal.sweep(held.roots)
        assert files_of(session) == NEW
        assert files_of(tmp_path / ".demo/.outpost-recovery" / name) == OLD
        assert staged(tmp_path) == []
        assert [item.name for item in list_recovery(held, place())] == [name]


def test_exchanged_and_the_recovery_folder_is_gone(tmp_path: Path) -> None:
    """The old session is never removed for want of a recovery folder: the folder is made again."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        name = new_entry_name(ID)
        staging = _begin(held, tmp_path, recovery=name, old_inode=session.stat().st_ino)
        session.rename(tmp_path / "x")
        staging.rename(session)
        (tmp_path / "x").rename(staging)
        held.journal.sweep(held.roots)
        assert files_of(tmp_path / ".demo/.outpost-recovery" / name) == OLD


def test_renumbered_inodes_lose_nothing(tmp_path: Path) -> None:
    """When no inode is the journaled one, as after a new mount of some file systems, nothing is removed."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        name = _prepare(tmp_path, held)
        _begin(held, tmp_path, recovery=name, old_inode=session.stat().st_ino)
        journal_file = next((tmp_path / ".outpost-agent").iterdir())
        lines = journal_file.read_text().splitlines()
        journal_file.write_text(
            "\n".join([lines[0], json.dumps(json.loads(lines[1]) | {"staging_inode": 1, "old_inode": 2}), ""])
        )
        held.journal.sweep(held.roots)
        assert files_of(session) == OLD
        assert files_of(tmp_path / ".demo/.outpost-recovery" / name) == NEW
        assert staged(tmp_path) == []


def test_set_aside_by_rename_goes_on(tmp_path: Path) -> None:
    """Without exchange: the old session is in recovery, none is in place, and the new one is placed."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        name = _prepare(tmp_path, held)
        _begin(held, tmp_path, recovery=name, old_inode=session.stat().st_ino, phase="replace")
        session.rename(tmp_path / ".demo/.outpost-recovery" / name)
        held.journal.sweep(held.roots)
        assert files_of(session) == NEW
        assert staged(tmp_path) == []


@pytest.mark.parametrize("left", [OLD, {"log/a.txt": b"same"}, {}])
def test_removal_of_a_copied_session_goes_on(tmp_path: Path, left: dict[str, bytes]) -> None:
    """Without rename: what recovery has byte for byte is removed from the place, and the new session placed."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, left)
        name = _prepare(tmp_path, held)
        _begin(held, tmp_path, recovery=name, old_inode=session.stat().st_ino, phase="replace")
        write(tmp_path / ".demo/.outpost-recovery" / name, OLD)
        held.journal.sweep(held.roots)
        assert files_of(session) == NEW
        assert files_of(tmp_path / ".demo/.outpost-recovery" / name) == OLD
        assert staged(tmp_path) == []


def test_session_that_recovery_has_not_stays(tmp_path: Path) -> None:
    """A session in place with anything that recovery has not is never removed, whatever the journal says."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, {**OLD, "state.json": b"written since"})
        name = _prepare(tmp_path, held)
        _begin(held, tmp_path, recovery=name, old_inode=session.stat().st_ino, phase="replace")
        write(tmp_path / ".demo/.outpost-recovery" / name, OLD)
        held.journal.sweep(held.roots)
        assert files_of(session)["state.json"] == b"written since"
        assert staged(tmp_path) == []


def test_half_a_copy_in_recovery_goes(tmp_path: Path) -> None:
    """A copy that did not get its name is removed; the old session is in place."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        name = _prepare(tmp_path, held)
        staging = _begin(held, tmp_path, recovery=name, old_inode=session.stat().st_ino, phase="replace")
        write(tmp_path / ".demo/.outpost-recovery" / staging.name, {"half": b""})
        held.journal.sweep(held.roots)
        assert files_of(session) == OLD
        assert staged(tmp_path) == []
        assert list((tmp_path / ".demo/.outpost-recovery").iterdir()) == []


def test_living_restore_is_left_alone(tmp_path: Path) -> None:
    """An entry whose daemon holds its lock is not swept; once the lock is gone it is."""
    with restoring_sandbox(tmp_path) as held:
        intent = held.journal.begin(Record(os.fsencode(tmp_path / ".demo"), b"sessions", ID), durable=False)
        staging = tmp_path / ".demo/sessions" / intent.staging_name.decode()
        staging.mkdir(parents=True)
        assert held.journal.sweep(held.roots) == []
        assert staging.is_dir()
        intent.close()
        assert len(held.journal.sweep(held.roots)) == 1
        assert not staging.exists()


def test_torn_last_line_does_not_count(tmp_path: Path) -> None:
    """What a crash tore says nothing; the lines before it do."""
    with restoring_sandbox(tmp_path) as held:
        _begin(held, tmp_path)
        journal_file = next((tmp_path / ".outpost-agent").iterdir())
        journal_file.write_bytes(journal_file.read_bytes() + b'{"recovery": "id-1-')
        assert len(held.journal.sweep(held.roots)) == 1
        assert staged(tmp_path) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no json\n",
        b"[]\n",
        b'"text"\n',
        b'{"version": 2}\n',
        b"[" * 40000 + b"\n",
        b'{"version": 1, "cli_home": 7, "parent": "sessions", "conversation_id": "id-1"}\n',
        b'{"version": 1, "cli_home": "/", "parent": "../x", "conversation_id": "id-1"}\n',
        b'{"version": 1, "cli_home": "/", "parent": "sessions", "conversation_id": "../x"}\n',
        b'{"version": 1, "cli_home": "/", "parent": "s", "conversation_id": "i", "recovery": "../../x"}\n',
        b'{"version": 1, "cli_home": "/", "parent": "s", "conversation_id": "i", "staging_inode": "1"}\n',
        b'{"version": 1, "cli_home": "/", "parent": "s", "conversation_id": "i", "staging_inode": true}\n',
        b'{"version": 1, "cli_home": "/", "parent": "\\ud800", "conversation_id": "i"}\n',
        b'{"version": 1, "cli_home": "/\\ud800", "parent": "s", "conversation_id": "i"}\n',
    ],
)
def test_entry_that_no_restore_wrote_goes(tmp_path: Path, content: bytes) -> None:
    """An entry that makes no sense is removed, and nothing is done for it."""
    with restoring_sandbox(tmp_path) as held:
        entry = tmp_path / ".outpost-agent" / f"{'0' * 32}.json"
        entry.write_bytes(content)
        assert held.journal.sweep(held.roots) == []
        assert not entry.exists()


@pytest.mark.parametrize("is_link", [False, True])
def test_forged_entry_reaches_nothing_outside(tmp_path: Path, *, is_link: bool) -> None:
    """An entry that leads outside the roots, by its path or by a link, leaves what is there alone."""
    outside = tmp_path / "outside"
    victim = outside / "sessions" / f".outpost-session-{'0' * 32}"
    write(victim, {"kept": b"1"})
    home = tmp_path / "home"
    with restoring_sandbox(home) as held:
        if is_link:
            (home / ".demo").symlink_to(outside)
        forged = {
            "version": 1,
            "cli_home": str(home / ".demo" if is_link else outside),
            "parent": "sessions",
            "conversation_id": ID,
        }
        (home / ".outpost-agent" / f"{'0' * 32}.json").write_text(json.dumps(forged) + "\n")
        told = held.journal.sweep(held.roots)
    assert len(told) == 1
    assert told[0].startswith("left ")
    assert files_of(outside) == {f"sessions/{victim.name}/kept": b"1"}


def test_forged_entry_cannot_remove_a_session(tmp_path: Path) -> None:
    """An entry can name a session and a recovery entry of other content; neither changes."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        name = new_entry_name(ID)
        write(tmp_path / ".demo/.outpost-recovery" / name, {"state.json": b"another"})
        _begin(held, tmp_path, recovery=name, old_inode=session.stat().st_ino, phase="replace")
        held.journal.sweep(held.roots)
        assert files_of(session) == OLD
        assert files_of(tmp_path / ".demo/.outpost-recovery" / name) == {"state.json": b"another"}


def test_other_files_in_the_state_folder_stay(tmp_path: Path) -> None:
    """Names that no journal file has, and links with such a name, are not looked at."""
    with restoring_sandbox(tmp_path) as held:
        state = tmp_path / ".outpost-agent"
        (state / "socket").write_bytes(b"1")
        (state / f"{'a' * 32}.json").symlink_to(tmp_path / "x")
        assert held.journal.sweep(held.roots) == []
        assert sorted(path.name for path in state.iterdir()) == [f"{'a' * 32}.json", "socket"]


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_entry_that_is_no_file_does_not_stop_the_sweep(tmp_path: Path, kind: str) -> None:
    """What the sandbox made under the name of an entry, to be met first, hides no other entry."""
    with restoring_sandbox(tmp_path) as held:
        _begin(held, tmp_path)
        forged = tmp_path / ".outpost-agent" / f"{'0' * 32}.json"
        if kind == "fifo":
            os.mkfifo(forged)
        else:
            forged.mkdir()
        assert len(held.journal.sweep(held.roots)) == 1
        assert staged(tmp_path) == [f".outpost-agent/{forged.name}"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_entry_of_another_user_is_not_ours(tmp_path: Path) -> None:
    """A daemon that is root does not act on an entry that the sandbox's user wrote."""
    with restoring_sandbox(tmp_path) as held:
        staging = _begin(held, tmp_path)
        os.chown(next((tmp_path / ".outpost-agent").iterdir()), 1001, 1001)
        assert held.journal.sweep(held.roots) == []
        assert staging.is_dir()


def test_entry_that_cannot_be_finished_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails now is told and tried again by the next sweep."""
    with restoring_sandbox(tmp_path) as held:
        _begin(held, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr("sandbox_agent.core.sweep.remove_tree", _fail)
            assert "left" in held.journal.sweep(held.roots)[0]
        assert "removed" in held.journal.sweep(held.roots)[0]


def test_folders_that_others_hold_do_not_stop_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many entries wait for a folder, the sweep waits for all of them together as long as for one."""
    monkeypatch.setattr("sandbox_agent.core.journal.WAIT_SECONDS", 0.2)
    with restoring_sandbox(tmp_path) as held:
        for _ in range(10):
            _begin(held, tmp_path)
        folder = os.open(tmp_path / ".demo/sessions", os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        began = time.monotonic()
        told = held.journal.sweep(held.roots)
        os.close(folder)
        assert time.monotonic() - began < 2
        assert len([line for line in told if line.startswith("left ")]) == 10
        assert len(held.journal.sweep(held.roots)) == 10
        assert staged(tmp_path) == []


def test_notes_are_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that takes a byte at a time gets all of a journal entry and of the file beside a recovery entry."""
    real = os.write
    with restoring_sandbox(tmp_path) as held:
        intent = held.journal.begin(Record(os.fsencode(tmp_path / ".demo"), b"sessions", ID), durable=False)
        name = new_entry_name(ID)
        folder = tmp_path / ".demo/.outpost-recovery"
        folder.mkdir(parents=True)
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:1]))
        intent.write(durable=False, recovery=name, staging_inode=7, old_inode=8)
        assert intent.read() == Record(os.fsencode(tmp_path / ".demo"), b"sessions", ID, name, 7, 8)
        with held.roots.directory(os.fsencode(folder)) as directory:
            write_sidecar(directory, name, Sidecar("demo", b"sessions/x"), None, durable=False)
            assert read_sidecar(directory, name) == Sidecar("demo", b"sessions/x")
        intent.end()


def _fail(*_: object) -> None:
    raise PermissionError(13, "no")


def test_sweep_that_meets_a_new_entry_makes_it_take_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making and locking an entry another daemon may remove it; the restore then has one all the same."""
    with restoring_sandbox(tmp_path) as held:
        names: list[str] = []
        real = fcntl.flock

        def removing(fd: int, operation: int) -> None:
            [name] = [path.name for path in (tmp_path / ".outpost-agent").iterdir()]
            names.append(name)
            if len(names) == 1:
                os.unlink(name, dir_fd=held.journal.directory.fd)
            real(fd, operation)

        monkeypatch.setattr(fcntl, "flock", removing)
        intent = Intent.create(held.journal.directory)
        assert len(set(names)) == 2
        assert [path.name for path in (tmp_path / ".outpost-agent").iterdir()] == [names[1]]
        intent.end()
