"""One process: from its start to the moment at which nothing of it is left.

The one rule: it is over when its leader has ended, its group is gone and its output has been taken, and then once only.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from sandbox_agent.core.child import CHILDREN
from sandbox_agent.core.process_audience import Audience
from sandbox_agent.core.process_input import Input
from sandbox_agent.core.process_remains import Remains, group_is_there
from sandbox_agent.core.process_spawn import set_size
from sandbox_agent.core.process_stream import Stream
from sandbox_agent.core.process_window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox_agent.core.process_pause import Pause
    from sandbox_agent.core.process_plan import Plan, Size
    from sandbox_agent.core.process_pump import Pump, Timer
    from sandbox_agent.core.process_spawn import Spawned
    from sandbox_agent.core.process_warden import Warden

Cause = Literal["itself", "signal", "deadline", "idle", "output", "shutdown"]

LINGER_SECONDS = 0.5
"""How long what a process leaves in its group may go on after it before it is ended."""

_LOOK_SECONDS = 0.02
_LOOKS_COUNT = 3
_ENDING = (signal.SIGTERM, signal.SIGKILL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    """How a process ended.

    Attributes:
        status: Exit status of one that ended by itself.
        signal: Signal that ended it; 0: none.
        cause: Why it ended.
        duration_seconds: From its start to its leader's end.
        stdout_bytes: What it printed, as far as it was taken.
        stderr_bytes: Likewise.
    """

    status: int
    signal: int
    cause: Cause
    duration_seconds: float
    stdout_bytes: int
    stderr_bytes: int


class Process:
    """A process. What is not said to be for any thread is for the pump's.

    Attributes:
        id: By which clients name it.
        plan: What it was started from; once it has begun, without what may be large or a secret.
        pid: Its number.
        started_ns: When, since the epoch.
        exit: How it ended; None: it is not over.
        windows: What it printed: standard output, and standard error unless it runs on a terminal.
        audience: Who reads and waits.
        is_released: Whether it is to be forgotten as soon as it is over.
        writer: Whoever may give it input: the last to have begun with that.
    """

    def __init__(
        self,
        process_id: str,
        plan: Plan,
        spawned: Spawned,
        mark: bytes,
        *,
        pump: Pump,
        pause: Pause,
        warden: Warden,
        make_spool: Callable[[], int],
        on_over: Callable[[Process], None],
    ) -> None:
        self.id = process_id
        self.plan = plan
        self.pid = spawned.pid
        self.started_ns = time.time_ns()
        self.exit: Exit | None = None
        self.is_released = False
        self.writer: object = None
        self.windows: Sequence[Window] = [
            Window(plan.keep_bytes, make_spool) for fd in (spawned.stdout, spawned.stderr) if fd >= 0
        ]
        self.audience = Audience(
            self.windows, plan.hold_seconds, on_moved=self._reader_moved, on_left=self._reader_left
        )
        self._spawned = spawned
        self._mark = mark
        self._pump = pump
        self._pause = pause
        self._warden = warden
        self._on_over = on_over
        self._began = time.monotonic()
        self._printed_at = self._began
        self._kept_bytes = 0
        self._streams: list[Stream] = []
        self._input: Input | None = None
        self._watch = -1
        self._timers: list[Timer] = []
        self._hold: Timer | None = None
        self._cause: Cause | None = None
        self._sent: set[int] = set()
        self._remains: Remains | None = None
        self._ended_at: float | None = None
        self._wait_status = 0
        self._is_clear = False
        self._is_forgotten = False
        self._is_lingering = False
        self._empty_looks_count = 0

    # For any thread

    @property
    def input(self) -> Input:
        """What it reads."""
        assert self._input is not None  # noqa: S101 -- nobody has this object before `begin`
        return self._input

    # For the pump's thread

    def begin(self) -> None:
        """Take its descriptors and start its times."""
        spawned, plan = self._spawned, self.plan
        fds = [fd for fd in (spawned.stdout, spawned.stderr) if fd >= 0]
        for index, (fd, window) in enumerate(zip(fds, self.windows, strict=True)):
            self._streams.append(
                Stream(
                    self._pump,
                    self._pause,
                    fd,
                    window,
                    floor=partial(self.audience.floor, index),
                    allowance=self._allow,
                    on_moved=self._printed,
                    on_ended=self._settle,
                )
            )
        self._input = Input(
            self._pump,
            spawned.stdin,
            is_open=plan.open_input,
            is_terminal=spawned.is_terminal,
            first=plan.input,
            on_moved=self.audience.wake,
        )
        self._watch_exit()
        self._await_hold()
        if plan.deadline_seconds:
            self._set_timer(self._began + plan.deadline_seconds, partial(self.end, "deadline", plan.grace_seconds))
        if plan.idle_seconds:
            self._check_idle()
        self.plan = replace(plan, argv=plan.argv[:1], variables={}, input=b"")

    def give_up(self) -> None:
        """End it at once, since `begin` failed; nobody will hear of it."""
        self._signal_group(signal.SIGKILL)
        CHILDREN.disown(self.pid)
        for timer in self._timers:
            timer.cancel()
        if self._input is not None:
            self._input.close()  # as it may have done already: what it was given first was all
            self._spawned.stdin = -1
        for fd in (self._spawned.stdin, self._spawned.stdout, self._spawned.stderr, self._watch):
            if fd >= 0:
                self._pump.unwatch(fd)
                os.close(fd)

    def signal(self, number: int, then_kill_seconds: float) -> None:
        """Signal its group; one whose leader has ended is not signalled."""
        if self._ended_at is not None:
            return
        if then_kill_seconds:
            self._cause = self._cause or "signal"
            self._clear(time.monotonic() + then_kill_seconds, has_told_group=True)
        self._sent.add(number)
        self._signal_group(number)

    def end(self, cause: Cause, grace_seconds: float) -> None:
        """End it and everything that it started: TERM, then KILL."""
        if self.exit is not None:
            return
        kill_at = time.monotonic() + grace_seconds
        if self._ended_at is not None:
            # By itself, perhaps: then what left its group on purpose stays.
            self._clear(kill_at, has_told_group=False, is_all=self._cause != "itself")
            return
        if self._cause is None:
            self._cause = cause
            self._signal_group(signal.SIGTERM if grace_seconds else signal.SIGKILL)
        self._clear(kill_at, has_told_group=True)

    def resize(self, size: Size) -> None:
        """Change the size of its terminal, if it has one and has not ended."""
        if self._spawned.is_terminal and not self._streams[0].is_ended:
            with suppress(OSError):  # it ends at this moment
                set_size(self._streams[0].fd, size)

    def forget(self) -> None:
        """Let go of its output, as soon as nobody reads it; nobody will begin to."""
        self._is_forgotten = True
        if self.exit is not None and self.audience.is_empty:
            for window in self.windows:
                window.close()

    def discard(self) -> None:
        """Wait for no reader any more."""
        self.audience.discard()
        self._resume()

    def abandon(self) -> None:
        """Take no more of its output and do not wait for what is left of it; the daemon ends."""
        for stream in self._streams:
            stream.end()
        self._is_clear = True
        self._settle()

    # Output

    def _allow(self, count: int) -> int:
        limit = self.plan.max_output_bytes
        if limit and self._kept_bytes + count > limit:
            count = limit - self._kept_bytes
            self.end("output", self.plan.grace_seconds)
        self._kept_bytes += count
        return count

    def _printed(self) -> None:
        self._printed_at = time.monotonic()
        self.audience.wake()

    def _resume(self) -> None:
        for stream in self._streams:
            stream.resume()
        self._settle()

    def _reader_moved(self) -> None:
        if any(stream.is_paused for stream in self._streams):
            self._pump.call(self._resume)

    def _reader_left(self) -> None:
        self._pump.call(self._went)

    def _went(self) -> None:
        if self._is_forgotten:
            self.forget()
        elif self.exit is None:
            self._await_hold()
            self._resume()

    def _await_hold(self) -> None:
        if self._hold is not None:
            self._hold.cancel()
        self._hold = self._set_timer(self.audience.hold_until, self._resume)

    # Times

    def _check_idle(self) -> None:
        if any(stream.is_paused for stream in self._streams):
            self._printed_at = time.monotonic()  # it would print if it could
        due = self._printed_at + self.plan.idle_seconds
        if time.monotonic() >= due:
            self.end("idle", self.plan.grace_seconds)
        else:
            self._set_timer(due, self._check_idle)

    def _set_timer(self, moment: float, call: Callable[[], None]) -> Timer:
        self._timers = [timer for timer in self._timers if timer.call is not None]
        timer = self._pump.at(moment, call)
        self._timers.append(timer)
        return timer

    # Its end

    def _watch_exit(self) -> None:
        try:
            self._watch = os.pidfd_open(self.pid)
        except OSError:
            self._exited()  # a kernel without them: it is looked for
        else:
            self._pump.watch(self._watch, select.EPOLLIN, self._exited)

    def _exited(self) -> None:
        if self._watch >= 0:
            self._pump.unwatch(self._watch)
            os.close(self._watch)
            self._watch = -1
        status = CHILDREN.take(self.pid)
        if status is None:
            self._set_timer(time.monotonic() + _LOOK_SECONDS, self._exited)
            return
        self._ended_at = time.monotonic()
        self._wait_status = status
        if self._cause is None:
            number = os.WTERMSIG(self._wait_status) if os.WIFSIGNALED(self._wait_status) else 0
            self._cause = "signal" if number in self._sent or self._sent.intersection(_ENDING) else "itself"
        if self._cause != "itself" and self._remains is None:
            self._clear(self._ended_at + self.plan.grace_seconds, has_told_group=signal.SIGTERM in self._sent)
        self._warden.look_soon()
        self.input.close()
        self._settle()

    def _signal_group(self, number: int) -> None:
        # Its leader has not been waited for: the number is still its own.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _clear(self, kill_at: float, *, has_told_group: bool, is_all: bool = True) -> None:
        """Have everything ended that is left, or in time will be, in its group, or that has its session or mark."""
        if self._remains is None:
            self._remains = Remains(
                self.pid, self._spawned.start_ticks, self._mark, is_all, kill_at, has_told_group=has_told_group
            )
            self._warden.add(self._remains, self._looked)
        else:
            self._remains.kill_at = min(kill_at, self._remains.kill_at)
        self._set_timer(kill_at, self._kill)

    def _kill(self) -> None:
        if self._ended_at is None:
            self._signal_group(signal.SIGKILL)

    def _looked(self, left_count: int, looked_at: float, *, is_final: bool) -> bool:
        """Hear what was left at some time; tell whether to look again."""
        if self._ended_at is None or looked_at < self._ended_at:
            return True
        self._empty_looks_count = 0 if left_count else self._empty_looks_count + 1
        # One look can miss what forks and ends while it looks, or has no environment yet; hardly several.
        if not is_final and self._empty_looks_count < _LOOKS_COUNT:
            if not left_count:
                self._set_timer(time.monotonic() + _LOOK_SECONDS, self._warden.look_soon)
            return True
        self._is_clear = True
        self._settle()
        return False

    def _settle(self) -> None:
        """Go on to the end as far as that is possible now."""
        if self._ended_at is None or self.exit is not None:
            return
        if self._remains is None and not self._is_clear:
            self._is_clear = not group_is_there(self.pid)
            if not self._is_clear:
                self._linger(self._ended_at + LINGER_SECONDS)
                return
        if self._is_clear:
            for stream in self._streams:
                stream.drain()
            if all(stream.is_ended for stream in self._streams) and self.exit is None:
                self._finish(self._ended_at)

    def _linger(self, until: float) -> None:
        now = time.monotonic()
        if now < until:
            if not self._is_lingering:
                self._is_lingering = True
                self._set_timer(min(until, now + _LOOK_SECONDS), self._linger_on)
        else:
            self._clear(now + self.plan.grace_seconds, has_told_group=False, is_all=False)

    def _linger_on(self) -> None:
        self._is_lingering = False
        self._settle()

    def _finish(self, ended_at: float) -> None:
        for timer in self._timers:
            timer.cancel()
        is_signalled = os.WIFSIGNALED(self._wait_status)
        sizes = [window.end for window in self.windows]
        self.audience.begin_to_forget()
        self.exit = Exit(
            status=0 if is_signalled else os.WEXITSTATUS(self._wait_status),
            signal=os.WTERMSIG(self._wait_status) if is_signalled else 0,
            cause=self._cause or "itself",
            duration_seconds=ended_at - self._began,
            stdout_bytes=sizes[0],
            stderr_bytes=sizes[1] if len(sizes) > 1 else 0,
        )
        self._on_over(self)
        self.audience.wake()
        if self._is_forgotten:
            self.forget()
