"""Tell whether a running process has a session open, by the process number in a file that the CLI keeps."""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox_agent.core.paths import Directory
    from sandbox_api.profile import Profile

_MAX_PID = (1 << 22) - 1  # of any 64-bit Linux
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# The kernel counts a start in ticks and stamps files with a coarse clock; both are off by less than this.
_TOLERANCE_NS = 2_000_000_000
_STATE, _START_TICKS = 0, 19  # fields 3 and 22 of /proc/PID/stat, counted after the command


def in_use_pid(session: Directory, profile: Profile) -> int:
    """Return the process that has a session open, or 0 when none is known.

    A lock counts when it is a regular file and its process runs and started before the lock was written: the number of
    a process that ended is used again.

    Raises:
        OSError: the session directory cannot be listed.
    """
    if profile.lock is None:
        return 0
    for name in session.names():
        matched = profile.lock.search(os.fsdecode(name))
        if matched and (pid := live_pid(session, name, matched.group("pid"))):
            return pid
    return 0


def live_pid(folder: Directory, name: bytes, digits: str | None) -> int:
    """Return the number of a process when it runs now and ran when a file was written, else 0.

    Args:
        folder: Where the file lies.
        name: Its name; 0 also when it is no regular file, or there is none.
        digits: The number as it is spelled in the name; 0 when that is no number of a process.
    """
    if not digits or not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(_MAX_PID)):
        return 0
    try:
        status = folder.stat(name)
    except FileNotFoundError:
        return 0
    pid = int(digits)
    return pid if stat.S_ISREG(status.st_mode) and 0 < pid <= _MAX_PID and _ran_at(pid, status.st_mtime_ns) else 0


def _ran_at(pid: int, moment_ns: int) -> bool:
    """Tell whether a process runs now that ran at that moment already."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    except PermissionError:
        return True  # it runs, and a process that hides its start is taken for the one that holds the lock
    if fields[_STATE] in (b"Z", b"X"):
        return False
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - int(fields[_START_TICKS]) * 10**9 // _TICKS_PER_SECOND
    return time.time_ns() - age_ns <= moment_ns + _TOLERANCE_NS
