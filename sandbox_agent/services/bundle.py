"""BundleService: capture, restore and recovery of session directories."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from sandbox_agent.core.bundle_check import BundleCheck
from sandbox_agent.core.capture import Capture
from sandbox_agent.core.recovery import list_recovery, prune_recovery, undo_restore
from sandbox_agent.core.restore import Restore
from sandbox_agent.core.session import list_sessions
from sandbox_agent.services.broken import kept_when_broken
from sandbox_agent.services.incoming import Incoming
from sandbox_agent.services.message import is_full, owner_of, place_of, place_of_all, timestamp
from sandbox_agent.services.outgoing import send
from sandbox_agent.services.worker import Worker
from sandbox_api.errors import ConfigurationError, SessionError
from sandbox_api.framing import Batcher
from sandbox_api.manifest import DIGEST_BYTES, Entry
from sandbox_api.names import check_conversation_id, check_restore_id, path_problem
from sandbox_api.v1 import bundle_pb2, bundle_pb2_grpc, payload_pb2
from sandbox_api.wire import chunk_message, pack_manifest, unpack_limits, unpack_manifest, unpack_profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Executor

    import grpc

    from sandbox_agent.core.recovery import Item
    from sandbox_agent.core.restore import Result
    from sandbox_agent.core.sandbox import Sandbox
    from sandbox_agent.core.session import Summary

    Context = grpc.aio.ServicerContext[Any, Any]

_WHY = {
    "not_selected": bundle_pb2.LeftOut.WHY_NOT_SELECTED,
    "symlink": bundle_pb2.LeftOut.WHY_SYMLINK,
}


class BundleService(bundle_pb2_grpc.BundleServiceServicer):
    """The service of `v1/bundle.proto`, which says what each call does."""

    def __init__(self, sandbox: Sandbox, executor: Executor) -> None:
        self._sandbox = sandbox
        self._executor = executor

    async def List(self, request: bundle_pb2.ListRequest, context: Context) -> None:  # noqa: N802, D102
        summaries = list_sessions(self._sandbox, place_of_all(request))
        async with Worker(self._executor) as worker:
            await send(context, worker, _list_parts(summaries))

    async def Capture(self, request: bundle_pb2.CaptureRequest, context: Context) -> None:  # noqa: N802, D102
        capture = Capture(
            self._sandbox,
            place_of(request.place),
            limits=unpack_limits(request.limits, self._sandbox.limits),
            skip_links=request.links == bundle_pb2.LINK_POLICY_SKIP,
            held=_unpack_held(request.held),
        )
        async with Worker(self._executor) as worker:
            await send(context, worker, _capture_parts(await worker.enter(capture)))

    async def Restore(self, request_iterator: object, context: Context) -> None:  # noqa: N802, D102, ARG002
        incoming = Incoming(context)
        header = await incoming.header()
        place = place_of(header.place)
        limits = unpack_limits(header.limits, self._sandbox.limits)
        restore_id = check_restore_id(header.restore_id)
        if restore_id and header.digests_follow:
            raise ConfigurationError("invalid_argument", "a restore whose digests follow cannot be gone on with")
        async with Worker(self._executor) as worker:
            manifest = await incoming.manifest(header.manifest_bytes, limits)
            entries = await worker.run(unpack_manifest, manifest, max_files=limits.max_files)
            restore = await worker.enter(
                Restore(
                    self._sandbox,
                    place,
                    entries,
                    header.digest,
                    limits=limits,
                    full_durability=is_full(header.durability),
                    owner=owner_of(header),
                    force=header.force,
                    restore_id=restore_id,
                    digests_follow=header.digests_follow,
                )
            )
            with kept_when_broken(restore, incoming):
                lacking = await worker.run(restore.begin)
                await context.write(bundle_pb2.RestoreResponse(need=_pack_need(lacking, restore)))
                if restore.parts:
                    _, resumed = await incoming.part("resume")
                    await worker.run(restore.go_on, list(resumed.entries))
                incoming.expect(restore.left_bytes)
                await worker.run(restore.check_digest, await incoming.pass_on(worker, restore.feed))
                result = await worker.run(restore.commit)
        await context.write(bundle_pb2.RestoreResponse(result=_pack_result(result)))

    async def Validate(self, request_iterator: object, context: Context) -> bundle_pb2.ValidateResponse:  # noqa: N802, D102, ARG002
        incoming = Incoming(context)
        header = await incoming.header()
        profile = unpack_profile(header.profile)
        conversation_id = check_conversation_id(header.id)
        limits = unpack_limits(header.limits, self._sandbox.limits)
        async with Worker(self._executor) as worker:
            manifest = await incoming.manifest(header.manifest_bytes, limits)
            entries = await worker.run(unpack_manifest, manifest, max_files=limits.max_files)
            check = await worker.enter(
                BundleCheck(self._sandbox, profile, conversation_id, entries, header.digest, limits=limits)
            )
            await worker.run(check.begin)
            incoming.expect(sum(entry.size for entry in entries))
            _check_digest(await incoming.pass_on(worker, check.feed), header.digest)
            await worker.run(check.finish)
        return bundle_pb2.ValidateResponse()

    async def ListRecovery(self, request: bundle_pb2.ListRecoveryRequest, context: Context) -> None:  # noqa: N802, D102
        place = place_of_all(request, request.id)
        async with Worker(self._executor) as worker:
            items = await worker.run(list_recovery, self._sandbox, place)
            for item in items:
                await context.write(bundle_pb2.ListRecoveryResponse(entry=_pack_item(item)))

    async def UndoRestore(  # noqa: N802, D102
        self,
        request: bundle_pb2.UndoRestoreRequest,
        context: Context,  # noqa: ARG002
    ) -> bundle_pb2.UndoRestoreResponse:
        place = place_of(request.place)
        async with Worker(self._executor) as worker:
            target, recovery = await worker.run(undo_restore, self._sandbox, place, request.name, force=request.force)
        return bundle_pb2.UndoRestoreResponse(target=target, recovery=recovery)

    async def PruneRecovery(  # noqa: N802, D102
        self,
        request: bundle_pb2.PruneRecoveryRequest,
        context: Context,  # noqa: ARG002
    ) -> bundle_pb2.PruneRecoveryResponse:
        place = place_of_all(request, request.id)
        keep_count = request.keep_count if request.HasField("keep_count") else None
        older_than_seconds = request.older_than_seconds if request.HasField("older_than_seconds") else None
        async with Worker(self._executor) as worker:
            removed = await worker.run(prune_recovery, self._sandbox, place, keep_count, older_than_seconds)
        return bundle_pb2.PruneRecoveryResponse(removed=removed)


def _list_parts(summaries: Iterator[Summary]) -> Iterator[list[bundle_pb2.ListResponse]]:
    for summary in summaries:
        yield [
            bundle_pb2.ListResponse(
                id=summary.conversation_id,
                path=summary.path,
                modified=None if summary.modified_ns is None else timestamp(summary.modified_ns),
                complete=summary.complete,
                in_use_pid=summary.in_use_pid,
            )
        ]


def _capture_parts(capture: Capture) -> Iterator[list[bundle_pb2.CaptureResponse | bytes]]:
    entries = capture.begin()
    manifest = pack_manifest(entries)
    yield [
        bundle_pb2.CaptureResponse(
            header=bundle_pb2.CaptureHeader(
                source=capture.source,
                manifest_bytes=len(manifest),
                files_count=len(entries),
                bytes_count=sum(entry.size for entry in entries),
                payload_bytes=len(manifest)
                + sum(entry.sent_bytes + DIGEST_BYTES for entry in entries if not entry.sha256),
            )
        )
    ]
    batcher = Batcher()
    for piece in chain([manifest], capture.pieces(lambda: batcher.room_bytes)):
        batcher.add(piece)
        for offset, parts in batcher.full():
            yield [chunk_message(offset, parts)]
    for offset, parts in batcher.rest():
        yield [chunk_message(offset, parts)]
    digest = capture.finish()
    yield [
        bundle_pb2.CaptureResponse(
            trailer=bundle_pb2.CaptureTrailer(
                payload=payload_pb2.Trailer(size=batcher.size, sha256=digest),
                left_out=[bundle_pb2.LeftOut(path=path, why=_WHY[why]) for path, why in capture.left_out],
                left_out_count=capture.left_out_count,
                in_use_pid=capture.in_use_pid,
            )
        )
    ]


def _unpack_held(held: Iterable[bundle_pb2.HeldFile]) -> dict[bytes, Entry]:
    files = {}
    for file in held:
        if path_problem(file.path) or len(file.sha256) != DIGEST_BYTES:
            raise ConfigurationError("invalid_argument", "a file the client says it holds has no usable path or digest")
        files[file.path] = Entry(file.path, file.size, file.sha256)
    return files


def _check_digest(trailer: bytes, header: bytes) -> None:
    if trailer != header:
        raise SessionError("digest_mismatch", "the trailer names another bundle digest than the header")


def _pack_need(lacking: list[bool], restore: Restore) -> bundle_pb2.RestoreNeed:
    bits = bytearray((len(lacking) + 7) // 8)
    for index, is_lacking in enumerate(lacking):
        bits[index // 8] |= is_lacking << index % 8
    parts = [
        bundle_pb2.StagedPart(entry=index, size=part.size, sha256=part.content.digest())
        for index, part in restore.parts
    ]
    return bundle_pb2.RestoreNeed(lacking=bytes(bits), parts=parts, staged_bytes=restore.staged_bytes)


def _pack_result(result: Result) -> bundle_pb2.RestoreResult:
    return bundle_pb2.RestoreResult(
        target=result.target,
        unchanged=result.unchanged,
        recovery=result.recovery,
        files_count=result.files_count,
        bytes_count=result.bytes_count,
        digest=result.digest,
        relocated=result.relocated,
        not_atomic=result.not_atomic,
    )


def _pack_item(item: Item) -> bundle_pb2.RecoveryEntry:
    return bundle_pb2.RecoveryEntry(
        name=item.name,
        id=item.conversation_id,
        session_path=item.session_path,
        set_aside=timestamp(item.set_aside_ns),
    )
