"""A process for the time of a block, or until it is over: nothing of it is left afterwards."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from host_client.errors import DeadlineError, OutpostError, SessionError, UnavailableError
from host_client.sandbox.process_exit import Completed
from host_client.sandbox.process_request import MAX_INPUT_BYTES, program_name
from host_client.sandbox.processes import GRACE_SECONDS
from host_client.sandbox.task import task_group, to_its_end
from sandbox_api.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from types import TracebackType

    from host_client.sandbox.process import Process
    from host_client.sandbox.process_request import Word
    from host_client.sandbox.processes import Processes

MAX_COLLECTED_BYTES = 16 * MIB
"""Output that is collected, unless another limit is given."""

_CLEAN_UP_SECONDS = 10.0
"""How long a daemon that is away is waited for when a process is to be ended; then it is left to its own limits."""


class Run:
    """A command to run: await it for a `Completed`, or enter it for a `Process`; made by `Sandbox.run`. Use it once.

    Leaving the context ends the process when it runs, and has the daemon forget it, also after an error or a cancel.

    Args:
        processes: Where it runs.
        argv: The command.
        options: The further parameters of `Processes.start`.
    """

    def __init__(self, processes: Processes, argv: Sequence[Word], **options: Any) -> None:
        self._processes = processes
        self._argv = argv
        self._options = options
        self._has_own_id = not options.get("process_id")
        self._id: str = options.pop("process_id", "") or uuid.uuid4().hex
        self._grace_seconds: float = options.get("grace_seconds", GRACE_SECONDS)
        self._process: Process | None = None

    def __await__(self) -> Generator[Any, None, Completed]:
        return self._complete().__await__()

    async def __aenter__(self) -> Process:
        try:
            self._process = await self._processes.start(self._argv, process_id=self._id, **self._options)
        except (asyncio.CancelledError, UnavailableError, DeadlineError) as error:
            # It may have been started all the same. One of another's id may be another's process.
            if self._has_own_id:
                with suppress(OutpostError):
                    await to_its_end(self._release(0 if isinstance(error, OutpostError) else _CLEAN_UP_SECONDS))
            raise
        return self._process

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        process = self._process
        if process is None:
            return
        process.detach()
        was_away = isinstance(error, (UnavailableError, DeadlineError))
        try:
            await to_its_end(self._release(0 if was_away else _CLEAN_UP_SECONDS))
        except OutpostError:
            # What went wrong in the block says more; and a process that is over needs nothing more from its daemon.
            if error is None and process.exit is None:
                raise

    async def _release(self, patience_seconds: float) -> None:
        """End the process and have it forgotten, in bounded time."""
        try:
            async with asyncio.timeout(_CLEAN_UP_SECONDS + self._grace_seconds):
                await self._processes.release(
                    self._id, patience_seconds=patience_seconds, grace_seconds=self._grace_seconds
                )
        except TimeoutError:
            raise DeadlineError("deadline", "the daemon did not end a process in time") from None

    async def _complete(self) -> Completed:
        limit_bytes = self._options.get("max_output_bytes") or MAX_COLLECTED_BYTES
        content: bytes = self._options.get("input", b"")
        rest = content[MAX_INPUT_BYTES:]
        self._options |= {
            "max_output_bytes": limit_bytes,
            "input": content[:MAX_INPUT_BYTES],
            "open_input": bool(rest),
        }
        collected = {"stdout": bytearray(), "stderr": bytearray()}
        async with self as process, task_group() as group:
            if rest:
                group.create_task(_feed(process, rest))
            async with aclosing(process.output()) as output:
                async for item in output:
                    collected[item.stream] += item.data
                    if sum(map(len, collected.values())) > limit_bytes:
                        raise SessionError("protocol", "the daemon sent more output than was asked for")
            ended = await process.wait()
        return Completed(program_name(self._argv), ended, bytes(collected["stdout"]), bytes(collected["stderr"]))


async def _feed(process: Process, content: bytes) -> None:
    await process.write(content)
    await process.close_input()
