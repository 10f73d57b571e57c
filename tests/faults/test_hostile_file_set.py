"""Files put in place in a hostile sandbox: forged notes, and names that are swapped for links."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from sandbox_agent.core.file_set_recovery import list_files, undo_files
from sandbox_agent.errors import from_os
from sandbox_api.errors import OutpostError
from support import file_swapper
from support.file_set import (
    FORMAT,
    ID,
    LINES,
    MAIN,
    NEW,
    OLD,
    SHARED,
    conversation,
    home_of,
    make_home,
    place,
    restore_set,
)
from support.restoring import files_of, picture, restoring_sandbox, staged
from support.sandbox import write

if TYPE_CHECKING:
    from pathlib import Path


def _forge(agent_home: Path, *lines: dict[str, object]) -> Path:
    """Write a journal file as the sandbox may; return its staging directory."""
    head = {
        "version": 2,
        "home": str(home_of(agent_home)),
        "format": FORMAT,
        "conversation_id": ID,
        "recovery": f"{ID}-01234567-89ab-cdef-0123-456789abcdef",
    }
    path = agent_home / ".outpost-agent" / f"{'0' * 32}.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, *lines)))
    return home_of(agent_home) / f".outpost-session-{'0' * 32}"


@pytest.mark.parametrize("is_undo", [False, True])
@pytest.mark.parametrize("where", ["staging", "folder of staging", "home", "shared"])
def test_forged_decision_leads_nowhere(tmp_path: Path, where: str, *, is_undo: bool) -> None:
    """A decision whose directories, or whose shared file, are links moves and writes nothing beyond them."""
    outside, agent_home = tmp_path / "outside", tmp_path / "home"
    write(outside, {"a/f": b"kept", "f": b"kept", SHARED: b"kept"})
    canary = picture(outside)
    with restoring_sandbox(agent_home) as held:
        home = make_home(agent_home, {})
        inode = (outside / "a/f").stat().st_ino
        staging = _forge(
            agent_home,
            {"undo": is_undo},
            {"file": ["a/f", inode, 0]},
            {"file": ["a/g", 0, inode]},
            {"append": SHARED},
            {"decided": 3},
        )
        if is_undo:
            staging = home / ".outpost-recovery" / f"{ID}-01234567-89ab-cdef-0123-456789abcdef"
        write(staging, {"x": b"", SHARED: LINES})
        if where == "staging":
            shutil.rmtree(staging)
            staging.symlink_to(outside)
        elif where == "folder of staging":
            (staging / "a").symlink_to(outside / "a")
        elif where == "home":
            write(staging, {"a/f": b"staged"})
            (home / "a").symlink_to(outside / "a")
        else:
            (home / SHARED).unlink()
            (home / SHARED).symlink_to(outside / SHARED)
        told = held.journal.sweep(held.roots)
        assert len(told) == 1
        held.journal.sweep(held.roots)
    assert picture(outside) == canary


def test_what_came_meanwhile_is_set_aside(tmp_path: Path) -> None:
    """What has come to a file's place since a crash, be it a file, a directory or a link, goes to recovery."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path, {})
        staging = _forge(tmp_path)
        write(staging, {"a/f": b"new f", "a/g": b"new g", "a/h": b"new h"})
        moves = [{"file": [path, (staging / path).stat().st_ino, 0]} for path in ("a/f", "a/g", "a/h")]
        _forge(tmp_path, *moves, {"decided": 3})
        write(home, {"a/f": b"since", "a/g/deep": b"since"})
        (home / "a/h").symlink_to("/etc/passwd")
        held.journal.sweep(held.roots)
        assert {path: (home / path).read_bytes() for path in ("a/f", "a/g", "a/h")} == {
            "a/f": b"new f",
            "a/g": b"new g",
            "a/h": b"new h",
        }
        [item] = list_files(held.roots, place(tmp_path))
        assert picture(home / ".outpost-recovery" / item.name) == {
            "a": "dir",
            "a/f": b"since",
            "a/g": "dir",
            "a/g/deep": b"since",
            "a/h": "-> /etc/passwd",
        }
        assert staged(tmp_path) == []


def test_staged_lines_with_another_name_are_not_passed_on(tmp_path: Path) -> None:
    """A sweep adds no lines from what is another file's second name: the sandbox may not be able to read that one."""
    (tmp_path / "secret").write_bytes(b"secret\n")
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        staging = _forge(tmp_path, {"append": SHARED}, {"decided": 1})
        staging.mkdir()
        (staging / SHARED).hardlink_to(tmp_path / "secret")
        assert "has several names" in held.journal.sweep(held.roots)[0]
        assert b"secret" not in (home / SHARED).read_bytes()


def test_one_file_that_cannot_be_moved_does_not_stop_the_others(tmp_path: Path) -> None:
    """A sweep that meets a link on the way to one file moves the others, and finishes when the link is gone."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path, {})
        staging = _forge(tmp_path)
        write(staging, {"a/f": b"new f", "b/g": b"new g"})
        moves = [{"file": [path, (staging / path).stat().st_ino, 0]} for path in ("a/f", "b/g")]
        _forge(tmp_path, *moves, {"decided": 2})
        (home / "a").symlink_to(tmp_path)
        assert held.journal.sweep(held.roots)[0].startswith("left ")
        assert (home / "b/g").read_bytes() == b"new g"
        (home / "a").unlink()
        assert held.journal.sweep(held.roots)[0].startswith("placed ")
        assert (home / "a/f").read_bytes() == b"new f"
        assert staged(tmp_path) == []


@pytest.mark.parametrize("is_restore", [True, False])
def test_file_with_another_name_outside(tmp_path: Path, *, is_restore: bool) -> None:
    """A restore or an undo that meets a second name of a file outside changes nothing of that, not its time either."""
    outside, agent_home = tmp_path / "outside", tmp_path / "home"
    write(outside, NEW)
    with restoring_sandbox(agent_home) as held:
        home = make_home(agent_home, {**OLD, "todos/S1.json": b"old"})
        name = restore_set(held, {**NEW, "plans/S1.md": b"newer"}).recovery
        linked = home if is_restore else home / ".outpost-recovery" / name
        for path in NEW:
            (linked / path).unlink(missing_ok=True)
            (linked / path).parent.mkdir(parents=True, exist_ok=True)
            (linked / path).hardlink_to(outside / path)
            os.utime(outside / path, (1, 1))
        before = _states(outside)
        if is_restore:
            assert len(restore_set(held, NEW).replaced) == len(NEW)
        else:
            assert len(undo_files(held, place(agent_home), name).restored) == len(NEW)
        assert conversation(agent_home) == NEW
    assert _states(outside) == before


@pytest.mark.timeout(300)
def test_names_swapped_for_links(tmp_path: Path) -> None:
    """While the sandbox exchanges files and folders for links in a loop, nothing beyond them is ever touched."""
    outside, agent_home = tmp_path / "outside", tmp_path / "home"
    write(outside, {**OLD, SHARED: b"kept\n", ".outpost-recovery/x": b"kept"})
    canary, moments = picture(outside), _moments(outside)
    with restoring_sandbox(agent_home) as held:
        make_home(agent_home)
        swapper = subprocess.Popen(
            [sys.executable, file_swapper.__file__, home_of(agent_home), outside],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        outcomes: dict[str, int] = {}
        try:
            number = 0
            # On a slow or busy machine the swapper gets fewer turns: there are more restores then, not fewer swaps.
            while number < 200 or not select.select([swapper.stdout], [], [], 0)[0]:
                outcome = _try(held, agent_home, number)
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                number += 1
        finally:
            told, _ = swapper.communicate(b"end\n", timeout=60)
        held.journal.sweep(held.roots)
    assert picture(outside) == canary
    # Not for a moment was anything made there.
    assert _moments(outside) == moments
    assert int(re.fullmatch(rb"enough\n(\d+)\n", told)[1]) > file_swapper.ENOUGH_COUNT  # type: ignore[index]
    assert len(outcomes) > 1, outcomes
    assert "done" in outcomes, outcomes


def _states(directory: Path) -> dict[str, tuple[bytes, int, int, int]]:
    found = {}
    for path, data in files_of(directory).items():
        status = (directory / path).stat()
        found[path] = (data, status.st_mode, status.st_uid, status.st_mtime_ns)
    return found


def _moments(directory: Path) -> dict[str, int]:
    return {path: (directory / path).stat().st_mtime_ns for path in [".", *picture(directory)]}


def _try(held: Any, agent_home: Path, number: int) -> str:
    """Restore or undo; return what came of it. Anything but a failure of the table is a fault."""
    try:
        if number % 3 == 2:
            undo_files(held, place(agent_home), "")
        else:
            files = {**NEW, MAIN: b"%d\n" % number, "plans/S1.md": b"%d" % number}
            restore_set(held, files, lines={SHARED: b"%d\n" % number})
    except OutpostError as error:
        return f"{error.code}/{error.reason}"
    except OSError as error:
        failure = from_os(error)
        return f"{failure.code}/{failure.reason}"
    return "done"
