"""`outpost exec`: a command in a sandbox, as if it ran here."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing, contextmanager, nullcontext
from itertools import groupby
from typing import TYPE_CHECKING

import click

from host_client.cli.host_stream import (
    STDERR,
    STDIN,
    STDOUT,
    raw_terminal,
    read_pieces,
    terminal_size,
    write_all,
)
from host_client.cli.options import Variables
from host_client.sandbox.process_request import program_name
from host_client.sandbox.sandbox import connect
from host_client.sandbox.task import task_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from host_client.sandbox.process import Process
    from host_client.sandbox.process_exit import Output

_DESCRIPTORS = {"stdout": STDOUT, "stderr": STDERR}
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_KILL_COUNT = 2
_MAX_PIECES_COUNT = 16
"""Pieces of input, or of output, that wait while others are taken."""


@click.command("exec", short_help="Run a command at TARGET.")
@click.argument("target")
@click.argument("command", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--cwd", metavar="DIRECTORY", help="Working directory in the sandbox (default: the workspace).")
@click.option(
    "--variable",
    "variables",
    type=Variables(),
    multiple=True,
    help="Variable of the command's environment. May be repeated.",
)
@click.option("-t", "--terminal", is_flag=True, help="Run on a terminal, as a shell or an editor needs it.")
@click.option("--no-input", is_flag=True, help="Give the command nothing to read.")
@click.option("--deadline-seconds", type=click.FloatRange(0), default=0.0, help="Longest time the command may take.")
@click.option("--idle-seconds", type=click.FloatRange(0), default=0.0, help="Longest time it may print nothing.")
async def execute(
    target: str,
    command: Sequence[str],
    *,
    cwd: str | None,
    variables: Sequence[tuple[str, str]],
    terminal: bool,
    no_input: bool,
    deadline_seconds: float,
    idle_seconds: float,
) -> int:
    """Run COMMAND at TARGET, with this command's input, output and signals; there is no shell.

    Put "--" in front of COMMAND. The exit status is that of COMMAND, 128 and the signal's number when a signal ended
    it. An interrupt (Ctrl-C) is passed on, a second one kills.
    """
    environment = dict(variables)
    if terminal and "TERM" in os.environ:
        environment.setdefault("TERM", os.environ["TERM"])
    async with (
        connect(target) as sandbox,
        sandbox.run(
            command,
            cwd=cwd,
            variables=environment,
            open_input=not no_input,
            terminal=terminal_size() if terminal else None,
            deadline_seconds=deadline_seconds,
            idle_seconds=idle_seconds,
        ) as process,
    ):
        with raw_terminal(is_wanted=terminal and not no_input) as restore:
            await _carry(process, restore, reads_input=not no_input, is_terminal=terminal)
        ended = await process.wait()
    failure = None if ended.cause in ("itself", "signal") else ended.failure(program_name(command))
    if failure is not None:
        raise failure
    return ended.shell_status


async def _carry(process: Process, restore: Callable[[], None], *, reads_input: bool, is_terminal: bool) -> None:
    """Carry input, output and signals until the process is over."""
    async with task_group() as group, aclosing(process.output()) as output:
        with _forwarded(process, group, restore), _resized(process, group) if is_terminal else nullcontext():
            feeding = group.create_task(_feed(process)) if reads_input else None
            items: asyncio.Queue[Output | None] = asyncio.Queue(_MAX_PIECES_COUNT)
            printing = group.create_task(_print(items))
            async for item in output:
                await items.put(item)
            await items.put(None)
            await printing
            if feeding is not None:
                feeding.cancel()


async def _print(items: asyncio.Queue[Output | None]) -> None:
    """Write output; what comes while some is written is written at once then, stream by stream in its order."""
    is_over = False
    while not is_over:
        found = [await items.get()]
        found += [items.get_nowait() for _ in range(items.qsize())]
        is_over = found[-1] is None
        for stream, pieces in groupby((item for item in found if item is not None), key=lambda item: item.stream):
            await write_all(_DESCRIPTORS[stream], b"".join(item.data for item in pieces))


async def _feed(process: Process) -> None:
    """Carry input; what is read while the process takes some is written at once then."""
    pieces: asyncio.Queue[bytes] = asyncio.Queue(_MAX_PIECES_COUNT)
    async with task_group() as group:
        reading = group.create_task(_read(pieces))
        while data := await pieces.get():
            waiting = [pieces.get_nowait() for _ in range(pieces.qsize())]
            if not await process.write(b"".join((data, *waiting))):
                reading.cancel()
                return
            if b"" in waiting:
                break
    await process.close_input()


async def _read(pieces: asyncio.Queue[bytes]) -> None:
    async with aclosing(read_pieces(STDIN)) as found:
        async for piece in found:
            await pieces.put(piece)
    await pieces.put(b"")  # the end


@contextmanager
def _forwarded(process: Process, group: asyncio.TaskGroup, restore: Callable[[], None]) -> Iterator[None]:
    """Pass signals on to the process: the first as it is, the second as KILL. The third ends us as if we took none."""
    loop = asyncio.get_running_loop()
    numbers = [number for number in _FORWARDED if signal.getsignal(number) != signal.SIG_IGN]
    count = 0

    def forward(number: int) -> None:
        nonlocal count
        count += 1
        if count <= _KILL_COUNT:
            group.create_task(process.signal(number if count < _KILL_COUNT else signal.SIGKILL))
            return
        restore()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    for number in numbers:
        loop.add_signal_handler(number, forward, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextmanager
def _resized(process: Process, group: asyncio.TaskGroup) -> Iterator[None]:
    """Tell the process of each new size of our terminal."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, lambda: group.create_task(process.resize(*terminal_size())))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
