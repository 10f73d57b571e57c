"""What a process reads: queued, written as fast as it reads, each byte once."""

from __future__ import annotations

import os
import select
import termios
import threading
from typing import TYPE_CHECKING

from sandbox_api.errors import SessionError
from sandbox_api.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_agent.core.process_pump import Pump

MAX_QUEUED_BYTES = MIB
_WRITE_BYTES = 64 << 10
_END_OF_FILE = 4  # index among a terminal's control characters


class Input:
    """The input of one process.

    Args:
        pump: The thread in which it is made, and in which it is written.
        fd: Where it is written, -1: the process reads nothing; owned by this object.
        is_open: Whether more may follow what is given here.
        is_terminal: Whether its end is a character.
        first: What is written first; not counted in offsets.
        on_moved: Called when input was taken, or is not any more.
    """

    def __init__(
        self,
        pump: Pump,
        fd: int,
        *,
        is_open: bool,
        is_terminal: bool,
        first: bytes,
        on_moved: Callable[[], None],
    ) -> None:
        self.is_open = is_open
        self.is_closed = fd < 0
        self._pump = pump
        self._fd = fd
        self._is_terminal = is_terminal
        self._on_moved = on_moved
        self._lock = threading.Lock()
        # All in one piece: messages of which little is new would take far more than what they are counted for.
        self._queued = bytearray(first)
        self._first_left_bytes = len(first)
        self._offered_bytes = 0
        self._taken_bytes = 0
        self._has_end = not is_open
        self._is_line_begun = False
        self._waits_for_room = False
        if not self.is_closed:
            pump.watch(fd, 0, self._told)  # the closing of its other end is told in any case
            self._ready()

    @property
    def taken(self) -> int:
        """How much was taken of what was offered."""
        return self._taken_bytes

    @property
    def has_room(self) -> bool:
        """Whether more may be offered now."""
        return len(self._queued) < MAX_QUEUED_BYTES or self.is_closed

    def offer(self, offset: int, data: bytes, *, is_end: bool) -> None:
        """Add input; what was offered before is passed over. From any thread.

        Raises:
            SessionError: `protocol`: it leaves a gap, or the process takes none.
        """
        with self._lock:
            if not self.is_open:
                raise SessionError("protocol", "the process was started without an open input")
            if offset > self._offered_bytes:
                raise SessionError("protocol", f"input at {offset} leaves a gap after {self._offered_bytes} bytes")
            new = memoryview(data)[self._offered_bytes - offset :]
            if self._has_end and new:
                raise SessionError("protocol", "input follows its end")
            self._offered_bytes += len(new)
            if not self.is_closed:
                self._queued += new
            self._has_end = self._has_end or is_end
        self._pump.call(self._ready)

    def close(self) -> None:
        """Write no more."""
        with self._lock:
            self._queued = bytearray()
            was_closed, self.is_closed = self.is_closed, True
        if not was_closed:
            self._pump.unwatch(self._fd)
            os.close(self._fd)
            self._on_moved()

    def _told(self) -> None:
        if self._waits_for_room:
            self._ready()
        else:
            self.close()  # nobody reads any more

    def _ready(self) -> None:
        if self.is_closed:
            return
        try:
            self._write()
            with self._lock:  # together: what is offered from now on is written before its end
                is_over = self._has_end and not self._queued
            if is_over and self._is_terminal:
                self._end_typing()
        except BlockingIOError:
            self._waits_for_room = True
            self._pump.change(self._fd, select.EPOLLOUT)
            return
        except (OSError, termios.error):  # nobody reads any more
            self.close()
            return
        self._waits_for_room = False
        if is_over:
            self.close()
        else:
            self._pump.change(self._fd, 0)

    def _write(self) -> None:
        while True:
            with self._lock:
                data = bytes(memoryview(self._queued)[:_WRITE_BYTES])
            if not data:
                return
            count = os.write(self._fd, data)
            self._is_line_begun = data[count - 1] != ord("\n")
            with self._lock:
                del self._queued[:count]
                of_first = min(count, self._first_left_bytes)
                self._first_left_bytes -= of_first
                self._taken_bytes += count - of_first
            self._on_moved()

    def _end_typing(self) -> None:
        """Type the character that ends the input, twice where a line has begun: the first only sends that."""
        character = termios.tcgetattr(self._fd)[6][_END_OF_FILE]
        for _ in range(1 + self._is_line_begun):
            os.write(self._fd, bytes(character))
            self._is_line_begun = False
