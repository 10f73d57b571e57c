"""A daemon that lies about followed files: what came before the lie is told, nothing of it, and no call is left."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from host_client.errors import LimitError
from host_client.sandbox.follow import FollowBeat, FollowBegin, FollowData, FollowMark, FollowPattern
from host_client.sandbox.sandbox import Sandbox, connect
from sandbox_api.v1 import transcript_pb2
from sandbox_api.wire import pack_status
from support.fake_daemon import Exchange, fake_daemon
from support.followed import BEAT, begin, data
from support.lie import HANG_SECONDS, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from host_client.sandbox.follow import FollowPart

    Script = Callable[[Exchange], Awaitable[None]]

pytestmark = pytest.mark.anyio

HOME = PurePosixPath("/home/agent/.claude")
SHA256 = bytes(32)


def following(sandbox: Sandbox) -> AsyncGenerator[FollowPart, None]:
    """Follow the files of these tests."""
    pattern = FollowPattern(PurePosixPath("projects/p"), "*.jsonl", whole_lines=True)
    return sandbox.transcripts.follow(HOME, held=[], patterns=[pattern])


async def follow(script: Script, *, stall_seconds: float = 60.0) -> tuple[list[Any], str]:
    """Follow until the call ends and return what was told and how it ended."""
    parts: list[Any] = []
    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(TranscriptService_Follow=script) as target,
        connect(target, stall_seconds=stall_seconds) as sandbox,
    ):

        async def collect() -> None:
            async with aclosing(following(sandbox)) as told:
                async for part in told:
                    parts.append(part)  # noqa: PERF401 - what came before the failure counts

        return parts, await refusal(collect())


def telling(*messages: transcript_pb2.FollowResponse | bytes) -> Script:
    """Return a script that sends these messages and ends the call."""

    async def script(exchange: Exchange) -> None:
        await exchange.receive()
        await exchange.send(*messages)

    return script


TOLD = [FollowBegin(1, PurePosixPath("projects/p/S1.jsonl"), 0), FollowData(1, 0, b"a\n"), FollowMark(1, 2, SHA256)]


async def test_follow_that_ends_is_a_broken_connection() -> None:
    """What came is told; an end with OK is none that was asked for."""
    script = telling(begin(1), BEAT, data(1, 0, b"a\n", SHA256), BEAT)
    assert await follow(script) == ([TOLD[0], FollowBeat(), *TOLD[1:], FollowBeat()], "unavailable/unreachable")


FOLLOWS: dict[str, transcript_pb2.FollowResponse | bytes] = {
    "garbage": b"\xff\xff",
    "nothing": transcript_pb2.FollowResponse(),
    "data of another file": data(2, 0, b"b\n"),
    "data of an old offset": data(1, 0, b"a\n"),
    "data with a broken mark": data(1, 2, b"b\n", b"x"),
    "data that ends in a line": data(1, 2, b"b", SHA256),
    "number again": begin(1),
    "file that was not asked for": begin(2, path=b"q/S1.jsonl"),
    "file outside": begin(2, path=b"p/../../S1.jsonl"),
    "held content that is not held": begin(2, offset=2),
}


@pytest.mark.parametrize("case", FOLLOWS)
async def test_lie_in_a_follow_ends_it(case: str) -> None:
    """What came before a lie is told, and nothing of the message that lies, not even data before its broken mark."""
    script = telling(begin(1), data(1, 0, b"a\n", SHA256), FOLLOWS[case], data(1, 2, b"b\n"))
    assert await follow(script) == (TOLD, "session/protocol")


async def test_silent_follow_ends_and_beats_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon is given the time between two beats beside the stall limit; one that falls silent is left."""
    monkeypatch.setattr("host_client.sandbox.transcript.BEAT_SECONDS", 2.0)

    async def script(exchange: Exchange) -> None:
        for _ in range(2):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.4):
                    await exchange.stall()
            await exchange.send(BEAT)
        await exchange.send(begin(1))
        await exchange.stall()

    assert await follow(script, stall_seconds=0.2) == ([FollowBeat(), FollowBeat(), TOLD[0]], "timeout/deadline")


async def test_error_in_a_follow_is_the_daemons_own() -> None:
    """What a daemon reports after some data is raised as it reported it."""

    async def script(exchange: Exchange) -> None:
        await exchange.receive()
        await exchange.send(begin(1))
        error = LimitError("max_files", "more than 7 files")
        await exchange.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, pack_status(error))

    assert await follow(script) == (TOLD[:1], "limit/max_files")


@pytest.mark.parametrize("how", ["close", "cancel", "break"])
async def test_follow_that_is_left_ends_the_call(how: str) -> None:
    """Closing the iterator, leaving it in the middle and cancelling its task all cancel the call."""
    is_cancelled = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.receive()
        try:
            await exchange.send(begin(1))  # the client may be gone before this returns
            await exchange.stall()
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(TranscriptService_Follow=script) as target,
        connect(target) as sandbox,
    ):
        first = asyncio.Event()

        async def collect() -> None:
            async with aclosing(following(sandbox)) as told:
                async for _ in told:
                    first.set()
                    if how == "break":
                        break
                    if how == "close":
                        await told.aclose()

        task = asyncio.create_task(collect())
        await first.wait()
        if how == "cancel":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await task
        await is_cancelled.wait()
