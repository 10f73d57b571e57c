"""A daemon that lies to a store that follows a transcript: the host's copy stays a beginning of what was captured."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents import claude
from host_client.errors import OutpostError
from host_client.stores.transcript import TranscriptConversations
from support.followed import begin, data, mark
from support.hostile_host import ID, KEY, LINE, MAIN, OTHER, Host, claude_home, tree
from support.lie import HANG_SECONDS
from support.lying_home import lying_home

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sandbox_api.v1 import transcript_pb2
    from support.fake_daemon import Exchange
    from support.lying_home import LyingHome

pytestmark = pytest.mark.anyio

MIB = 1 << 20
SIZE = len(LINE * 3)
SHA256 = hashlib.sha256(LINE).digest()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Give the host."""
    return Host(tmp_path)


def main(number: int = 1, offset: int = SIZE) -> transcript_pb2.FollowResponse:
    """Return the beginning of the main transcript."""
    return begin(number, MAIN.encode(), offset)


async def follow(host: Host, lies: LyingHome, *, updates_count: int) -> list[Any]:
    """Follow until so many updates were told; return the updates, or in place of the last one its failure."""
    told: list[Any] = []
    async with asyncio.timeout(HANG_SECONDS), lying_home(lies) as sandbox:
        updates = TranscriptConversations(claude.LAYOUT).follow(
            ID, host.context(sandbox), interval_seconds=0.01, patience_seconds=0.1
        )
        async with aclosing(updates):
            try:
                while len(told) < updates_count:
                    told.append(await anext(updates))
            except OutpostError as error:
                told.append(f"{error.code}/{error.reason}")
    return told


def telling(lies: LyingHome, *messages: transcript_pb2.FollowResponse | bytes) -> LyingHome:
    """Let every call tell this and then nothing."""

    async def script(exchange: Exchange) -> None:
        await exchange.receive()
        await exchange.send(*messages)
        await exchange.stall()

    lies.scripts = {"TranscriptService_Follow": script}
    return lies


LIES: dict[str, Sequence[transcript_pb2.FollowResponse | bytes]] = {
    "data before its begin": [data(1, 0, LINE)],
    "an unknown number": [main(), data(7, SIZE, LINE)],
    "a gap": [main(), data(1, SIZE + 1, LINE, SHA256)],
    "what was there already": [main(), data(1, 0, LINE, SHA256)],
    "an offset that is not held": [main(offset=SIZE - 1)],
    "a mark elsewhere": [main(), data(1, SIZE, LINE), mark(1, SIZE, SHA256)],
    "half a line": [main(), data(1, SIZE, LINE[:-1], SHA256)],
    "a file of another conversation": [begin(1, f"{KEY}/{OTHER}.jsonl".encode())],
    "a file that was not asked for": [begin(1, b".credentials.json")],
    "a step up": [begin(1, f"{KEY}/../{KEY}/{ID}.jsonl".encode())],
    "an absolute path": [begin(1, b"/etc/passwd")],
    "a git directory": [begin(1, f"{KEY}/{ID}/subagents/.git/a.jsonl".encode())],
    "not UTF-8": [begin(1, f"{KEY}/{ID}/subagents/".encode() + b"\xff.jsonl")],
    "no message": [b"\xff\xff"],
}


@pytest.mark.parametrize("case", LIES)
async def test_lie_ends_the_follow(host: Host, case: str) -> None:
    """Nothing of what is told is on the host, and the failure is the daemon's broken word."""
    assert len(await follow(host, telling(claude_home()), updates_count=1)) == 1
    before = tree(host.root)
    _, error = await follow(host, telling(claude_home(), *LIES[case]), updates_count=2)
    assert error == "session/protocol"
    assert tree(host.root) == before


async def test_mark_that_lies_adds_nothing(host: Host) -> None:
    """Lines whose digest is another are left to a capture, which takes what the sandbox has."""
    lies = telling(claude_home(), main(), data(1, SIZE, LINE, bytes(32)), main(2, 0))
    calls: list[int] = []
    script = lies.scripts["TranscriptService_Follow"]
    called_again = asyncio.Event()

    async def counting(exchange: Exchange) -> None:
        calls.append(1)
        if len(calls) > 1:
            called_again.set()
            await exchange.stall()
        await script(exchange)

    lies.scripts = {"TranscriptService_Follow": counting}
    following = asyncio.ensure_future(follow(host, lies, updates_count=2))
    async with asyncio.timeout(HANG_SECONDS):
        await called_again.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert (host.home / host.key / f"{ID}.jsonl").read_bytes().count(b"\n") == 3


async def test_files_that_are_never_marked_are_bounded_together(host: Host) -> None:
    """However many files wait for their marks, they take no more memory than one may; a capture takes over."""
    children = [f"{KEY}/{ID}/subagents/agent-{number:02}.jsonl" for number in range(20)]
    lies = claude_home(**dict.fromkeys(children, LINE))
    called_again = asyncio.Event()
    calls: list[int] = []

    async def script(exchange: Exchange) -> None:
        await exchange.receive()
        calls.append(1)
        if len(calls) > 1:
            called_again.set()
            await exchange.stall()
        for number, child in enumerate(children, 1):
            await exchange.send(
                begin(number, child.encode(), len(LINE)), data(number, len(LINE), LINE * (MIB // len(LINE)))
            )
        await exchange.stall()

    lies.scripts = {"TranscriptService_Follow": script}
    following = asyncio.ensure_future(follow(host, lies, updates_count=2))
    async with asyncio.timeout(HANG_SECONDS):
        await called_again.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_file_that_begins_again_and_again_takes_no_memory(host: Host) -> None:
    """What came under an older number is forgotten."""
    child = f"{KEY}/{ID}/subagents/agent-a.jsonl"
    count, piece = 60, LINE * (MIB // len(LINE))
    lies = claude_home(**{child: b""})

    async def script(exchange: Exchange) -> None:
        await exchange.receive()
        for number in range(1, count):
            await exchange.send(begin(number, child.encode()), data(number, 0, piece))
        await exchange.send(main(count), data(count, SIZE, LINE, SHA256))
        await exchange.stall()

    lies.scripts = {"TranscriptService_Follow": script}
    tracemalloc.start()
    try:
        _, update = await follow(host, lies, updates_count=2)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (update.record, update.lines_count) == (None, 1)
    assert peak_bytes < count // 2 * MIB
