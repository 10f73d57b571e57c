"""TranscriptService: conversations that are files among those of others."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

from sandbox_agent.core.file_set import FileSet
from sandbox_agent.core.file_set_recovery import MAX_TOLD_COUNT, list_files, prune_files, undo_files
from sandbox_agent.core.file_set_resume import list_staged
from sandbox_agent.core.follow import Follow
from sandbox_agent.core.holder import find_holders_in
from sandbox_agent.services.broken import kept_when_broken
from sandbox_agent.services.file_set import place_of_any, place_of_one, receive_files, record_of_staged
from sandbox_agent.services.follow import FollowStream, unpack_follow
from sandbox_agent.services.incoming import Incoming
from sandbox_agent.services.message import is_full, owner_of, timestamp
from sandbox_agent.services.worker import Worker
from sandbox_api.names import check_restore_id
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
        context: Context,
    ) -> transcript_pb2.TranscriptRestoreResponse:
        incoming = Incoming(context)
        header = await incoming.header()
        async with Worker(self._executor) as worker:
            files = await worker.enter(
                FileSet(
                    self._sandbox,
                    place_of_one(header),
                    full_durability=is_full(header.durability),
                    owner=owner_of(header),
                    expected_bytes=header.expected_bytes,
                    restore_id=check_restore_id(header.restore_id),
                )
            )
            with kept_when_broken(files, incoming):
                commit = await receive_files(incoming, worker, files)
            result = await worker.run(files.commit, commit.files_count, commit.bytes_count)
        return transcript_pb2.TranscriptRestoreResponse(
            unchanged=result.is_unchanged,
            recovery=result.recovery,
            replaced=result.replaced[:MAX_TOLD_COUNT],
            added=result.added[:MAX_TOLD_COUNT],
        )

    async def ListStaged(self, request: transcript_pb2.TranscriptStagedRequest, context: Context) -> None:  # noqa: N802, D102
        record = record_of_staged(request)
        async with Worker(self._executor) as worker:
            files = await worker.enter(closing(list_staged(self._sandbox, record)))
            while (file := await worker.run(next, files, None)) is not None:
                message = transcript_pb2.TranscriptStagedFile(path=file.path, size=file.size, sha256=file.sha256)
                await context.write(message)

    async def Follow(self, request: transcript_pb2.FollowRequest, context: Context) -> None:  # noqa: N802, D102
        patterns, held, interval_seconds = unpack_follow(request)
        woken = asyncio.Event()
        with self._wakeups.subscription(woken.set) as subscription:
            follow = Follow(
                self._sandbox.roots,
                request.home,
                patterns,
                held,
                max_files=self._sandbox.limits.max_found_count,
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

    async def ListRecovery(self, request: transcript_pb2.TranscriptRecoveryRequest, context: Context) -> None:  # noqa: N802, D102
        async with Worker(self._executor) as worker:
            items = await worker.run(list_files, self._sandbox.roots, place_of_any(request))
            for item in items:
                await context.write(
                    transcript_pb2.TranscriptRecoveryEntry(
                        name=item.name,
                        id=item.conversation_id,
                        set_aside=timestamp(item.set_aside_ns),
                        files=item.files,
                        files_count=item.files_count,
                    )
                )

    async def UndoRestore(  # noqa: N802, D102
        self,
        request: transcript_pb2.TranscriptUndoRequest,
        context: Context,  # noqa: ARG002
    ) -> transcript_pb2.TranscriptUndoResponse:
        place = place_of_one(request)
        async with Worker(self._executor) as worker:
            undone = await worker.run(undo_files, self._sandbox, place, request.name)
        return transcript_pb2.TranscriptUndoResponse(
            recovery=undone.recovery,
            restored=undone.restored[:MAX_TOLD_COUNT],
            removed=undone.removed[:MAX_TOLD_COUNT],
        )

    async def PruneRecovery(  # noqa: N802, D102
        self,
        request: transcript_pb2.TranscriptPruneRequest,
        context: Context,  # noqa: ARG002
    ) -> transcript_pb2.TranscriptPruneResponse:
        keep_count = request.keep_count if request.HasField("keep_count") else None
        older_than_seconds = request.older_than_seconds if request.HasField("older_than_seconds") else None
        async with Worker(self._executor) as worker:
            removed = await worker.run(
                prune_files, self._sandbox, place_of_any(request), keep_count, older_than_seconds
            )
        return transcript_pb2.TranscriptPruneResponse(removed=removed)
