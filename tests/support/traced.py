"""Programs run under strace: which calls change something, and what is left when one is killed at such a call."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CALLS = frozenset({"mkdirat", "fsync", "syncfs", "renameat2", "unlinkat", "openat", "openat2"})
"""Calls that make, move, remove or sync something."""


def trace(program: str, log: Path, arguments: list[str], home: Path) -> int:
    """Run `PROGRAM once HOME` under strace; return how it ended."""
    command = ["strace", "-qq", "-o", str(log), *arguments, sys.executable, program, "once", str(home)]
    environment = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"}
    return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False).returncode


def changing_calls(
    program: str, mark: str, prepare: Callable[[Path], object], factory: pytest.TempPathFactory
) -> list[tuple[str, int]]:
    """Return the calls of a program that change something, each with its number among the calls of its name.

    Args:
        program: Its path.
        mark: A path that the program looks at when it begins.
        prepare: Makes the home that it is given.
        factory: Makes folders.
    """
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    for attempt in ("to compile what is imported", "to count"):
        home = factory.mktemp("home")
        prepare(home)
        log = factory.mktemp("log") / attempt
        # The calls that look show where it begins.
        if trace(program, log, ["-e", f"trace={','.join(sorted(CALLS))},newfstatat"], home):
            pytest.skip("this machine does not allow tracing")
    counts: dict[str, int] = {}
    found = []
    is_begun = False
    for line in log.read_text().splitlines():
        name = line.split("(", 1)[0].strip()
        counts[name] = counts.get(name, 0) + 1
        is_begun = is_begun or mark in line
        if is_begun and name in CALLS and (not name.startswith("open") or "O_CREAT" in line):
            found.append((name, counts[name]))
    return found


def survivors(
    program: str,
    calls: list[tuple[str, int]],
    prepare: Callable[[Path], object],
    verify: Callable[[Path], str],
    tmp_path: Path,
) -> list[tuple[str, int]]:
    """Kill a program at each of some calls in turn and verify what is left; return the calls at which it went on."""
    survived = []
    for name, number in calls:
        home = tmp_path / f"{name}-{number}"
        prepare(home)
        inject = ["-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={number}"]
        if trace(program, tmp_path / "log", inject, home) != -9:
            survived.append((name, number))
        assert verify(home) == "", (name, number)
        shutil.rmtree(home)
    return survived
