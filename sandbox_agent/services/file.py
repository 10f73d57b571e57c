"""FileService: single files below the daemon's roots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox_agent.core.file import Info, find_files, remove_file, stat_file
from sandbox_agent.core.file_reader import FileReader
from sandbox_agent.core.file_writer import FileWriter
from sandbox_agent.services.incoming import Incoming
from sandbox_agent.services.message import is_full, owner_of, timestamp
from sandbox_agent.services.outgoing import send
from sandbox_agent.services.worker import Worker
from sandbox_api.framing import Batcher
from sandbox_api.v1 import file_pb2, file_pb2_grpc, payload_pb2
from sandbox_api.wire import chunk_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    import grpc

    from sandbox_agent.core.sandbox import Sandbox

    Context = grpc.aio.ServicerContext[Any, Any]

_KINDS = {
    "file": file_pb2.FileInfo.KIND_FILE,
    "directory": file_pb2.FileInfo.KIND_DIRECTORY,
    "symlink": file_pb2.FileInfo.KIND_SYMLINK,
    "other": file_pb2.FileInfo.KIND_OTHER,
}


class FileService(file_pb2_grpc.FileServiceServicer):
    """The service of `v1/file.proto`, which says what each call does."""

    def __init__(self, sandbox: Sandbox, executor: Executor) -> None:
        self._sandbox = sandbox
        self._executor = executor

    async def Find(self, request: file_pb2.FindRequest, context: Context) -> None:  # noqa: N802, D102
        limits = self._sandbox.limits
        max_files = min(request.max_files or limits.max_files, limits.max_found_count)
        found = find_files(
            self._sandbox.roots,
            request.directory,
            request.pattern,
            max_files,
            contains=request.contains,
            head_bytes=request.head_bytes,
        )
        async with Worker(self._executor) as worker:
            await send(context, worker, _find_parts(found))

    async def Stat(self, request: file_pb2.StatRequest, context: Context) -> file_pb2.StatResponse:  # noqa: N802, D102, ARG002
        async with Worker(self._executor) as worker:
            info = await worker.run(stat_file, self._sandbox.roots, request.path)
        return file_pb2.StatResponse(file=_pack_info(info))

    async def Read(self, request: file_pb2.ReadRequest, context: Context) -> None:  # noqa: N802, D102
        reader = FileReader(
            self._sandbox.roots,
            request.path,
            offset=request.offset,
            prefix_sha256=request.prefix_sha256,
            max_bytes=request.max_bytes,
            prefix_sizes=request.prefix_sizes,
            part_bytes=request.part_bytes,
        )
        async with Worker(self._executor) as worker:
            await send(context, worker, _read_parts(await worker.enter(reader)))

    async def Write(self, request_iterator: object, context: Context) -> file_pb2.WriteResponse:  # noqa: N802, D102, ARG002
        incoming = Incoming(context)
        header = await incoming.header()
        writer = FileWriter(
            self._sandbox.roots,
            header.path,
            mode=header.mode,
            make_parents=header.make_parents,
            must_not_exist=header.must_not_exist,
            full_durability=is_full(header.durability),
            owner=owner_of(header),
        )
        async with Worker(self._executor) as worker:
            await worker.enter(writer)
            digest = await incoming.pass_on(worker, writer.feed)
            info = await worker.run(writer.commit, digest)
        return file_pb2.WriteResponse(file=_pack_info(info))

    async def Remove(self, request: file_pb2.RemoveRequest, context: Context) -> file_pb2.RemoveResponse:  # noqa: N802, D102, ARG002
        async with Worker(self._executor) as worker:
            await worker.run(remove_file, self._sandbox.roots, request.path)
        return file_pb2.RemoveResponse()


def _find_parts(found: Iterator[Sequence[Info]]) -> Iterator[list[file_pb2.FindResponse]]:
    for infos in found:
        yield [file_pb2.FindResponse(file=_pack_info(info)) for info in infos]


def _read_parts(reader: FileReader) -> Iterator[list[file_pb2.ReadResponse | bytes]]:
    yield [file_pb2.ReadResponse(header=file_pb2.ReadHeader(file=_pack_info(reader.info)))]
    batcher = Batcher()
    for piece in reader.pieces():
        batcher.add(piece)
        for offset, parts in batcher.full():
            yield [chunk_message(offset, parts)]
    for offset, parts in batcher.rest():
        yield [chunk_message(offset, parts)]
    trailer = payload_pb2.Trailer(size=batcher.size, sha256=reader.sha256)
    yield [file_pb2.ReadResponse(trailer=trailer, grew=reader.grew)]


def _pack_info(info: Info) -> file_pb2.FileInfo:
    return file_pb2.FileInfo(
        path=info.path,
        kind=_KINDS[info.kind],
        size=info.size,
        modified=timestamp(info.modified_ns),
        mode=info.mode,
        uid=info.uid,
        gid=info.gid,
    )
