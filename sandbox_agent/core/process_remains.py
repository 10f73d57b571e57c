"""What is left of processes that are being ended: found in /proc, by group, session or mark, and ended.

The one rule: a process is signalled through a descriptor of itself, after it has been looked at again; its number may
have been given to another one.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox_agent.core.process_plan import MARK

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

_STATE, _PARENT, _GROUP, _SESSION, _START_TICKS = (
    0,
    1,
    2,
    3,
    19,
)  # fields 3 to 6 and 22 of /proc/PID/stat, after the command
_MAX_ENVIRONMENT_BYTES = 4 << 20
_LOOKS_AT_NEW_COUNT = 2


@dataclass(slots=True)
class Remains:
    """A process of ours that is being ended.

    Attributes:
        pid: Its number, also of its group and session.
        start_ticks: When it began.
        mark: Value of `MARK` in its environment.
        is_all: Whether everything that has its session or its mark is to go; otherwise its group alone.
        kill_at: From when on KILL is sent, of the monotonic clock.
        has_told_group: Whether its group as a whole has got TERM.
        told: Those that have got TERM, by number and start.
    """

    pid: int
    start_ticks: int
    mark: bytes
    is_all: bool
    kill_at: float
    has_told_group: bool
    told: set[tuple[int, int]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Seen:
    pid: int
    is_ended: bool
    parent: int
    group: int
    session: int
    start_ticks: int


def end_remains(remains: Sequence[Remains]) -> list[int]:
    """Signal what is left of each once; return how many there are of each, without the process itself."""
    known: dict[int, _Seen] = {}
    counts = [0] * len(remains)
    # After the long look at all short ones at what is new: what forks and ends at once is met while it is there.
    for _ in range(1 + _LOOKS_AT_NEW_COUNT):
        new = {one.pid: one for one in _processes(known)}
        known |= new
        left = _end_among([one for one in new.values() if not one.is_ended], remains, known)
        counts = [sum(pair) for pair in zip(counts, left, strict=True)]
    return [count or _end_unseen(ended, known) for count, ended in zip(counts, remains, strict=True)]


def _end_among(new: Sequence[_Seen], remains: Sequence[Remains], known: Mapping[int, _Seen]) -> list[int]:
    needs_marks = any(one.is_all for one in remains)
    marks = {one.pid: mark for one in new if needs_marks and (mark := mark_of(one.pid))}
    now = time.monotonic()
    counts = []
    for ended in remains:
        has_number = _has_number(ended, known)
        left = [one for one in new if one.pid != ended.pid and _belongs(one, ended, marks, has_number=has_number)]
        for one in left:
            _end(one, ended, is_kill=now >= ended.kill_at)
        counts.append(len(left))
    return counts


def _has_number(ended: Remains, known: Mapping[int, _Seen]) -> bool:
    """Tell whether the number of a group belongs to it, as while any member lives; else it may be another's by now."""
    return ended.pid not in known or known[ended.pid].start_ticks == ended.start_ticks


def _end_unseen(ended: Remains, known: Mapping[int, _Seen]) -> int:
    """Return 1 for a group that is there though no member was met: it forks and ends faster than is looked."""
    if ended.pid in known or not group_is_there(ended.pid):
        return 0
    own = os.getpid()
    if any(one.group == ended.pid and one.parent != own for one in known.values()):
        return 0  # it has ended, and its parent does not wait for it; ours go in a moment
    if time.monotonic() >= ended.kill_at:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(ended.pid, signal.SIGKILL)  # none of its members can fork past this
    return 1


def end_marked(keys: Container[bytes], *, patience_seconds: float) -> int:
    """End every process with a mark of these daemons, and what shares its session; return how many there were.

    Args:
        keys: With which their marks begin, up to the first dot.
        patience_seconds: From TERM to KILL, and again from there until what is left is left.
    """
    found: set[tuple[int, int]] = set()
    empty_looks_count = 0
    began = time.monotonic()
    while time.monotonic() < began + 2 * patience_seconds:
        seen = [one for one in _processes() if not one.is_ended]
        marked = {one.pid for one in seen if is_mark_of(mark_of(one.pid), keys)}
        sessions = {one.session for one in seen if one.pid in marked}
        # A session of somebody else, in which a marked process runs, has a leader without the mark.
        sessions -= {one.pid for one in seen if one.pid == one.session and one.pid not in marked}
        left = [one for one in seen if one.session in sessions or one.pid in marked]
        empty_looks_count = 0 if left else empty_looks_count + 1
        if empty_looks_count > 1 or not (left or found):
            break
        is_kill = time.monotonic() >= began + patience_seconds
        for one in left:
            key = one.pid, one.start_ticks
            if is_kill or key not in found:
                _signal(one, signal.SIGKILL if is_kill else signal.SIGTERM)
            found.add(key)
        time.sleep(0.02)
    return len(found)


def is_mark_of(mark: bytes, keys: Container[bytes]) -> bool:
    """Tell whether a mark begins with one of these keys. What has no mark is nobody's, whatever the keys are."""
    key, dot, _ = mark.partition(b".")
    return bool(key and dot) and key in keys


def group_is_there(pid: int) -> bool:
    """Tell whether a group has members, ended ones that nobody has waited for among them."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def mark_of(pid: int) -> bytes:
    """Return the mark in a process's environment; empty: it has none, or hides it."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = b"\0" + file.read(_MAX_ENVIRONMENT_BYTES)
    except OSError:
        return b""
    return data.partition(b"\0" + MARK + b"=")[2].partition(b"\0")[0]


def _processes(known: Container[int] = ()) -> Iterator[_Seen]:
    """Yield all processes but this one, also those that have ended and were not waited for."""
    own = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != own and int(name) not in known and (seen := _look(int(name))):
            yield seen


def _look(pid: int) -> _Seen | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        is_ended = fields[_STATE] in (b"Z", b"X")
        parent, group, session, start_ticks = (int(fields[at]) for at in (_PARENT, _GROUP, _SESSION, _START_TICKS))
        return _Seen(pid, is_ended, parent, group, session, start_ticks)
    except (OSError, IndexError):
        return None


def _belongs(one: _Seen, ended: Remains, marks: dict[int, bytes], *, has_number: bool) -> bool:
    if ended.is_all and marks.get(one.pid) == ended.mark:
        return True
    return has_number and ended.pid in ((one.group, one.session) if ended.is_all else (one.group,))


def _end(one: _Seen, ended: Remains, *, is_kill: bool) -> None:
    key = one.pid, one.start_ticks
    is_told = key in ended.told or (ended.has_told_group and one.group == ended.pid)
    if is_kill or not is_told:
        ended.told.add(key)
        _signal(one, signal.SIGKILL if is_kill else signal.SIGTERM)


def _signal(one: _Seen, number: int) -> None:
    try:
        held = os.pidfd_open(one.pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel without them, or a filter: the second look has to do
        held = -1
    try:
        again = _look(one.pid)
        if again is not None and again.start_ticks == one.start_ticks:
            with suppress(ProcessLookupError, PermissionError):
                if held >= 0:
                    signal.pidfd_send_signal(held, number)
                else:
                    os.kill(one.pid, number)
    finally:
        if held >= 0:
            os.close(held)
