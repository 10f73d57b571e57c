"""Children: known ones go to who started them, inherited ones are reaped."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from sandbox_agent.core.child import Children

INHERIT = """
import os, subprocess, time
from sandbox_agent.core.child import Children
taken = []
children = Children()
children.adopt(lambda: taken.append(1))
with children.starting() as add:
    own = subprocess.Popen(["sh", "-c", "(exec sleep 0.05) & exit 3"])
    add(own.pid)
os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
assert children.reap() == 0  # the first to be seen is ours, and stays
children.take_popen(own)
assert (own.returncode, taken) == (3, [1])
os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
print(children.reap(), children.reap())
"""


TRACED = """
import os, signal, subprocess, sys, time
from sandbox_agent.core.child import Children

children = Children()
children.adopt(lambda: None)
trace_me = "import ctypes, os; ctypes.CDLL(None).ptrace(0, 0, 0, 0); os.kill(os.getpid(), 19)"
with children.starting() as add:
    traced = subprocess.Popen([sys.executable, "-c", trace_me])
    add(traced.pid)
os.waitid(os.P_PID, traced.pid, os.WSTOPPED | os.WNOWAIT)
with children.starting() as add:
    own = subprocess.Popen(["sh", "-c", "(exec sleep 0.05) & exit 0"])
    add(own.pid)
children.take_popen(own)
until = time.monotonic() + 30
while not children.reap() and time.monotonic() < until:
    time.sleep(0.01)
print(time.monotonic() < until, children.take(traced.pid))
traced.kill()
children.take_popen(traced)
print(traced.returncode)
"""


def test_child_that_has_itself_traced() -> None:
    """That it has stopped is neither taken for its end, nor does it hide others that have ended."""
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True None\n-9\n", "")


def test_inherited_processes_are_reaped() -> None:
    """An orphan is inherited and reaped; a child of our own is left to who started it."""
    done = subprocess.run([sys.executable, "-c", INHERIT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 0\n", "")


def test_status_goes_to_who_started_it() -> None:
    """A known child's status is taken once, in the form of `waitpid`, and waited for by nobody."""
    children = Children()
    its_input, ours = os.pipe()
    with children.starting() as add:
        pid = os.posix_spawnp(
            "sh", ["sh", "-c", "read x; exit 5"], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, its_input, 0)]
        )
        add(pid)
    assert children.take(pid) is None
    os.close(its_input)
    os.close(ours)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert children.take(pid) == 5 << 8


def test_nothing_is_reaped_during_a_start() -> None:
    """While a child starts, its number not being known yet, nobody takes statuses."""
    children = Children()
    reaped = threading.Event()
    thread = threading.Thread(target=lambda: (children.reap(), reaped.set()))
    with children.starting() as add:
        thread.start()
        pid = os.posix_spawnp("true", ["true"], os.environ)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert not reaped.is_set()
        add(pid)
    thread.join()
    assert children.take(pid) == 0
