"""What is left of a process, by group, session and mark."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import process_remains
from sandbox_agent.core.paths import Directory
from sandbox_agent.core.process_note import Note, sweep_processes
from sandbox_agent.core.process_plan import MARK
from sandbox_agent.core.process_remains import Remains, end_marked, end_remains, is_mark_of, mark_of
from sandbox_agent.core.process_spawn import start_ticks_of
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

FAR = 1e12
SCRIPT = 'trap "" INT; sleep 1000 & setsid sleep 1001 & env -i sleep 1002 & echo; wait'


@contextmanager
def family(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """Give a shell with a child in its group, one in a session of its own, and one without an environment."""
    environment = {**os.environ, MARK.decode(): mark}
    with subprocess.Popen(
        ["sh", "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            wait_until(lambda: len(below(process.pid)) == 3, "the children")
            yield process
        finally:
            for pid in below(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.kill()


def below(pid: int) -> list[int]:
    """Return the children of a process that have become `sleep`."""
    children = text_of(f"/proc/{pid}/task/{pid}/children").split()
    return [int(child) for child in children if text_of(f"/proc/{child}/comm") == "sleep\n"]


def text_of(path: str) -> str:
    """Return what /proc says; empty where the process is gone."""
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def runs(pid: int) -> bool:
    """Tell whether a process runs."""
    return text_of(f"/proc/{pid}/stat").rpartition(")")[2][1:2] not in ("", "Z", "X")


def remains_of(process: subprocess.Popen[bytes], mark: str, **fields: object) -> Remains:
    """Return what describes a process that is being ended."""
    values = {"is_all": True, "kill_at": FAR, "has_told_group": False, **fields}
    return Remains(process.pid, start_ticks_of(process.pid), mark.encode(), **values)  # type: ignore[arg-type]


def test_group_session_and_mark() -> None:
    """The group alone, or all that has the session or the mark, is counted and told once."""
    with family("a.1") as process:
        group = remains_of(process, "a.1", is_all=False, has_told_group=True)
        assert end_remains([group]) == [2]
        assert len(below(process.pid)) == 3
        everything = remains_of(process, "a.1")
        assert end_remains([everything, remains_of(process, "other", is_all=False, has_told_group=True)])[0] == 3
        wait_until(lambda: not below(process.pid), "their end")
        assert end_remains([everything]) == [0]


def test_mark_alone() -> None:
    """Whatever group and session a process has, its mark tells whose it is; another's is left alone."""
    with family("b.1") as process:
        number = remains_of(process, "b.1")
        other = Remains(1 << 30, 1, b"b.2", is_all=True, kill_at=0, has_told_group=False)
        marked = Remains(1 << 30, 1, b"b.1", is_all=True, kill_at=FAR, has_told_group=False)
        assert end_remains([other]) == [0]
        assert len(below(process.pid)) == 3
        assert end_remains([marked]) == [3]  # the shell, and two children: one has no environment
        assert mark_of(number.pid) in (b"b.1", b"")


def test_number_that_was_given_away() -> None:
    """A process with the number of an ended one, and its group, are not touched."""
    with family("c.1") as process:
        wrong = Remains(process.pid, 1, b"c.2", is_all=True, kill_at=0, has_told_group=False)
        assert end_remains([wrong]) == [0]
        assert len(below(process.pid)) == 3


def test_kill_follows() -> None:
    """From its time on KILL is sent, to those that got TERM before as well."""
    process = subprocess.Popen(
        ["sh", "-c", "(trap '' TERM; echo; while :; do sleep 0.01; done) & wait"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        ended = remains_of(process, "none", has_told_group=True)
        assert end_remains([ended])[0] >= 1
        ended.kill_at = time.monotonic()
        wait_until(lambda: end_remains([ended]) == [0], "their end")


@contextmanager
def left_group() -> Iterator[tuple[Remains, int]]:
    """Give a group whose leader has ended, and its only member."""
    with subprocess.Popen(
        ["sh", "-c", "sleep 1000 >&- & echo $!"], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        ended = remains_of(process, "none", is_all=False)
        member = int(process.stdout.readline())
    try:
        yield ended, member
    finally:
        if runs(member):
            os.kill(member, signal.SIGKILL)


def test_what_is_new_is_met_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes while everything is looked at does not wait for the next look: by then it may have forked and gone."""
    look = process_remains._processes
    looks_count = itertools.count()
    monkeypatch.setattr(process_remains, "_processes", lambda known: look(known) if next(looks_count) else iter(()))
    with left_group() as (ended, member):
        assert end_remains([ended]) == [1]
        wait_until(lambda: not runs(member), "its end")


def test_group_of_which_nobody_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that forks and ends faster than is looked is not taken for gone, and is killed as a whole in time."""
    monkeypatch.setattr(process_remains, "_processes", lambda _: iter(()))
    with left_group() as (ended, member):
        assert end_remains([ended]) == [1]
        assert runs(member)
        ended.kill_at = time.monotonic()
        assert end_remains([ended]) == [1]
        wait_until(lambda: not runs(member), "its end")


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_kernel_without_descriptors_of_processes(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Where a process cannot be held it is signalled by its number."""

    def refuse(_: int) -> int:
        raise OSError(code, "")

    monkeypatch.setattr(process_remains.os, "pidfd_open", refuse)
    with family("d.1") as process:
        assert end_remains([remains_of(process, "d.1")]) == [3]
        wait_until(lambda: not below(process.pid), "their end")


@pytest.mark.parametrize("mark", [b"", b".", b".1", b"a", b"ab.1", b"b"])
def test_what_has_no_mark_is_nobodys(mark: bytes) -> None:
    """Of other marks, or none, nothing is ended, not even by a key that is empty. Asked without a process at hand."""
    assert not is_mark_of(mark, [b"a", b""])
    assert is_mark_of(b"a.1", [b"a", b""])


def test_end_of_all_that_a_daemon_started() -> None:
    """All with a mark of the daemon are ended, and what shares a session with them."""
    with family("e.1") as process, family("f.1") as other:
        children = below(process.pid)
        # The shell is not waited for here before it has been ended.
        assert end_marked([b"e"], patience_seconds=5.0) == 4
        assert process.wait() == -signal.SIGTERM
        assert not any(map(runs, children))
        assert len(below(other.pid)) == 3
        assert end_marked([b"g"], patience_seconds=5.0) == 0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Directory]:
    """A state folder."""
    path = os.fsencode(tmp_path)
    with Directory(os.open(path, os.O_RDONLY | os.O_DIRECTORY), path) as held:
        yield held


def test_note(folder: Directory) -> None:
    """A note that its daemon holds is left alone, one that it took back is gone, one that it left is swept."""
    held, left = Note(), Note()
    held.write(folder)
    held.write(folder)
    left.write(folder)
    left.close()
    left.close()
    assert len(folder.names()) == 2
    assert sweep_processes(folder) == ["ended 0 processes of a daemon that was killed"]
    assert folder.names() == [b"processes-" + held.key.encode()]
    assert sweep_processes(folder) == []
    held.remove()
    held.remove()
    assert folder.names() == []


def test_many_notes(folder: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many notes are left, what they tell of is looked for and ended together."""
    looked: list[object] = []
    look = process_remains._processes
    monkeypatch.setattr(process_remains, "_processes", lambda: looked.append(1) or look())
    notes = [Note() for _ in range(50)]
    for note in notes:
        note.write(folder)
        note.close()
    with family(f"{notes[0].key}.1"), family(f"{notes[49].key}.1"):
        assert sweep_processes(folder) == ["ended 8 processes of a daemon that was killed"]
    assert folder.names() == []
    assert len(looked) < 50


def test_note_that_is_none(folder: Directory) -> None:
    """What the sandbox puts in the place of a note is neither followed nor believed."""
    os.symlink("/etc/hostname", b"processes-" + b"0" * 32, dir_fd=folder.fd)
    os.mkdir(b"processes-" + b"1" * 32, dir_fd=folder.fd)
    assert sweep_processes(folder) == []
    assert len(folder.names()) == 2
