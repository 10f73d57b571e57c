"""Starting on a terminal, and signals that the daemon was told to ignore."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.child import CHILDREN
from sandbox_agent.core.paths import Directory
from sandbox_agent.core.process_plan import Plan, Size
from sandbox_agent.core.process_spawn import own_directory_and_umask, spawn
from support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("prepare", [own_directory_and_umask, lambda: None], ids=["own", "shared"])
def test_terminal_in_a_directory(tmp_path: Path, prepare: object) -> None:
    """A process on a terminal gets its directory and umask, and the daemon has its own afterwards, by either way."""
    here, umask = os.getcwd(), os.umask(0o077)  # noqa: PTH109  as the system has it
    plan = Plan(argv=[b"sh", b"-c", b"pwd > out; umask >> out"], terminal=Size(24, 80))
    path = os.fsencode(tmp_path)
    with ThreadPoolExecutor(1, initializer=prepare) as threads:  # type: ignore[arg-type]
        with Directory(os.open(path, os.O_RDONLY | os.O_DIRECTORY), path) as directory:
            spawned = threads.submit(spawn, plan, {b"PATH": b"/bin:/usr/bin"}, directory, 0o027).result()
        assert (os.getcwd(), os.umask(umask)) == (here, 0o077)  # noqa: PTH109
    wait_until(lambda: os.waitid(os.P_PID, spawned.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None, "its end")
    assert CHILDREN.take(spawned.pid) == 0
    for fd in (spawned.stdin, spawned.stdout):
        os.close(fd)
    assert (tmp_path / "out").read_text() == f"{tmp_path}\n0027\n"


IGNORED = """
import signal, subprocess
from sandbox_agent.core.process_spawn import keep_signals_usable
signal.signal(signal.SIGHUP, signal.SIG_IGN)
keep_signals_usable()
signal.raise_signal(signal.SIGHUP)  # still without effect on this process
done = subprocess.run(["sh", "-c", "kill -HUP $$"])
print(done.returncode)
"""


def test_ignored_signals_end_processes() -> None:
    """A signal that the daemon was started with as ignored has its effect on what the daemon starts."""
    done = subprocess.run([sys.executable, "-c", IGNORED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "-1\n", "")
