"""What survives a power loss: content before the decision, the decision before the moves, the moves before the end."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from sandbox_agent.core import syscall
from sandbox_agent.core.file_set_recovery import undo_files
from sandbox_agent.core.intent import Intent
from sandbox_agent.core.slot import Slot
from support.file_set import LINES, NEW, OLD, SHARED, conversation, make_home, place, restore_set
from support.killed import killed_at
from support.restoring import restoring_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def _told() -> Iterator[list[str]]:
    """Tell what is changed and what is forced to the disk, in its order; the same twice in a row only once."""
    told: list[str] = []

    def note(what: str) -> None:
        if told[-1:] != [what]:
            told.append(what)

    real = {"fsync": os.fsync, "syncfs": syscall.syncfs, "rename": syscall.renameat2}

    def fsync(fd: int) -> None:
        note(f"sync {_kind(os.readlink(f'/proc/self/fd/{fd}'))}")  # noqa: PTH115
        real["fsync"](fd)

    def syncfs(fd: int) -> None:
        note("sync all")
        real["syncfs"](fd)

    def rename(*arguments: Any) -> None:
        is_whole = arguments[1].startswith(b".outpost-session-")
        note("set aside" if is_whole else "move")
        real["rename"](*arguments)

    def write_lines(self: Intent, lines: Any, *, durable: bool) -> None:
        lines = list(lines)
        note("decide" if any("decided" in line for line in lines) else "note")
        write(self, lines, durable=durable)

    def cut(self: Intent, size: int, *, durable: bool) -> None:
        note("retract")
        retract(self, size, durable=durable)

    def end(self: Intent) -> None:
        note("end")
        finish(self)

    write, retract, finish = Intent.write_lines, Intent.cut, Intent.end
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(syscall, "syncfs", syncfs)
        patch.setattr(syscall, "renameat2", rename)
        patch.setattr(Intent, "write_lines", write_lines)
        patch.setattr(Intent, "cut", cut)
        patch.setattr(Intent, "end", end)
        yield told


def _kind(path: str) -> str:
    if "/.outpost-agent" in path:
        return "journal"
    return "recovery" if "/.outpost-recovery" in path else "home"


_DECIDED = ["decide", "sync journal", "move"]


def test_restore(tmp_path: Path) -> None:
    """Content and its place in recovery are on the disk before the decision is, that before any move, and so on."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        with _told() as told:
            restore_set(held, NEW, lines={SHARED: LINES}, full_durability=True)
    assert told == [
        *("note", "sync journal"),
        "sync all",
        *("sync recovery", "sync home"),
        *_DECIDED,
        "sync home",  # the lines
        "sync all",
        *("set aside", "sync recovery", "sync home"),
        "end",
    ]


def test_restore_without_durability(tmp_path: Path) -> None:
    """The order is the same and nothing waits for the disk."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        with _told() as told:
            restore_set(held, NEW, lines={SHARED: LINES})
    assert told == ["note", "decide", "move", "set aside", "end"]


def test_undo(tmp_path: Path) -> None:
    """An undo decides before it moves, and ends when the moves are on the disk."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        restore_set(held, NEW)
        with _told() as told:
            undo_files(held, place(tmp_path), "")
    assert told == ["note", "sync journal", *_DECIDED, "sync all", "sync recovery", "end"]


def test_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken back is on the disk before the decision is taken back: the old files lie with what was staged."""
    with restoring_sandbox(tmp_path) as held:
        make_home(tmp_path)
        monkeypatch.setattr(Slot, "take", _fail)
        with _told() as told, pytest.raises(OSError, match="injected"):
            restore_set(held, NEW, full_durability=True)
        assert conversation(tmp_path) == OLD
    after = told[told.index("decide") :]
    assert after == [*_DECIDED, "sync all", "move", "sync all", "retract", "sync journal", "end"]


def _fail(*_: object) -> None:
    raise OSError(errno.EIO, "injected")


def test_sweep(tmp_path: Path) -> None:
    """What a sweep moves is on the disk before the note goes, whatever durability the restore had."""

    def restore() -> None:
        with restoring_sandbox(tmp_path) as held:
            restore_set(held, NEW)

    def kill_at_move(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(syscall, "renameat2", lambda *_: os.kill(os.getpid(), signal.SIGKILL))

    make_home(tmp_path)
    assert killed_at(-1, restore, kill_at_move)
    with restoring_sandbox(tmp_path) as held, _told() as told:
        held.journal.sweep(held.roots)
    assert conversation(tmp_path) == NEW
    assert told == ["move", "sync all", "set aside", "sync recovery", "sync home", "end"]
