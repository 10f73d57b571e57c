"""TranscriptService: conversations that are files among those of others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sandbox_agent.core.follow import Follow
from sandbox_agent.core.holder import find_holders_in
from sandbox_agent.services.follow import FollowStream, unpack_follow
from sandbox_agent.services.worker import Worker
from sandbox_api.errors import UnavailableError
from sandbox_api.v1 import transcript_pb2, transcript_pb2_grpc
from sandbox_api.wire import unpack_locks

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import grpc

    from sandbox_agent.core.sandbox import Sandbox
    from sandbox_agent.services.follow import Wakeups

    Context = grpc.aio.ServicerContext[Any, Any]


class TranscriptService(transcript_pb2_grpc.TranscriptServiceServicer):
    """The service of `v1/transcript.proto`, which says what each call does."""

    def __init__(self, sandbox: Sandbox, executor: Executor, wakeups: Wakeups) -> None:
        self._sandbox = sandbox
        self._executor = executor
        self._wakeups = wakeups

    async def Restore(  # noqa: N802, D102
        self,
        request_iterator: object,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> transcript_pb2.TranscriptRestoreResponse:
        raise _unsupported()

    async def Follow(self, request: transcript_pb2.FollowRequest, context: Context) -> None:  # noqa: N802, D102
        patterns, held, interval_seconds = unpack_follow(request)
        woken = asyncio.Event()
        with self._wakeups.subscription(woken.set) as subscription:
            follow = Follow(
                self._sandbox.roots,
                request.home,
                patterns,
                held,
                max_files=self._sandbox.limits.max_files,
                subscription=subscription,
            )
            stream = FollowStream(context, self._wakeups, woken, interval_seconds=interval_seconds)
            async with Worker(self._executor) as worker:
                await stream.run(worker, await worker.enter(follow))

    async def FindHolders(  # noqa: N802, D102
        self,
        request: transcript_pb2.FindHoldersRequest,
        context: Context,  # noqa: ARG002
    ) -> transcript_pb2.FindHoldersResponse:
        signs = unpack_locks(request.locks)
        async with Worker(self._executor) as worker:
            holders = await worker.run(find_holders_in, self._sandbox.roots, request.home, signs)
        return transcript_pb2.FindHoldersResponse(
            holders=[transcript_pb2.Holder(path=holder.path, pid=holder.pid) for holder in holders]
        )

    async def ListRecovery(  # noqa: N802, D102
        self,
        request: transcript_pb2.TranscriptRecoveryRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> None:
        raise _unsupported()

    async def UndoRestore(  # noqa: N802, D102
        self,
        request: transcript_pb2.TranscriptUndoRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> transcript_pb2.TranscriptUndoResponse:
        raise _unsupported()

    async def PruneRecovery(  # noqa: N802, D102
        self,
        request: transcript_pb2.TranscriptPruneRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> transcript_pb2.TranscriptPruneResponse:
        raise _unsupported()


def _unsupported() -> UnavailableError:
    return UnavailableError("unsupported", "this daemon does not know the call")
