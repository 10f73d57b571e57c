"""One installation at a time in a sandbox, whichever clients want one.

Everybody who wants to install runs a process there that does nothing but show it. The daemon lists processes in the
order in which they were started, and the first of these has its turn. It is kept alive by a byte from time to time, so
that it ends by itself soon after its client has gone, in whatever way: nobody ever has to end that of somebody else.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from host_client.errors import OutpostError, ProcessError, UnavailableError
from host_client.sandbox.task import task_group, to_its_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from host_client.sandbox.process import Process
    from host_client.sandbox.sandbox import Sandbox

IDLE_SECONDS = 30.0
"""How long after the last sign of its client a place in the queue is kept."""

BEAT_SECONDS = 5.0
"""From one sign to the next."""

TICKET = "outpost-install-"
"""Beginning of the ids of the processes that are the queue."""


class Turn:
    """The right to install in a sandbox, for as long as its process runs there."""

    def __init__(self, sandbox: Sandbox, ticket: str) -> None:
        self._sandbox = sandbox
        self._ticket = ticket

    async def check(self) -> None:
        """See that the turn was never lost until now.

        Raises:
            UnavailableError: `unreachable`: it was.
        """
        if self._ticket not in await _queue(self._sandbox):
            raise _lost()


@asynccontextmanager
async def turn_to_install(sandbox: Sandbox) -> AsyncIterator[Turn]:
    """Wait until nobody else installs in the sandbox; leaving the context lets the next one.

    A client that is stopped for longer than `IDLE_SECONDS` while it installs loses its turn without being told: it must
    ask `Turn.check` before it touches what another installation might use, and after it has shown its own.

    Raises:
        UnavailableError: `unreachable`: the place in the queue was lost, by a restart of the daemon or of this host.
        ProcessError: `no_such_program`: the sandbox has no `cat`.
        LimitError: `max_processes`.
    """
    ticket = f"{TICKET}{uuid.uuid4().hex}"
    try:
        process = await sandbox.processes.start(
            ["cat"], process_id=ticket, open_input=True, idle_seconds=IDLE_SECONDS, grace_seconds=0
        )
        try:
            async with task_group() as group:
                beat = group.create_task(_beat(process))
                await _await_first(sandbox, ticket)
                yield Turn(sandbox, ticket)
                beat.cancel()
        finally:
            process.detach()
    finally:
        # Also when the start was cancelled, or its answer lost: the process may be there. If not even this arrives, it
        # ends by itself.
        with suppress(OutpostError):
            await to_its_end(sandbox.processes.release(ticket, patience_seconds=0))


async def _beat(process: Process) -> None:
    with suppress(OutpostError):  # what became of the daemon, the installation itself finds out
        while True:
            if not await process.write(b"\n"):
                return
            await asyncio.sleep(BEAT_SECONDS)


async def _await_first(sandbox: Sandbox, ticket: str) -> None:
    while ticket in (queue := await _queue(sandbox)):
        if queue[0] == ticket:
            return
        with suppress(ProcessError):  # it was released: the same as over
            await sandbox.processes.attach(queue[0]).wait()
    raise _lost()


async def _queue(sandbox: Sandbox) -> Sequence[str]:
    states = await sandbox.processes.list()
    return [state.id for state in states if state.exit is None and state.id.startswith(TICKET)]


def _lost() -> UnavailableError:
    message = "the turn to install in this sandbox was lost: its daemon was restarted, or this host slept"
    return UnavailableError("unreachable", message)
