"""One stream that a process prints: from its pipe into its window, as fast as whoever reads allows."""

from __future__ import annotations

import fcntl
import os
import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_agent.core.process_pause import Pause
    from sandbox_agent.core.process_pump import Pump
    from sandbox_agent.core.process_window import Window

READ_BYTES = 256 << 10
_PIPE_BYTES = 64 << 10
_LARGE_PIPE_BYTES = 1 << 20
_SMALL_BYTES = 4 << 10
_REST_SECONDS = 0.001

_buffer = memoryview(bytearray(READ_BYTES))  # of the pump's thread, which reads from one pipe at a time


class Stream:
    """A stream; its methods run in the pump's thread.

    Attributes:
        fd: Where the process's output is read.
        window: What of it is kept.
        is_ended: Whether nothing more is read.
        is_paused: Whether nothing is read for want of room.

    Args:
        pump: The thread.
        pause: While it is on, nothing is read if that can wait.
        fd: Where the process's output is read; owned by this object.
        window: Where it goes; owned by this object.
        floor: Tells from which offset on nothing may be dropped.
        allowance: Tells how much may still be kept, and is told how much was.
        on_moved: Called when something was read.
        on_ended: Called when nothing more will be read.
    """

    def __init__(
        self,
        pump: Pump,
        pause: Pause,
        fd: int,
        window: Window,
        *,
        floor: Callable[[], int],
        allowance: Callable[[int], int],
        on_moved: Callable[[], None],
        on_ended: Callable[[], None],
    ) -> None:
        self.window = window
        self.is_ended = False
        self.is_paused = False
        self.fd = fd
        self._pump = pump
        self._pause_of_all = pause
        self._floor = floor
        self._allowance = allowance
        self._on_moved = on_moved
        self._on_ended = on_ended
        self._left = b""
        self._due_bytes: int | None = None
        self._is_large = False
        self._is_resting = False
        pump.watch(fd, select.EPOLLIN, self._told)

    def resume(self) -> None:
        """Go on reading, when that stopped for want of room and there is some again."""
        if not self.is_paused or self.is_ended:
            return
        room_bytes = self.window.room_bytes(self._floor())
        if room_bytes < self._worth_bytes:
            return
        if self._left:
            left, self._left = memoryview(self._left), b""
            self._keep(left[:room_bytes], left[room_bytes:])
        if not self._left:
            self.is_paused = False
            self._pump.watch(self.fd, select.EPOLLIN, self._told)

    @property
    def _worth_bytes(self) -> int:
        """Room for which it is worth to go on: to take every byte by itself would be slow for everybody."""
        return min(self.window.reserve_bytes // 2, READ_BYTES)

    def drain(self) -> None:
        """Take what is there and end the stream: whoever still holds its other end does not belong to the process.

        That is no more than a pipe holds: somebody there who goes on printing would have all other processes wait.
        Without room it is not ended; call again after `resume`.
        """
        if self._due_bytes is None:
            self._due_bytes = self._capacity_bytes
        while not self.is_ended and not self.is_paused:
            if not self._ready():
                self.end()

    def end(self) -> None:
        """Read no more."""
        if not self.is_ended:
            self.is_ended = True
            self._pump.unwatch(self.fd)
            os.close(self.fd)
            self._on_ended()

    def _told(self) -> None:
        # Told again while it rests, it has come to its end.
        if self._pause_of_all.is_on and not self._is_resting:
            self._rest()
        else:
            self._ready()

    def _ready(self) -> bool:
        """Read once; tell whether there may be more."""
        room_bytes = self.window.room_bytes(self._floor())
        if room_bytes <= 0:
            self._pause()
            return True
        piece = _buffer[: min(room_bytes, READ_BYTES)]
        if self._due_bytes is not None:
            piece = piece[: self._due_bytes]
        try:
            count = os.readv(self.fd, [piece]) if piece else 0
        except BlockingIOError:
            return False
        except OSError:  # EIO is what a terminal says when nobody has it any more
            count = 0
        if not count:
            self.end()
            return True
        if self._due_bytes is not None:
            self._due_bytes -= count
        if count >= _PIPE_BYTES and not self._is_large:
            self._enlarge()
        if count < _SMALL_BYTES:
            self._rest()
        self._keep(piece[:count])
        return True

    def _rest(self) -> None:
        """Let a little gather: a process that prints by the byte would have everybody work for each of them."""
        if not self._is_resting:
            self._is_resting = True
            self._pump.change(self.fd, 0)  # an end is told all the same
            self._pump.at(time.monotonic() + _REST_SECONDS, self._rested)

    def _rested(self) -> None:
        self._is_resting = False
        if not self.is_paused and not self.is_ended:
            self._pump.change(self.fd, select.EPOLLIN)

    def _keep(self, data: memoryview, rest: memoryview = _buffer[:0]) -> None:
        """Put data into the window; what does not fit, and what follows it, waits for the next `resume`."""
        data = data[: self._allowance(len(data))]
        taken = self.window.append(data, self._floor())
        if taken < len(data):  # the disk is full
            self._allowance(taken - len(data))
        self._left = bytes(data[taken:]) + bytes(rest)
        if self._left:
            self._pause()
        if taken:
            self._on_moved()

    def _pause(self) -> None:
        # Unwatched, not watched for nothing: the other end's closing would be told again and again.
        self.is_paused = True
        self._pump.unwatch(self.fd)
        self._pump.call(self.resume)  # a reader may have moved on before it could see that

    @property
    def _capacity_bytes(self) -> int:
        try:
            return fcntl.fcntl(self.fd, fcntl.F_GETPIPE_SZ)
        except OSError:
            return _LARGE_PIPE_BYTES  # a terminal, which holds less

    def _enlarge(self) -> None:
        """Give a busy pipe more room, once; a user may have only so much of it for all pipes."""
        self._is_large = True
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, _LARGE_PIPE_BYTES)
        except OSError:
            return  # not allowed, or a terminal
