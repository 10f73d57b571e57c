"""A daemon that lies about files: nothing is written outside the place or left half written."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from host_client.sandbox.sandbox import connect
from sandbox_api.limits import CHUNK_BYTES, Limits
from sandbox_api.v1 import file_pb2, payload_pb2
from support.fake_daemon import Exchange, fake_daemon
from support.lie import HANG_SECONDS, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

pytestmark = pytest.mark.anyio

TOP = PurePosixPath("/home/agent/tree")
CONTENT = b"content"


def info(path: str = "/home/agent/tree", **fields: Any) -> file_pb2.FileInfo:
    """Return what a daemon tells of a file."""
    proper = {"path": path.encode(), "kind": file_pb2.FileInfo.KIND_FILE, "size": len(CONTENT), "mode": 0o600}
    return file_pb2.FileInfo(**{**proper, **fields})


def chunk(data: bytes, offset: int = 0) -> file_pb2.ReadResponse:
    """Return a part of a file."""
    return file_pb2.ReadResponse(chunk=payload_pb2.Chunk(offset=offset, data=data))


def trailer(data: bytes = CONTENT, **fields: Any) -> file_pb2.ReadResponse:
    """Return the end of a file."""
    proper = {"size": len(data), "sha256": hashlib.sha256(data).digest()}
    return file_pb2.ReadResponse(trailer=payload_pb2.Trailer(**{**proper, **fields}))


HEADER = file_pb2.ReadResponse(header=file_pb2.ReadHeader(file=info()))


def names(host_path: Path) -> list[str]:
    """Return what is in a directory."""
    return [path.name for path in host_path.iterdir()]


def telling(*answers: Any) -> Callable[[Exchange], Awaitable[None]]:
    """Return a script that sends these answers."""

    async def script(exchange: Exchange) -> None:
        await exchange.receive()
        await exchange.send(*answers)

    return script


async def download(
    host_path: Path,
    read: Callable[[Exchange], Awaitable[None]],
    found: Sequence[file_pb2.FileInfo] | None = None,
    **options: Any,
) -> None:
    """Download from a daemon that acts by the scripts; a directory when it finds something."""
    kind = file_pb2.FileInfo.KIND_FILE if found is None else file_pb2.FileInfo.KIND_DIRECTORY
    scripts = {
        "FileService_Stat": telling(file_pb2.StatResponse(file=info(kind=kind))),
        "FileService_Find": telling(*(file_pb2.FindResponse(file=file) for file in found or ())),
        "FileService_Read": read,
    }
    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(**scripts) as target,
        connect(target, stall_seconds=0.5) as sandbox,
    ):
        await sandbox.download(TOP, host_path, **options)


async def test_honest_file_is_taken(tmp_path: Path) -> None:
    """The fake daemon of these tests is believed when it does not lie."""
    await download(tmp_path / "file", telling(HEADER, chunk(CONTENT), trailer()))
    assert (tmp_path / "file").read_bytes() == CONTENT


READS: dict[str, tuple[tuple[Any, ...], str]] = {
    "nothing": ((), "session/protocol"),
    "no header": ((chunk(CONTENT), trailer()), "session/protocol"),
    "no trailer": ((HEADER, chunk(CONTENT)), "session/incomplete"),
    "cut": ((HEADER, chunk(CONTENT[:3]), trailer(CONTENT[:3])), "session/incomplete"),
    "other bytes": ((HEADER, chunk(CONTENT[::-1]), trailer()), "session/digest_mismatch"),
    "other size in the trailer": ((HEADER, chunk(CONTENT), trailer(size=1)), "session/incomplete"),
    "wrong offset": ((HEADER, chunk(CONTENT, 1), trailer()), "session/protocol"),
    "empty chunk": ((HEADER, chunk(b""), trailer()), "session/protocol"),
    "more than told": ((HEADER, chunk(CONTENT * 2), trailer(CONTENT * 2)), "limit/max_bytes"),
    "second header": ((HEADER, HEADER, chunk(CONTENT), trailer()), "session/protocol"),
    "chunk after the trailer": ((HEADER, chunk(CONTENT), trailer(), chunk(CONTENT, 7)), "session/protocol"),
    "garbage": ((HEADER, b"\xff\xff"), "session/protocol"),
    "size like -1": (
        (file_pb2.ReadResponse(header=file_pb2.ReadHeader(file=info(size=(1 << 64) - 1))),),
        "limit/max_bytes",
    ),
    "time that cannot be": (
        (file_pb2.ReadResponse(header=file_pb2.ReadHeader(file=info(modified={"seconds": 1 << 60}))),),
        "session/protocol",
    ),
}


@pytest.mark.parametrize("case", READS)
async def test_broken_file_leaves_the_old_one(case: str, tmp_path: Path) -> None:
    """Each way to break a file's stream has its reason; the old file stays and no scratch file is left."""
    answers, reason = READS[case]
    (tmp_path / "file").write_text("old")
    assert await refusal(download(tmp_path / "file", telling(*answers))) == reason
    assert (tmp_path / "file").read_text() == "old"
    assert len(names(tmp_path)) == 1


async def test_endless_file_is_cut(tmp_path: Path) -> None:
    """A file that does not end is refused at the size its header told."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(HEADER)
        offset = 0
        while True:
            await exchange.send(chunk(bytes(CHUNK_BYTES), offset))
            offset += CHUNK_BYTES

    assert await refusal(download(tmp_path / "file", script)) == "limit/max_bytes"
    assert names(tmp_path) == []


async def test_silent_file_ends_by_the_stall_limit(tmp_path: Path) -> None:
    """A daemon that stops in the middle of a file cannot hang a download."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(HEADER, chunk(CONTENT[:2]))
        await exchange.stall()

    assert await refusal(download(tmp_path / "file", script)) == "timeout/deadline"
    assert names(tmp_path) == []


FOUND: dict[str, tuple[tuple[str, ...], str]] = {
    "outside": (("/home/agent/other",), "session/protocol"),
    "sibling with the same beginning": (("/home/agent/tree2",), "session/protocol"),
    "parent step": (("/home/agent/tree/../x",), "session/protocol"),
    "relative": (("x",), "session/protocol"),
    "the directory itself": (("/home/agent/tree",), "session/protocol"),
    "duplicate": (("/home/agent/tree/a", "/home/agent/tree/a"), "session/protocol"),
    "file and directory": (("/home/agent/tree/a", "/home/agent/tree/a/b"), "session/protocol"),
    "NUL": (("/home/agent/tree/a\0b",), "session/protocol"),
}


@pytest.mark.parametrize("case", FOUND)
async def test_found_paths_stay_below_the_directory(case: str, tmp_path: Path) -> None:
    """No path a daemon names makes a download write elsewhere, or begin to write at all."""
    paths, reason = FOUND[case]
    whole = telling(HEADER, chunk(CONTENT), trailer())
    assert await refusal(download(tmp_path / "tree", whole, [info(path) for path in paths])) == reason
    assert names(tmp_path) == []


async def test_limits_of_a_directory_hold(tmp_path: Path) -> None:
    """More files, or more bytes in all, than the limits allow are refused before any is read."""
    found = [info(f"/home/agent/tree/{number}") for number in range(5)]
    whole = telling(HEADER, chunk(CONTENT), trailer())
    for limits, reason in ((Limits(max_files=4), "limit/max_files"), (Limits(max_bytes=34), "limit/max_bytes")):
        assert await refusal(download(tmp_path / "tree", whole, found, limits=limits)) == reason
    assert names(tmp_path) == []
    await download(tmp_path / "tree", whole, found, limits=Limits(max_files=5, max_bytes=35))
    assert len(names(tmp_path / "tree")) == 5
