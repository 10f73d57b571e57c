"""This process's own standard streams and terminal, byte for byte.

The one rule: nothing waits in a thread for input, so that an end is never held up by a terminal that is silent.
"""

from __future__ import annotations

import asyncio
import os
import select
import termios
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING

from host_client.cli.output import OutputLost
from host_client.sandbox.task import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

STDIN, STDOUT, STDERR = 0, 1, 2

_PIECE_BYTES = 64 << 10
_USUAL_SIZE = (24, 80)


def reserve_streams() -> None:
    """Put nothing where a standard stream was closed: or else its number is that of the next file or socket we open."""
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


async def read_pieces(descriptor: int) -> AsyncGenerator[bytes, None]:
    """Yield what can be read until the end: of a terminal, a pipe, a socket, a file; nothing when it is closed."""
    while True:
        try:
            await _until_readable(descriptor)
            data = await in_thread(os.read, descriptor, _PIECE_BYTES)
        except BlockingIOError:  # somebody else, with whom we share it, was faster
            continue
        except OSError:  # closed, or a terminal that went away
            return
        if not data:
            return
        yield data


async def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, and wait for whoever reads it.

    Raises:
        OutputLost: the reader went away, or the disk is full.
    """
    try:
        await in_thread(_write_all, descriptor, data)
    except OSError as error:
        raise OutputLost(error.strerror) from error


def terminal_size() -> tuple[int, int]:
    """Return rows and columns of the terminal we are on; the usual ones when we are on none."""
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            size = os.get_terminal_size(descriptor)
        except OSError:
            continue
        if size.lines and size.columns:
            return size.lines, size.columns
    return _USUAL_SIZE


@contextmanager
def raw_terminal(*, is_wanted: bool) -> Iterator[Callable[[], None]]:
    """Have standard input give what is typed as it is, and have it as it was afterwards; a pipe is left alone.

    Args:
        is_wanted: Otherwise nothing is done.

    Yields:
        What puts it back at once, for somebody who does not come to the end.
    """
    if not is_wanted or not os.isatty(STDIN):
        yield lambda: None
        return
    before = termios.tcgetattr(STDIN)

    def restore() -> None:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)

    try:
        tty.setraw(STDIN, termios.TCSADRAIN)
        yield restore
    finally:
        restore()


async def _until_readable(descriptor: int) -> None:
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        return  # a file: it never lets wait
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # somebody with whom we share it has made it so
            select.select([], [descriptor], [])
