"""A program that restores over an old session: once, or killed at every step, to see what the sweep makes of it.

`once HOME` restores over what is in the home. `every HOME DETOUR` kills a child of its own before each step of a
restore in turn, each in a fresh home; it prints how many steps there were, and ends with status 1 when one of them left
anything but the whole old or the whole new session.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sandbox_agent.core.recovery import list_recovery
from support.filesystem import without_exchange, without_flags, without_moves, without_moves_across
from support.killed import killed_at
from support.restoring import NEW, OLD, files_of, picture, restore_files, restoring_sandbox, staged
from support.sandbox import ID, make_session, place

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

MARK = "/the-restore-begins-here"
DETOURS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "none": lambda _: None,
    "no-exchange": without_exchange,
    "no-flags": without_flags,
    "image-layer": lambda patch: without_moves(patch, lambda name: name == ID.encode()),
    "recovery-elsewhere": without_moves_across,
}


def verify(home: Path) -> str:
    """Sweep as the next start does; return what is wrong then, or nothing."""
    with restoring_sandbox(home) as held:
        held.journal.sweep(held.roots)
        held.journal.sweep(held.roots)
        session = files_of(home / ".demo/sessions" / ID)
        recovered = [files_of(home / ".demo/.outpost-recovery" / item.name) for item in list_recovery(held, place())]
        folder = home / ".demo/.outpost-recovery"
        names = {path.name.removesuffix(".json") for path in folder.iterdir()} if folder.exists() else set()
        if (session, recovered) not in ((OLD, []), (NEW, [OLD])):
            return f"session {sorted(session)}, recovery {recovered}"
        if left := staged(home):
            return f"left {left}"
        if len(names) != len(recovered):
            return f"recovery has {sorted(names)}"
        restore_files(held, NEW)
        if files_of(home / ".demo/sessions" / ID) != NEW:
            return "a restore after the sweep failed"
    return ""


def once(home: Path) -> None:
    """Restore over what is in the home."""
    with restoring_sandbox(home) as held:
        Path(MARK).exists()
        restore_files(held, NEW, full_durability=True)


def every(home: Path, detour: str) -> int:
    """Kill a restore at each of its steps."""
    step, is_killed = 0, True
    while is_killed:
        make_session(home, OLD)
        is_killed = killed_at(step, lambda: once(home), DETOURS[detour])
        before = picture(home)
        if wrong := verify(home):
            sys.stdout.write(f"{detour}, step {step}: {wrong}\n{sorted(before)}\n")
            return 1
        shutil.rmtree(home)
        step += 1
    sys.stdout.write(f"{step - 1}\n")
    return 0


if __name__ == "__main__":
    sys.exit(once(Path(sys.argv[2])) if sys.argv[1] == "once" else every(Path(sys.argv[2]), sys.argv[3]))
