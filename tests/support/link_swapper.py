"""A hostile sandbox: a program that exchanges the folders of a session for links to another place, as fast as it can.

`link_swapper.py HOME OUTSIDE` runs until its standard input ends. It prints a line once it has done so more than
`ENOUGH_COUNT` times, and at the end how often.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from pathlib import Path

ENOUGH_COUNT = 100


def _swap(path: Path, outside: Path) -> None:
    """Exchange a directory for a link, and back."""
    aside = path.with_name("aside")
    with suppress(OSError):
        path.rename(aside)
        path.symlink_to(outside)
    with suppress(OSError):
        if path.is_symlink():
            path.unlink()
        elif aside.exists():
            # What was made at the name meanwhile makes room.
            path.rename(path.with_name(f"made-{os.getpid()}-{id(path)}"))
    with suppress(OSError):
        aside.rename(path)


def main(home: Path, outside: Path) -> int:
    """Swap what leads to the session, the staging directory and what is in it."""
    cli_home = home / ".demo"
    count = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        count += 1
        _swap(cli_home, outside)
        _swap(cli_home / "sessions", outside / "sessions")
        _swap(cli_home / ".outpost-recovery", outside / ".outpost-recovery")
        with suppress(OSError):
            for staging in (cli_home / "sessions").glob(".outpost-session-*"):
                _swap(staging / "log", outside / "sessions/id-1/log")
                _swap(staging, outside / "sessions/id-1")
        if count == ENOUGH_COUNT + 1:
            sys.stdout.write("enough\n")
            sys.stdout.flush()
    sys.stdout.write(f"{count}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
