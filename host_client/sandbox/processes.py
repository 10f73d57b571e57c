"""Processes of one sandbox: one method per call of `ProcessService`, but for those that are about one process."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from host_client.errors import ProcessError
from host_client.sandbox import daemon, reply
from host_client.sandbox.patience import ConnectionPatience
from host_client.sandbox.process import Process
from host_client.sandbox.process_exit import checked_state
from host_client.sandbox.process_incoming import Incoming
from host_client.sandbox.process_request import packed_variables, start_request
from host_client.sandbox.request import expressible
from sandbox_api.names import check_process_id
from sandbox_api.v1 import process_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import PurePosixPath

    from host_client.sandbox.connection import Connection
    from host_client.sandbox.process_exit import ProcessState
    from host_client.sandbox.process_request import Word

PATIENCE_SECONDS = 60.0
"""How long a daemon that is away is waited for."""

HOLD_SECONDS = 60.0
"""How long a process that printed all that is kept waits for a reader."""

GRACE_SECONDS = 5.0
"""From TERM to KILL."""


class Processes:
    """Starts processes in one sandbox and finds them again.

    Every method may raise `UnavailableError` (`unsupported`: the daemon is too old; `unreachable`) and `SessionError`
    (`protocol`).

    Args:
        connection: The calls go through it.
        variables: Variables of every process that is started here, by the sandbox's provider.
        instance_id: What the daemon says it is.
    """

    def __init__(self, connection: Connection, variables: Mapping[str, str], instance_id: str) -> None:
        self._connection = connection
        self._variables = variables
        self._instance_id = instance_id

    async def start(
        self,
        argv: Sequence[Word],
        *,
        cwd: PurePosixPath | str | None = None,
        variables: Mapping[str, str] | None = None,
        input: bytes = b"",  # noqa: A002 - what subprocess calls it
        open_input: bool = False,
        terminal: tuple[int, int] | None = None,
        deadline_seconds: float = 0,
        idle_seconds: float = 0,
        grace_seconds: float = GRACE_SECONDS,
        max_output_bytes: int | None = None,
        keep_bytes: int = 0,
        hold_seconds: float = HOLD_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        process_id: str = "",
    ) -> Process:
        """Start a process that lives on its own: until it ends, is released, or its daemon ends.

        A daemon that is away is asked again. That starts nothing twice, also when it was restarted in between.

        Args:
            argv: The program and its arguments, as text or bytes. There is no shell. A program without "/" is looked
                for in PATH.
            cwd: Working directory, absolute and below a root; None: the workspace.
            variables: Added to, and stronger than, those of the sandbox.
            input: What it reads first, at most 1 MiB; all it reads unless `open_input`.
            open_input: Whether `Process.write` may give it more.
            terminal: Rows and columns of the terminal that it runs on; None: it has pipes.
            deadline_seconds: It is ended after that long; 0: never.
            idle_seconds: It is ended when it printed nothing for that long; 0: never.
            grace_seconds: From TERM to KILL when it is ended; 0: KILL at once.
            max_output_bytes: It is ended when it printed more; None: no limit.
            keep_bytes: How much of each stream is kept for a connection that breaks, between 64 KiB and 1 GiB; 0:
                64 MiB.
            hold_seconds: How long the process waits for a reader before output that nobody read is dropped.
            patience_seconds: How long a daemon that is away is waited for, here and by the process.
            process_id: Its id; empty: a random one.

        Raises:
            ProcessError: `no_such_program`, `not_executable`, `no_such_directory`, `start_failed`; `unknown`: the
                daemon was restarted while it was asked, so that the process may have run, and been ended, before.
            ConfigurationError: `invalid_argument`, `invalid_id`.
            ConflictError: `exists`: another process has that id.
            LimitError: `max_processes`, `descriptors`, `disk_full`.
            WorkspaceError: `outside_roots`, `unsafe_path`: the working directory.
        """
        identity = process_id or uuid.uuid4().hex
        request = start_request(
            identity,
            argv,
            cwd=cwd,
            variables={**self._variables, **(variables or {})},
            input=input,
            open_input=open_input,
            terminal=terminal,
            deadline_seconds=deadline_seconds,
            idle_seconds=idle_seconds,
            grace_seconds=grace_seconds,
            max_output_bytes=max_output_bytes or 0,
            keep_bytes=keep_bytes,
            hold_seconds=hold_seconds,
        )
        patience = ConnectionPatience(self._connection, patience_seconds)
        answer = await self._started(request, patience)
        return Process(self._connection, Incoming(identity), identity, answer.pid, patience_seconds=patience_seconds)

    async def _started(
        self, request: process_pb2.StartProcessRequest, patience: ConnectionPatience
    ) -> process_pb2.StartProcessResponse:
        request.instance_id = self._instance_id
        try:
            return await patience.ask("ProcessService/Start", request, process_pb2.StartProcessResponse)
        except ProcessError as error:
            if error.reason != "unknown" or patience.has_borne:
                raise
        # Restarted since we last knew it, and no attempt has been without an answer: nothing of this was ever started.
        self._instance_id = (await daemon.info(self._connection)).instance_id
        request.instance_id = self._instance_id
        return await patience.ask("ProcessService/Start", request, process_pb2.StartProcessResponse)

    def attach(
        self,
        process_id: str,
        *,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> Process:
        """Return a process by its id; that it is not known is found out by what is done with it.

        Any number of clients may read. One writes: whoever began to last; what another writes after that is refused.

        Args:
            process_id: Its id.
            stdout_offset: How much of its output is held already.
            stderr_offset: The same of standard error.
            patience_seconds: As for `start`.

        Raises:
            ConfigurationError: `invalid_id`, `invalid_argument`.
        """
        check_process_id(process_id)
        incoming = Incoming(process_id, stdout_offset, stderr_offset)
        with expressible():
            incoming.request  # noqa: B018 - refuses impossible offsets
        return Process(self._connection, incoming, process_id, 0, patience_seconds=patience_seconds)

    async def list(self) -> Sequence[ProcessState]:
        """Return the processes that the daemon knows, oldest first: also those that are over and not yet released."""
        answer = await self._connection.ask(
            "ProcessService/List", process_pb2.ListProcessesRequest(), process_pb2.ListProcessesResponse
        )
        return tuple(map(checked_state, answer.processes))

    async def release(
        self, process_id: str, *, patience_seconds: float = PATIENCE_SECONDS, grace_seconds: float = GRACE_SECONDS
    ) -> None:
        """Have a process and its output forgotten; one that runs is ended first. An unknown one is no error.

        Args:
            process_id: Its id.
            patience_seconds: How long a daemon that is away is waited for.
            grace_seconds: What the process was given at its start: so much longer the answer may take.

        Raises:
            ConfigurationError: `invalid_id`.
        """
        request = process_pb2.ReleaseProcessRequest(id=check_process_id(process_id))
        patience = ConnectionPatience(self._connection, patience_seconds)
        await patience.ask(
            "ProcessService/Release", request, process_pb2.ReleaseProcessResponse, more_seconds=grace_seconds
        )

    async def find_program(self, name: str, *, variables: Mapping[str, str] | None = None) -> PurePosixPath | None:
        """Return where a program is that `start` would run; None when there is none.

        Args:
            name: Its name, or its absolute path.
            variables: As for `start`; PATH counts.

        Raises:
            ProcessError: `not_executable`.
            ConfigurationError: `invalid_argument`.
        """
        with expressible():
            request = process_pb2.FindProgramRequest(
                name=os.fsencode(name), variables=packed_variables({**self._variables, **(variables or {})})
            )
        answer = await self._connection.ask("ProcessService/FindProgram", request, process_pb2.FindProgramResponse)
        return reply.sandbox_path(answer.path, "program") if answer.path else None
