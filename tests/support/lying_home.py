"""A daemon that has one home of a CLI in memory and answers as its test wants: properly, but for some lies."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from host_client.sandbox.sandbox import connect
from host_client.session.part_digest import PartDigest
from sandbox_api.errors import SessionError, WorkspaceError
from sandbox_api.limits import CHUNK_BYTES
from sandbox_api.v1 import daemon_pb2, file_pb2, payload_pb2, transcript_pb2
from sandbox_api.wire import pack_status
from support.fake_daemon import Exchange, fake_daemon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from host_client.sandbox.sandbox import Sandbox

    Script = Callable[[Exchange], Awaitable[None]]


@dataclass
class LyingHome:
    """What the daemon says.

    Attributes:
        files: Contents by paths below the home.
        home: What it says the home is.
        planted: Absolute paths that it finds beside what there is, when it is asked for that directory and pattern.
        size: The size that it tells of a file; None: its own.
        scripts: Calls that it answers otherwise, named as for `fake_daemon`.
    """

    files: dict[str, bytes]
    home: bytes = b"/home/agent/.claude"
    planted: Callable[[str, str], Iterable[bytes]] = lambda _directory, _pattern: ()
    size: Callable[[str, int], int] = lambda _path, size: size
    scripts: dict[str, Script] = field(default_factory=dict)

    def info(self, path: bytes, size: int = 1) -> file_pb2.FileInfo:
        """Return what it says of a file."""
        return file_pb2.FileInfo(path=path, kind=file_pb2.FileInfo.KIND_FILE, size=size, mode=0o600)

    def below(self, path: bytes) -> str:
        """Return where an absolute path lies below the home."""
        return os.path.relpath(os.fsdecode(path), os.fsdecode(self.home))

    async def find(self, exchange: Exchange) -> None:
        """Find."""
        request = file_pb2.FindRequest.FromString(await exchange.receive() or b"")
        directory = self.below(request.directory)
        matches = re.compile(fnmatch.translate(request.pattern)).match
        below = "" if directory == "." else f"{directory}/"
        for path, content in sorted(self.files.items()):
            is_named = path.startswith(below) and matches(path.rpartition("/")[2])
            if is_named and request.contains in content[:65536]:
                home = self.home.removesuffix(b"/")
                told = self.info(b"%b/%b" % (home, os.fsencode(path)), self.size(path, len(content)))
                await exchange.send(file_pb2.FindResponse(file=told))
        for planted in self.planted(directory, request.pattern):
            await exchange.send(file_pb2.FindResponse(file=self.info(planted)))

    async def stat(self, exchange: Exchange) -> None:
        """Tell of a file."""
        request = file_pb2.StatRequest.FromString(await exchange.receive() or b"")
        content = self.files.get(self.below(request.path))
        if content is None:
            await self.refuse(exchange, WorkspaceError("not_found", "there is none"))
        await exchange.send(file_pb2.StatResponse(file=self.info(request.path, len(content or b""))))

    async def read(self, exchange: Exchange) -> None:
        """Send a file."""
        await self.answer_read(exchange, file_pb2.ReadRequest.FromString(await exchange.receive() or b""))

    async def answer_read(self, exchange: Exchange, request: file_pb2.ReadRequest) -> None:
        """Send a file that was asked for."""
        content = self.files.get(self.below(request.path))
        if content is None:
            await self.refuse(exchange, WorkspaceError("not_found", "there is none"))
            return
        held, at = b"", 0
        for size in request.prefix_sizes or (request.offset,):
            held += hashlib.sha256(content[at : at + size]).digest()
            at += size
        if request.prefix_sha256 not in (b"", held) or at > len(content):
            await self.refuse(exchange, SessionError("digest_mismatch", "it begins otherwise"))
            return
        data = content[request.offset :][: request.max_bytes or None]
        digest: Any = PartDigest(request.part_bytes) if request.part_bytes else hashlib.sha256()
        digest.update(data)
        header = file_pb2.ReadHeader(file=self.info(request.path, len(content)))
        await exchange.send(file_pb2.ReadResponse(header=header))
        for start in range(0, len(data), CHUNK_BYTES):
            chunk = payload_pb2.Chunk(offset=start, data=data[start : start + CHUNK_BYTES])
            await exchange.send(file_pb2.ReadResponse(chunk=chunk))
        trailer = payload_pb2.Trailer(size=len(data), sha256=digest.digest())
        await exchange.send(file_pb2.ReadResponse(trailer=trailer))

    async def resolve_home(self, exchange: Exchange) -> None:
        """Name the home."""
        await exchange.send(daemon_pb2.ResolveHomeResponse(home=self.home, exists=True))

    async def find_holders(self, exchange: Exchange) -> None:
        """Name nobody."""
        await exchange.send(transcript_pb2.FindHoldersResponse())

    async def refuse(self, exchange: Exchange, error: Exception) -> None:
        """End the call with an error."""
        await exchange.fail(grpc.StatusCode.FAILED_PRECONDITION, pack_status(error))  # type: ignore[arg-type]


@asynccontextmanager
async def lying_home(lies: LyingHome) -> AsyncIterator[Sandbox]:
    """Serve it and connect to it."""
    scripts: dict[str, Script] = {
        "FileService_Find": lies.find,
        "FileService_Stat": lies.stat,
        "FileService_Read": lies.read,
        "DaemonService_ResolveHome": lies.resolve_home,
        "TranscriptService_FindHolders": lies.find_holders,
    }
    async with fake_daemon(**(scripts | lies.scripts)) as target, connect(target) as sandbox:
        yield sandbox
