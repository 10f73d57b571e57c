"""Single files of one sandbox: one method per call of `FileService`."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from host_client.errors import ConfigurationError, LimitError, SessionError
from host_client.sandbox import reply
from host_client.sandbox.request import expressible
from host_client.sandbox.task import in_thread, task_group
from sandbox_api.framing import PayloadCheck
from sandbox_api.limits import CHUNK_BYTES
from sandbox_api.v1 import file_pb2, payload_pb2
from sandbox_api.wire import chunk_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from datetime import datetime
    from pathlib import PurePosixPath

    from host_client.sandbox.connection import Connection, Stream

Kind = Literal["file", "directory", "symlink", "other"]
_KINDS: dict[int, Kind] = {
    file_pb2.FileInfo.KIND_FILE: "file",
    file_pb2.FileInfo.KIND_DIRECTORY: "directory",
    file_pb2.FileInfo.KIND_SYMLINK: "symlink",
}
_MODE_BITS = 0o7777


class Readable(Protocol):
    """A blocking source of bytes, such as a binary file."""

    def read(self, size: int, /) -> bytes:
        """Return up to that many bytes; none at the end."""


class Digest(Protocol):
    """A SHA-256 in the making, as `hashlib` has it."""

    def update(self, data: bytes, /) -> None:
        """Take the next bytes."""

    def digest(self) -> bytes:
        """Return the digest of all of them."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What is at a path of the sandbox.

    Attributes:
        path: Absolute path.
        kind: What it is; a link is told, never followed.
        size: In bytes.
        modified: When its content changed last.
        mode: Permission bits.
        uid: Owner.
        gid: Group.
    """

    path: PurePosixPath
    kind: Kind
    size: int
    modified: datetime
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that was read.

    Attributes:
        info: What it was when it was opened.
        grew: It was larger when its reading ended: something is being written.
    """

    info: FileInfo
    grew: bool


class Files:
    """Finds, reads and writes single files below the roots of one sandbox. No link is ever followed.

    Every method may raise `WorkspaceError` (`outside_roots`, `unsafe_path`, `access`), `SessionError` (`protocol`),
    `DeadlineError` (`deadline`) and `UnavailableError`. Each says below what else.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def find(
        self,
        directory: PurePosixPath,
        pattern: str = "*",
        *,
        max_files: int = 0,
        contains: bytes = b"",
        head_bytes: int = 0,
    ) -> AsyncIterator[FileInfo]:
        """Yield the regular files at any depth below a directory whose names match a glob, by path.

        Links and special files are passed over. A directory that does not exist has no files.

        Args:
            directory: Where to start.
            pattern: `*`, `?` and `[...]`; other characters stand for themselves.
            max_files: Most results: no more than 65,536, or the daemon's limit of files where that is larger; 0: the
                daemon's limit of files.
            contains: Only files whose first `head_bytes` have this; empty: any content.
            head_bytes: At most 1 MiB; 0: 64 KiB.

        Raises:
            ConfigurationError: `invalid_argument`.
            LimitError: `max_files`, `max_depth`.
        """
        with expressible():
            request = file_pb2.FindRequest(
                directory=os.fsencode(directory),
                pattern=pattern,
                max_files=max_files,
                contains=contains,
                head_bytes=head_bytes,
            )
        async with self._connection.begin("FileService/Find", request, file_pb2.FindResponse) as stream:
            async for item in reply.listed(stream):
                yield _info(item.file)

    async def stat(self, sandbox_path: PurePosixPath) -> FileInfo:
        """Tell what is at a path.

        Raises:
            WorkspaceError: `not_found`.
        """
        request = file_pb2.StatRequest(path=os.fsencode(sandbox_path))
        return _info((await self._connection.ask("FileService/Stat", request, file_pb2.StatResponse)).file)

    async def read(
        self,
        sandbox_path: PurePosixPath,
        write: Callable[[bytes], object],
        *,
        offset: int = 0,
        prefix_sha256: bytes = b"",
        prefix_sizes: Sequence[int] = (),
        part_bytes: int = 0,
        max_bytes: int | None = None,
        after_chunk: Callable[[int], None] | None = None,
        before_chunk: Callable[[], Awaitable[None]] | None = None,
        digest: Digest | None = None,
    ) -> ReadFile:
        """Read a file from an offset to the size it has when it is opened, and return what it was then.

        What was written counts only when this returns: until then size and SHA-256 have not been checked.

        Args:
            sandbox_path: The file.
            write: Takes each piece; blocks, runs in threads, one call at a time.
            offset: Where to start, in bytes.
            prefix_sha256: SHA-256 of what lies before, or those of its parts, one after the other; empty: not checked.
            prefix_sizes: Sizes of the parts; empty: one part.
            part_bytes: Size of the parts by which `digest` is made: its end is the SHA-256 of theirs, one after the
                other. 0: it is a plain SHA-256.
            max_bytes: Refuse a file that would send more; None: any size.
            after_chunk: Told the size of each piece that was written, in the event loop's thread.
            before_chunk: Waited for before each piece is written.
            digest: Takes each piece before `write` does, instead of a new SHA-256 object: a caller that needs more of
                the digest than its end would otherwise hash everything again.

        Raises:
            WorkspaceError: `not_found`, `not_a_file`, `changed`.
            SessionError: `digest_mismatch`, `incomplete`.
            LimitError: `max_bytes`.
        """
        with expressible():
            request = file_pb2.ReadRequest(
                path=os.fsencode(sandbox_path),
                offset=offset,
                prefix_sha256=prefix_sha256,
                prefix_sizes=prefix_sizes,
                part_bytes=part_bytes,
            )
        async with self._connection.begin("FileService/Read", request, file_pb2.ReadResponse) as stream:
            info = await _header(stream)
            if info.size < offset:
                raise SessionError("protocol", "the daemon's file ends before the offset that was asked for")
            if max_bytes is not None and info.size - offset > max_bytes:
                raise LimitError("max_bytes", f"{reply.printable_path(os.fsencode(info.path))} has {info.size} bytes")
            grew = await _receive(
                stream, write, info.size - offset, after_chunk, before_chunk=before_chunk, digest=digest
            )
        return ReadFile(info, grew)

    async def head(self, sandbox_path: PurePosixPath, max_bytes: int) -> bytes:
        """Return the first bytes of a file; all of it when it has no more than `max_bytes`.

        Raises:
            WorkspaceError: `not_found`, `not_a_file`, `changed`.
            SessionError: `digest_mismatch`, `incomplete`.
            ConfigurationError: `invalid_argument`: `max_bytes` is no positive number of 64 bits.
        """
        if max_bytes <= 0:  # the contract's 0 means all of it
            raise ConfigurationError("invalid_argument", f"the first {max_bytes} bytes of a file cannot be read")
        with expressible():
            request = file_pb2.ReadRequest(path=os.fsencode(sandbox_path), max_bytes=max_bytes)
        parts: list[bytes] = []
        async with self._connection.begin("FileService/Read", request, file_pb2.ReadResponse) as stream:
            info = await _header(stream)
            await _receive(stream, parts.append, min(info.size, max_bytes))
        return b"".join(parts)

    async def write(
        self,
        sandbox_path: PurePosixPath,
        source: Readable,
        *,
        mode: int = 0o600,
        make_parents: bool = False,
        must_not_exist: bool = False,
        full_durability: bool = True,
        owner: tuple[int, int] | None = None,
        after_chunk: Callable[[int], None] | None = None,
    ) -> FileInfo:
        """Write a file atomically: on failure or cancel the old one is in place.

        Args:
            sandbox_path: The file.
            source: Gives the content; blocks, runs in threads.
            mode: Permission bits; 0 means 0600.
            make_parents: Create missing parent directories, 0700.
            must_not_exist: Fail when the path exists.
            full_durability: Whether the file must survive a power loss.
            owner: User and group id; None: the daemon's own.
            after_chunk: Told the size of each piece that was sent.

        Raises:
            ConflictError: `exists`.
            WorkspaceError: `not_found` (the parent), `not_a_file`.
            ConfigurationError: `owner`.
            LimitError: `max_bytes`, `disk_full`, `read_only`.
        """
        header = file_pb2.WriteHeader(
            path=os.fsencode(sandbox_path),
            mode=mode,
            make_parents=make_parents,
            must_not_exist=must_not_exist,
            durability=payload_pb2.DURABILITY_FULL if full_durability else payload_pb2.DURABILITY_NONE,
            owner=payload_pb2.Owner(uid=owner[0], gid=owner[1]) if owner else None,
        )
        sha256 = hashlib.sha256()

        def next_piece() -> bytes:
            data = source.read(CHUNK_BYTES)
            sha256.update(data)
            return data

        async with self._connection.open("FileService/Write", file_pb2.WriteResponse) as stream:
            await stream.write(file_pb2.WriteRequest(header=header))
            size = 0
            while data := await in_thread(next_piece):
                await stream.write_serialized(chunk_message(size, [data]))
                size += len(data)
                if after_chunk is not None:
                    after_chunk(len(data))
            trailer = payload_pb2.Trailer(size=size, sha256=sha256.digest())
            await stream.write(file_pb2.WriteRequest(trailer=trailer))
            await stream.finish_writing()
            return _info((await stream.only()).file)

    async def remove(self, sandbox_path: PurePosixPath) -> None:
        """Remove one regular file.

        Raises:
            WorkspaceError: `not_found`, `not_a_file`.
        """
        request = file_pb2.RemoveRequest(path=os.fsencode(sandbox_path))
        await self._connection.ask("FileService/Remove", request, file_pb2.RemoveResponse)


async def _header(stream: Stream[file_pb2.ReadResponse]) -> FileInfo:
    message = await stream.read()
    if message is None or message.WhichOneof("part") != "header":
        raise SessionError("protocol", "the daemon's file does not begin with a header")
    return _info(message.header.file)


async def _receive(
    stream: Stream[file_pb2.ReadResponse],
    write: Callable[[bytes], object],
    size: int,
    after_chunk: Callable[[int], None] | None = None,
    *,
    before_chunk: Callable[[], Awaitable[None]] | None = None,
    digest: Digest | None = None,
) -> bool:
    """Take the payload of a file that has that size, to the end of the stream; tell whether the file grew."""
    payload, sha256 = PayloadCheck(size), digest or hashlib.sha256()

    def take(chunk: payload_pb2.Chunk) -> None:
        data = payload.accept(chunk.offset, chunk.data)
        sha256.update(data)
        write(data)

    message = await stream.read()
    while message is not None and message.WhichOneof("part") == "chunk":
        if before_chunk is not None:
            await before_chunk()
        async with task_group() as group:
            following = group.create_task(stream.read())
            await in_thread(take, message.chunk)
        if after_chunk is not None:
            after_chunk(len(message.chunk.data))
        message = following.result()
    if message is None:
        raise SessionError("incomplete", "the daemon's file ended before its trailer")
    if message.WhichOneof("part") != "trailer":
        raise SessionError("protocol", "the daemon's file has a part where it cannot be")
    payload.finish(message.trailer.size)
    if payload.size != size:
        raise SessionError("incomplete", f"the daemon's file ended after {payload.size} of {size} bytes")
    if message.trailer.sha256 != sha256.digest():
        raise SessionError("digest_mismatch", "the daemon's file does not have the SHA-256 its trailer says")
    await stream.end()
    return message.grew


def _info(message: file_pb2.FileInfo) -> FileInfo:
    return FileInfo(
        path=reply.sandbox_path(message.path, "file path"),
        kind=_KINDS.get(message.kind, "other"),
        size=message.size,
        modified=reply.moment(message.modified),
        mode=message.mode & _MODE_BITS,
        uid=message.uid,
        gid=message.gid,
    )
