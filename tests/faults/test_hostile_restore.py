"""A daemon that breaks the exchange of a restore: no success without a commit, its own error heard, never a hang."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from host_client.errors import SessionError
from host_client.sandbox.sandbox import connect
from sandbox_api.limits import Limits
from sandbox_api.manifest import bundle_digest
from sandbox_api.v1 import bundle_pb2
from sandbox_api.wire import pack_manifest, pack_status
from support.bundle_end import MemorySource, entries_of
from support.fake_daemon import Exchange, fake_daemon
from support.lie import CONTENTS, HANG_SECONDS, PLACE, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from host_client.sandbox.place import Restored

pytestmark = pytest.mark.anyio


async def restore(
    script: Callable[[Exchange], Awaitable[None]], source: MemorySource | None = None, **options: Any
) -> Restored:
    """Restore to a daemon that acts by the script."""
    stall_seconds = options.pop("stall_seconds", 60.0)
    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(BundleService_Restore=script) as target,
        connect(target, stall_seconds=stall_seconds) as sandbox,
    ):
        return await sandbox.bundles.restore(PLACE, source or MemorySource(CONTENTS), **options)


def need(lacking: bytes) -> bundle_pb2.RestoreResponse:
    """Return the daemon's need."""
    return bundle_pb2.RestoreResponse(need=bundle_pb2.RestoreNeed(lacking=lacking))


def result(**fields: Any) -> bundle_pb2.RestoreResponse:
    """Return the daemon's result."""
    proper: dict[str, Any] = {"target": b"/home/agent/.plain/sessions/S1", "digest": bytes(32), "files_count": 3}
    return bundle_pb2.RestoreResponse(result=bundle_pb2.RestoreResult(**{**proper, **fields}))


async def received(exchange: Exchange, last: str) -> list[bundle_pb2.RestoreRequest]:
    """Return the client's messages up to one of that kind (the manifest of these tests is one chunk)."""
    messages = []
    while (data := await exchange.receive()) is not None:
        messages.append(bundle_pb2.RestoreRequest.FromString(data))
        if messages[-1].WhichOneof("part") == last:
            break
    return messages


def talk(*answers: bundle_pb2.RestoreResponse) -> Callable[[Exchange], Awaitable[None]]:
    """Return a script that answers the manifest with the first answer and the trailer with the rest."""

    async def script(exchange: Exchange) -> None:
        await received(exchange, "chunk")
        await exchange.send(*answers[:1])
        if answers:
            await received(exchange, "trailer")
            await exchange.send(*answers[1:])

    return script


async def test_honest_restore_sends_what_is_lacking() -> None:
    """Only the content of lacking files is sent, in order, and the result is the daemon's."""
    sent: list[bundle_pb2.RestoreRequest] = []

    async def script(exchange: Exchange) -> None:
        sent.extend(await received(exchange, "chunk"))
        await exchange.send(need(b"\x05"))
        sent.extend(await received(exchange, "trailer"))
        await exchange.send(result(recovery="S1-old"))

    restored = await restore(script)
    manifest = pack_manifest(entries_of(CONTENTS))
    assert b"".join(message.chunk.data for message in sent) == manifest + CONTENTS[b"a"] + CONTENTS[b"empty"]
    assert sent[-1].trailer.size == restored.sent_bytes == len(manifest) + 5
    assert sent[-1].trailer.sha256 == bundle_digest(entries_of(CONTENTS))
    assert (restored.recovery, restored.files_count) == ("S1-old", 3)


RESTORES: dict[str, tuple[tuple[bundle_pb2.RestoreResponse, ...], str]] = {
    "nothing": ((), "unavailable/unreachable"),
    "need only": ((need(b"\x07"),), "unavailable/unreachable"),
    "result before need": ((result(), result()), "session/protocol"),
    "second need": ((need(b"\x07"), need(b"\x07")), "session/protocol"),
    "two results": ((need(b"\x07"), result(), result()), "session/protocol"),
    "need of no bytes": ((need(b""),), "session/protocol"),
    "need of too many bytes": ((need(b"\x07\x00"),), "session/protocol"),
    "need beyond the last file": ((need(b"\x0f"),), "session/protocol"),
    "relative target": ((need(b"\x07"), result(target=b"x")), "session/protocol"),
    "result without digest": ((need(b"\x07"), result(digest=b"")), "session/protocol"),
    "recovery with a slash": ((need(b"\x07"), result(recovery="../x")), "session/protocol"),
    "recovery that is huge": ((need(b"\x07"), result(recovery="x" * 100_000)), "session/protocol"),
}


@pytest.mark.parametrize("case", RESTORES)
async def test_restore_that_was_not_committed_is_no_success(case: str) -> None:
    """A restore succeeds by one proper result after the trailer and in no other way."""
    answers, reason = RESTORES[case]
    assert await refusal(restore(talk(*answers))) == reason


@pytest.mark.parametrize("silent_after", ["header", "chunk", "trailer"])
async def test_silence_in_a_restore_ends_by_the_stall_limit(silent_after: str) -> None:
    """A daemon that stops answering cannot hang a restore."""

    async def script(exchange: Exchange) -> None:
        await received(exchange, "chunk" if silent_after == "trailer" else silent_after)
        if silent_after == "trailer":
            await exchange.send(need(b"\x07"))
            await received(exchange, "trailer")
        await exchange.stall()

    assert await refusal(restore(script, stall_seconds=0.2)) == "timeout/deadline"


async def test_large_commit_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that has a lot to force to disk may be silent for longer than the stall limit before its result."""
    monkeypatch.setattr("host_client.sandbox.restore.MIN_COMMIT_BYTES_PER_SECOND", 1)

    async def script(exchange: Exchange) -> None:
        await received(exchange, "chunk")
        await exchange.send(need(b"\x07"))
        await received(exchange, "trailer")
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await exchange.stall()
        await exchange.send(result())

    assert (await restore(script, stall_seconds=0.25)).files_count == 3


async def test_daemon_that_stops_reading_ends_by_the_stall_limit() -> None:
    """Contents that nobody takes fill the connection; the write gives up."""

    async def script(exchange: Exchange) -> None:
        await received(exchange, "chunk")
        await exchange.send(need(b"\x01"))
        await exchange.stall()

    source = MemorySource({b"a": bytes(48 << 20)})
    assert await refusal(restore(script, source, stall_seconds=0.5)) == "timeout/deadline"


@pytest.mark.parametrize("attempt", range(20))
async def test_error_while_writing_is_the_daemons_own(attempt: int) -> None:
    """A daemon that refuses while contents are still being sent is heard, whatever the write runs into."""

    async def script(exchange: Exchange) -> None:
        await received(exchange, "chunk")
        await exchange.send(need(b"\x01"))
        for _ in range(attempt % 5):
            await exchange.receive()
        await exchange.fail(grpc.StatusCode.DATA_LOSS, pack_status(SessionError("digest_mismatch", "a is not a")))

    source = MemorySource({b"a": bytes(20 << 20)})
    assert await refusal(restore(script, source)) == "session/digest_mismatch"


async def test_ok_while_writing_is_no_success() -> None:
    """A daemon that ends the call with OK before the trailer came has restored nothing."""

    async def script(exchange: Exchange) -> None:
        await received(exchange, "chunk")
        await exchange.send(need(b"\x01"))

    source = MemorySource({b"a": bytes(20 << 20)})
    assert await refusal(restore(script, source)) == "unavailable/unreachable"


@pytest.mark.parametrize("content", [b"too short", b"too long" * 1000])
async def test_source_that_changed_is_refused_before_its_trailer(content: bytes) -> None:
    """A host file that is not what its manifest says makes the restore fail here, and the daemon sees no trailer."""
    saw: list[str | None] = []

    async def script(exchange: Exchange) -> None:
        await received(exchange, "chunk")
        await exchange.send(need(b"\x01"))
        saw.extend(message.WhichOneof("part") for message in await received(exchange, "trailer"))

    source = MemorySource({b"a": content}, promised={b"a": b"0123456789"})
    assert await refusal(restore(script, source)) == "session/corrupt"
    assert "trailer" not in saw


async def test_restore_over_the_limits_is_refused_before_it_is_sent() -> None:
    """The client's own limit holds without asking the daemon."""

    async def script(_: Exchange) -> None:
        pytest.fail("the daemon was asked")

    assert await refusal(restore(script, limits=Limits(max_bytes=10))) == "limit/max_bytes"
