"""The children of this process: all are started here, so that their exit statuses go to who started them.

As PID 1 of a container, or as the subreaper it makes itself, the daemon also inherits processes whose parents ended;
somebody has to take their exit statuses, or they stay in the process table for ever.
"""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

_SET_CHILD_SUBREAPER = 36  # prctl
_STOPS = (os.CLD_TRAPPED, os.CLD_STOPPED)


class Children:
    """Which children are whose."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[int] = set()
        self._on_taken: Callable[[], None] = lambda: None

    @contextmanager
    def starting(self) -> Iterator[Callable[[int], None]]:
        """Give what makes a new child known; start it within the block.

        Nobody takes an exit status meanwhile: a child may end before its number is known here.
        """
        with self._lock:
            yield self._known.add

    def take(self, pid: int) -> int | None:
        """Take the exit status of a known child, in the form of `os.waitpid`; None: it cannot be had yet.

        That may be so of one that has ended: whoever traces it, such as a debugger, gets the status first.
        """
        with self._lock:
            taken, status = os.waitpid(pid, os.WNOHANG)
            if not taken or os.WIFSTOPPED(status):
                return None
            self._known.discard(pid)
        self._on_taken()
        return status

    def disown(self, pid: int) -> None:
        """Leave the exit status of a known child to `reap`."""
        with self._lock:
            self._known.discard(pid)

    def take_popen(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for a known child to end and take its exit status."""
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # outside the lock: it may take its time
        with self._lock:
            process.wait()
            self._known.discard(process.pid)
        self._on_taken()

    def adopt(self, on_taken: Callable[[], None]) -> None:
        """Inherit the processes whose parents end, from now on.

        Args:
            on_taken: Called after the exit status of a child of our own was taken: there may be others behind it, which
                `reap` could not see. Not called within `reap`.
        """
        self._on_taken = on_taken
        with suppress(AttributeError):
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def reap(self) -> int:
        """Take the exit statuses of inherited processes that have ended; return how many there were."""
        count = 0
        with self._lock:
            while True:
                try:
                    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
                except ChildProcessError:
                    return count
                if ended is None:
                    return count
                if ended.si_code in _STOPS:
                    # A child may have us trace it. That it stopped is told until it is taken, and hides the others.
                    os.waitid(os.P_PID, ended.si_pid, os.WSTOPPED | os.WNOHANG)
                    continue
                if ended.si_pid in self._known:
                    return count
                os.waitpid(ended.si_pid, 0)
                count += 1


CHILDREN = Children()
"""Those of this process."""
