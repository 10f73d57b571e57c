"""A hostile sandbox: a program that exchanges files and folders of a home for links to another place, without a pause.

`file_swapper.py HOME OUTSIDE` runs until its standard input ends. It prints a line once it has done so more than
`ENOUGH_COUNT` times, and at the end how often.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from pathlib import Path

ENOUGH_COUNT = 100
_NAMES = (
    "plans/S1.md",
    "projects/-ws/S1.jsonl",
    "history.jsonl",
    "projects/-ws/S1/subagents",
    "projects/-ws",
    "projects",
    "todos",
    ".outpost-recovery",
    "",
)


def _swap(path: Path, outside: Path) -> None:
    """Exchange what is at a path for a link, and back."""
    aside = path.with_name(f"aside-{path.name}")
    with suppress(OSError):
        path.rename(aside)
        path.symlink_to(outside)
    with suppress(OSError):
        if path.is_symlink():
            path.unlink()
        elif path.exists() and aside.exists():
            # What was made at the name meanwhile makes room.
            path.rename(path.with_name(f"made-{os.getpid()}-{id(path)}"))
    with suppress(OSError):
        aside.rename(path)


def main(home: Path, outside: Path) -> int:
    """Swap what leads to the files, the files, and what is staged of them."""
    count = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        count += 1
        for name in _NAMES:
            _swap(home / name, outside / name)
            with suppress(OSError):
                for staging in home.glob(".outpost-session-*"):
                    _swap(staging / "plans", outside / "plans")
                    _swap(staging / "plans/S1.md", outside / "plans/S1.md")
                    _swap(staging, outside)
        if count == ENOUGH_COUNT + 1:
            sys.stdout.write("enough\n")
            sys.stdout.flush()
    sys.stdout.write(f"{count}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
