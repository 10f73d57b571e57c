"""A program that kills, at every step in turn, the attempt at a restore that goes on with a broken one.

`killed_resume.py HOME` prints how many steps there were, and ends with status 1 when after one of them the session was
neither the old nor the new one, or the next attempt did not bring the new one, or anything stayed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.broken_restore import RESTORE_ID, break_restore, content_of
from support.killed import killed_at
from support.restoring import OLD, files_of, open_restore, picture, restoring_sandbox, staged
from support.sandbox import ID, make_session

FILES = {"a/one": b"1" * 100, "a/two": b"2" * 200, "large": bytes(range(256)) * 800, "state.json": b"{}"}
BROKEN_BYTES = 300 + 150_000


def attempt(home: Path) -> int:
    """Go on with what there is; return how much was fed."""
    with restoring_sandbox(home) as held, open_restore(held, FILES, restore_id=RESTORE_ID) as restore:
        lacking = restore.begin()
        content = content_of(FILES, lacking, restore)
        restore.go_on([index for index, _ in restore.parts])
        restore.feed(content)
        restore.commit()
        return len(content)


def verify(home: Path) -> str:
    """Sweep as the next start does, and repeat the attempt; return what is wrong then, or nothing."""
    session = home / ".demo/sessions" / ID
    with restoring_sandbox(home) as held:
        held.journal.sweep(held.roots)
    if files_of(session) not in (OLD, FILES):
        return f"session {sorted(files_of(session))}"
    attempt(home)
    if files_of(session) != FILES:
        return f"session {sorted(files_of(session))} after another attempt"
    left = staged(home)
    return f"left {left}" if left else ""


def every(home: Path) -> int:
    """Kill the attempt at each of its steps."""
    step, is_killed = 0, True
    while is_killed:
        make_session(home, OLD)
        with restoring_sandbox(home) as held:
            break_restore(held, FILES, BROKEN_BYTES)
        is_killed = killed_at(step, lambda: attempt(home), lambda _: None)
        before = picture(home)
        if wrong := verify(home):
            sys.stdout.write(f"step {step}: {wrong}\n{sorted(before)}\n")
            return 1
        shutil.rmtree(home)
        step += 1
    sys.stdout.write(f"{step - 1}\n")
    return 0


if __name__ == "__main__":
    sys.exit(every(Path(sys.argv[1])))
