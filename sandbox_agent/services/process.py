"""ProcessService: commands that run in the sandbox."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sandbox_agent.core.process_plan import KEEP_BYTES, Plan, Size, check_seconds, check_variables
from sandbox_agent.services.message import timestamp
from sandbox_agent.services.process_stream import AttachCall, Wakeup, pack_exit
from sandbox_api.errors import ConfigurationError, ProcessError, printable
from sandbox_api.names import check_process_id
from sandbox_api.v1 import process_pb2, process_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Executor, Future

    import grpc

    from sandbox_agent.core.process import Process
    from sandbox_agent.core.processes import Processes

    Context = grpc.aio.ServicerContext[Any, Any]

MAX_WAIT_SECONDS = 60.0
_MAX_SIGNAL = 64


class ProcessService(process_pb2_grpc.ProcessServiceServicer):
    """The service of `v1/process.proto`, which says what each call does."""

    def __init__(self, processes: Processes, executor: Executor, instance_id: str) -> None:
        self._processes = processes
        self._executor = executor
        self._instance_id = instance_id

    async def Start(  # noqa: N802, D102
        self,
        request: process_pb2.StartProcessRequest,
        context: Context,  # noqa: ARG002
    ) -> process_pb2.StartProcessResponse:
        if request.instance_id and request.instance_id != self._instance_id:
            raise ProcessError(
                "unknown",
                "the daemon was started again; what was asked of the one before it may have run",
                hint="see what it did before you have it done again",
                facts={"id": printable(request.id[:64])},
            )
        plan = _plan_of(request).check()
        # What was asked for is remembered as a digest: it may hold secrets.
        fingerprint = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        process = await _outcome(self._processes.start(check_process_id(request.id), plan, fingerprint))
        return process_pb2.StartProcessResponse(pid=process.pid, started=timestamp(process.started_ns))

    async def Attach(self, request_iterator: object, context: Context) -> None:  # noqa: N802, D102, ARG002
        await AttachCall(context, self._processes).run(self._executor)

    async def Signal(  # noqa: N802, D102
        self,
        request: process_pb2.SignalProcessRequest,
        context: Context,  # noqa: ARG002
    ) -> process_pb2.SignalProcessResponse:
        process = self._processes.get(check_process_id(request.id))
        if not 0 < request.signal <= _MAX_SIGNAL:
            raise ConfigurationError("invalid_argument", f"there is no signal {request.signal}")
        seconds = check_seconds("then_kill_seconds", request.then_kill_seconds)
        is_over = process.exit is not None
        if not is_over:
            self._processes.pump.call(lambda: process.signal(request.signal, seconds))
        return process_pb2.SignalProcessResponse(over=is_over)

    async def Wait(  # noqa: N802, D102
        self,
        request: process_pb2.WaitProcessRequest,
        context: Context,  # noqa: ARG002
    ) -> process_pb2.WaitProcessResponse:
        process = self._processes.get(check_process_id(request.id))
        seconds = min(check_seconds("max_seconds", request.max_seconds), MAX_WAIT_SECONDS)
        if process.exit is None and seconds:
            try:
                async with asyncio.timeout(seconds):
                    await _over(process)
            except TimeoutError:
                pass
        if process.exit is None:
            return process_pb2.WaitProcessResponse(running=True)
        return process_pb2.WaitProcessResponse(exit=pack_exit(process.exit))

    async def List(  # noqa: N802, D102
        self,
        request: process_pb2.ListProcessesRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> process_pb2.ListProcessesResponse:
        return process_pb2.ListProcessesResponse(processes=map(_pack_state, self._processes.known()))

    async def Release(  # noqa: N802, D102
        self,
        request: process_pb2.ReleaseProcessRequest,
        context: Context,  # noqa: ARG002
    ) -> process_pb2.ReleaseProcessResponse:
        # Also one that is just being started: a client that cancelled its start asks for that.
        start = self._processes.starting(check_process_id(request.id))
        if start is not None:
            started = asyncio.wrap_future(start)
            await asyncio.wait([started])
            started.exception()  # a start that failed is told to who asked for it
        try:
            process = self._processes.get(request.id)
            self._processes.release(request.id)
        except ProcessError:
            return process_pb2.ReleaseProcessResponse()
        await _over(process)
        # Calls of the pump come in their order, so it is forgotten when this one has come: its id may be used again.
        forgotten = Wakeup()
        self._processes.pump.call(forgotten)
        await forgotten.wait()
        return process_pb2.ReleaseProcessResponse()

    async def FindProgram(  # noqa: N802, D102
        self,
        request: process_pb2.FindProgramRequest,
        context: Context,  # noqa: ARG002
    ) -> process_pb2.FindProgramResponse:
        variables = _variables_of(request.variables)
        check_variables(variables)
        if not request.name or b"\0" in request.name:
            raise ConfigurationError("invalid_argument", "a program has a name, without NUL")
        return process_pb2.FindProgramResponse(
            path=await _outcome(self._processes.find_program(request.name, variables))
        )


async def _outcome(future: Future[Any]) -> Any:
    """Wait for what goes on whether or not this call does."""
    return await asyncio.shield(asyncio.wrap_future(future))


async def _over(process: Process) -> None:
    with _woken_by(process) as wakeup:
        while process.exit is None:
            await wakeup.wait()


@contextmanager
def _woken_by(process: Process) -> Iterator[Wakeup]:
    wakeup = Wakeup()
    process.audience.wake_by(wakeup)
    try:
        yield wakeup
    finally:
        process.audience.wake_no_more(wakeup)


def _plan_of(request: process_pb2.StartProcessRequest) -> Plan:
    size = Size(request.terminal.rows, request.terminal.columns) if request.HasField("terminal") else None
    return Plan(
        argv=tuple(request.argv),
        cwd=request.cwd,
        variables=_variables_of(request.variables),
        input=request.input,
        open_input=request.open_input,
        terminal=size,
        deadline_seconds=request.deadline_seconds,
        idle_seconds=request.idle_seconds,
        grace_seconds=request.grace_seconds,
        max_output_bytes=request.max_output_bytes,
        keep_bytes=request.keep_bytes or KEEP_BYTES,
        hold_seconds=request.hold_seconds,
    )


def _variables_of(variables: Iterable[process_pb2.Variable]) -> dict[bytes, bytes]:
    return {variable.name: variable.value for variable in variables}


def _pack_state(process: Process) -> process_pb2.ProcessState:
    sizes = [window.end for window in process.windows]
    return process_pb2.ProcessState(
        id=process.id,
        pid=process.pid,
        program=process.plan.argv[0].rpartition(b"/")[2],
        started=timestamp(process.started_ns),
        exit=pack_exit(process.exit) if process.exit is not None else None,
        stdout_bytes=sizes[0],
        stderr_bytes=sizes[1] if len(sizes) > 1 else 0,
    )
