"""A program that restores the files of a conversation, or undoes that: once, or killed at every step.

`once HOME` restores over what is in the home. `every HOME ACTION DETOUR` kills a child of its own before each step of
an action in turn, each in a fresh home; it prints how many steps there were, and ends with status 1 when one of them
left anything but all old or all new files.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sandbox_agent.core import syscall
from sandbox_agent.core.file_set_recovery import list_files, undo_files
from support.file_set import LINES, NEW, OLD, OTHERS, SHARED, conversation, home_of, make_home, place, restore_set
from support.filesystem import without_exchange, without_flags
from support.killed import killed_at
from support.restoring import files_of, picture, restoring_sandbox, staged

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

MARK = "/the-restore-begins-here"
REPLACED = {path: data for path, data in OLD.items() if NEW[path] != data}
PLACED = {path: data for path, data in NEW.items() if OLD.get(path) != data}


def _without_links(patch: pytest.MonkeyPatch) -> None:
    """Neither exchange nor hard links: the old files are copied."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    without_exchange(patch)
    patch.setattr(os, "link", refuse)


def without_moves_to_recovery(patch: pytest.MonkeyPatch) -> None:
    """Make the recovery folder another file system than the rest of the home."""
    real = syscall.renameat2

    def refuse(old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
        folders = [os.readlink(f"/proc/self/fd/{fd}") for fd in (old_fd, new_fd)]  # noqa: PTH115
        if len({".outpost-recovery" in folder for folder in folders}) > 1:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real(old_fd, old, new_fd, new, flags)

    patch.setattr(syscall, "renameat2", refuse)


def _failing_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Make what is done fail when all files have been moved, so that they are moved back."""
    real = syscall.syncfs

    def refuse(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("/.demo"):  # noqa: PTH115
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    patch.setattr(syscall, "syncfs", refuse)


DETOURS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "none": lambda _: None,
    "no-exchange": without_exchange,
    "no-flags": without_flags,
    "no-links": _without_links,
    "recovery-elsewhere": without_moves_to_recovery,
    "failing": _failing_at_the_end,
}


def once(home: Path) -> None:
    """Restore over what is in the home."""
    with restoring_sandbox(home) as held:
        Path(MARK).exists()
        restore_set(held, NEW, lines={SHARED: LINES}, full_durability=True)


def _undo(home: Path) -> None:
    with restoring_sandbox(home) as held:
        undo_files(held, place(home), "")


def verify(home: Path, *, is_undo: bool = False, keeps_lines: bool = False) -> str:
    """Sweep as the next start does; return what is wrong then, or nothing.

    Args:
        home: The agent home.
        is_undo: Whether an undo was interrupted.
        keeps_lines: Whether lines may have been appended though the old files are in place: they are not taken back.
    """
    with restoring_sandbox(home) as held:
        held.journal.sweep(held.roots)
        held.journal.sweep(held.roots)
        if left := staged(home):
            return f"left {left}"
        if wrong := _wrong(home, is_undo=is_undo, keeps_lines=keeps_lines):
            return wrong
        restore_set(held, NEW, lines={SHARED: LINES})
        if conversation(home) != NEW:
            return "a restore after the sweep failed"
        shared = home_of(home).joinpath(SHARED).read_bytes()
        return "" if shared == OTHERS[SHARED] + LINES else f"shared {shared!r}"


def _wrong(home: Path, *, is_undo: bool, keeps_lines: bool) -> str:
    found = conversation(home)
    folder = home_of(home) / ".outpost-recovery"
    with restoring_sandbox(home) as held:
        names = [item.name for item in list_files(held.roots, place(home))]
    recovered = [files_of(folder / name) for name in names]
    expected: tuple[tuple[object, object], ...] = ((OLD, []), (NEW, [REPLACED]))
    if is_undo:
        expected = ((NEW, [REPLACED]), (OLD, [PLACED]))
    if (found, recovered) not in expected:
        return f"files {found}, recovery {recovered}"
    there = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if there != {*names, *(f"{name}.json" for name in names)}:
        return f"recovery has {sorted(there)}"
    shared = home_of(home).joinpath(SHARED).read_bytes()
    is_appended = shared == OTHERS[SHARED] + LINES
    if not (is_appended or shared == OTHERS[SHARED]) or is_appended < (found == NEW or is_undo):
        return f"shared {shared!r}"
    if is_appended > (found == NEW or is_undo or keeps_lines):
        return f"shared {shared!r}"
    return "" if (home_of(home) / "projects/-ws/S2.jsonl").read_bytes() == b"another's" else "another's file changed"


def every(home: Path, action: str, detour: str) -> int:
    """Kill an action at each of its steps."""
    step, is_killed = 0, True
    is_undo = action == "undo"
    while is_killed:
        make_home(home)
        if is_undo:
            once(home)
        is_killed = killed_at(step, (lambda: _undo(home)) if is_undo else (lambda: once(home)), DETOURS[detour])
        before = picture(home)
        if not is_killed and conversation(home) != (OLD if is_undo != (detour == "failing") else NEW):
            sys.stdout.write(f"{detour}: without being killed it ended otherwise\n")
            return 1
        if wrong := verify(home, is_undo=is_undo, keeps_lines=detour == "failing"):
            sys.stdout.write(f"{detour}, step {step}: {wrong}\n{sorted(before)}\n")
            return 1
        shutil.rmtree(home)
        step += 1
    sys.stdout.write(f"{step - 1}\n")
    return 0


if __name__ == "__main__":
    sys.exit(once(Path(sys.argv[2])) if sys.argv[1] == "once" else every(Path(sys.argv[2]), *sys.argv[3:]))
