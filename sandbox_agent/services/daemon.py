"""DaemonService: what the daemon is, and what would make later calls fail."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from sandbox_agent import VERSION
from sandbox_agent.core.capability import c_library, capabilities, kernel_release, machine
from sandbox_agent.core.diagnosis import diagnose
from sandbox_agent.core.sandbox import CliHome
from sandbox_agent.core.session import resolve_cli_home
from sandbox_agent.services.message import timestamp
from sandbox_agent.services.worker import Worker
from sandbox_api.v1 import daemon_pb2, daemon_pb2_grpc
from sandbox_api.wire import pack_limits, unpack_profile

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import grpc

    from sandbox_agent.core.sandbox import Sandbox

    Context = grpc.aio.ServicerContext[Any, Any]

_LEVELS = {
    "ok": daemon_pb2.DiagnoseResponse.LEVEL_OK,
    "warning": daemon_pb2.DiagnoseResponse.LEVEL_WARNING,
    "problem": daemon_pb2.DiagnoseResponse.LEVEL_PROBLEM,
}


class DaemonService(daemon_pb2_grpc.DaemonServiceServicer):
    """The service of `v1/daemon.proto`, which says what each call does."""

    def __init__(self, sandbox: Sandbox, executor: Executor, instance_id: str) -> None:
        self._sandbox = sandbox
        self._executor = executor
        self._instance_id = instance_id
        self._c_library = c_library()  # here, since it looks at the disk

    async def GetInfo(  # noqa: N802, D102
        self,
        request: daemon_pb2.GetInfoRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> daemon_pb2.GetInfoResponse:
        return daemon_pb2.GetInfoResponse(
            version=VERSION,
            contracts=["sandbox_api.v1"],
            capabilities=capabilities(),
            home=self._sandbox.home,
            workspace=self._sandbox.workspace,
            roots=self._sandbox.roots.paths,
            uid=os.geteuid(),
            gid=os.getegid(),
            limits=pack_limits(self._sandbox.limits),
            instance_id=self._instance_id,
            time=timestamp(time.time_ns()),
            kernel=kernel_release(),
            machine=machine(),
            c_library=self._c_library,
        )

    async def Diagnose(  # noqa: N802, D102
        self,
        request: daemon_pb2.DiagnoseRequest,
        context: Context,  # noqa: ARG002
    ) -> daemon_pb2.DiagnoseResponse:
        profiles = [unpack_profile(profile) for profile in request.profiles]
        async with Worker(self._executor) as worker:
            findings = await worker.run(diagnose, self._sandbox, profiles, dict(request.variables))
        return daemon_pb2.DiagnoseResponse(
            findings=[
                daemon_pb2.DiagnoseResponse.Finding(
                    check=finding.check,
                    format=finding.format,
                    level=_LEVELS[finding.level],
                    message=finding.message,
                    hint=finding.hint,
                )
                for finding in findings
            ]
        )

    async def ResolveHome(  # noqa: N802, D102
        self,
        request: daemon_pb2.ResolveHomeRequest,
        context: Context,  # noqa: ARG002
    ) -> daemon_pb2.ResolveHomeResponse:
        cli_home = CliHome(request.variable, request.directory, dict(request.variables), request.follow_root_link)
        async with Worker(self._executor) as worker:
            home, exists = await worker.run(resolve_cli_home, self._sandbox, cli_home)
        return daemon_pb2.ResolveHomeResponse(home=home, exists=exists)
