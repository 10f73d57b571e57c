"""A lock file tells that a session is open only when its process runs and is not a later one of the same number."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.liveness import in_use_pid
from sandbox_agent.core.paths import Directory
from support.sandbox import FLAT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Directory]:
    """Hold an empty session directory."""
    with Directory(os.open(tmp_path, os.O_RDONLY), os.fsencode(tmp_path)) as held:
        yield held


def test_a_running_process_has_the_session_open(session: Directory, tmp_path: Path) -> None:
    """A lock of a process that runs is told; without a lock rule, or without a lock, nothing is."""
    assert in_use_pid(session, FLAT) == 0
    (tmp_path / f"inuse.{os.getpid()}.lock").write_bytes(b"")
    assert in_use_pid(session, FLAT) == os.getpid()
    assert in_use_pid(session, replace(FLAT, lock=None)) == 0


def test_a_process_that_ended_does_not_count(session: Directory, tmp_path: Path) -> None:
    """Neither an ended process nor one that is only not reaped yet has anything open."""
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still a zombie
        (tmp_path / f"inuse.{child.pid}.lock").write_bytes(b"")
        assert in_use_pid(session, FLAT) == 0
    assert in_use_pid(session, FLAT) == 0


def test_a_reused_number_does_not_count(session: Directory, tmp_path: Path) -> None:
    """A lock older than the process that has its number now was left by another process."""
    lock = tmp_path / f"inuse.{os.getpid()}.lock"
    lock.write_bytes(b"")
    long_ago = time.time() - 10 * 365 * 86400
    os.utime(lock, (long_ago, long_ago))
    assert in_use_pid(session, FLAT) == 0


@pytest.mark.parametrize("pid", ["0", "4194304", "9" * 200, "٣"])
def test_numbers_that_are_no_process(session: Directory, tmp_path: Path, pid: str) -> None:
    """A number outside the range of processes, however long or written, is no lock."""
    (tmp_path / f"inuse.{pid}.lock").write_bytes(b"")
    assert in_use_pid(session, FLAT) == 0


def test_only_a_regular_file_is_a_lock(session: Directory, tmp_path: Path) -> None:
    """A link with a lock's name, wherever it points, does not count; nor does a directory."""
    (tmp_path / f"inuse.{os.getpid()}.lock").symlink_to("/proc/self/stat")
    assert in_use_pid(session, FLAT) == 0
    (tmp_path / f"inuse.{os.getpid()}.lock").unlink()
    (tmp_path / f"inuse.{os.getpid()}.lock").mkdir()
    assert in_use_pid(session, FLAT) == 0


def test_the_pattern_sees_names_only(session: Directory, tmp_path: Path) -> None:
    """A lock in a directory below is not looked for."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / f"inuse.{os.getpid()}.lock").write_bytes(b"")
    assert in_use_pid(session, FLAT) == 0
