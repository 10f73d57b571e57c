"""A daemon that lies, breaks the stream or falls silent: refused by reason, the sink aborted, and never a hang."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from host_client.errors import SessionError
from host_client.sandbox.sandbox import connect
from sandbox_api.limits import CHUNK_BYTES
from sandbox_api.manifest import Entry, bundle_digest
from sandbox_api.v1 import bundle_pb2, payload_pb2
from sandbox_api.wire import pack_status
from support.bundle_end import PROFILE, MemorySink, entries_of
from support.fake_daemon import Exchange, fake_daemon
from support.lie import CONTENTS, HANG_SECONDS, PLACE, Lie, chunks, honest, named, refusal, told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from host_client.sandbox.place import Captured

pytestmark = pytest.mark.anyio


async def capture(messages: Sequence[Any], sink: MemorySink, **options: Any) -> Captured:
    """Capture from a daemon that sends these messages and ends with OK."""

    async def script(exchange: Exchange) -> None:
        await exchange.receive()
        await exchange.send(*messages)

    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(BundleService_Capture=script) as target,
        connect(target) as sandbox,
    ):
        return await sandbox.bundles.capture(PLACE, sink, **options)


async def test_honest_stream_is_taken() -> None:
    """The fake daemon of these tests is believed when it does not lie, so that each refusal below has one cause."""
    sink = MemorySink()
    captured = await capture(honest().messages(), sink)
    assert sink.contents == CONTENTS
    assert "abort" not in sink.calls
    assert captured.entries == tuple(entries_of(CONTENTS))
    assert captured.digest == bundle_digest(entries_of(CONTENTS))
    assert captured.received_bytes == len(honest().payload)


BAD_PATHS = {
    "parent": ((b"../x",), "session/unsafe_name"),
    "absolute": ((b"/x",), "session/unsafe_name"),
    "parent within": ((b"a/../../x",), "session/unsafe_name"),
    "dot": ((b"./a",), "session/unsafe_name"),
    "git": ((b"a/.GIT/config",), "session/unsafe_name"),
    "not UTF-8": ((b"a\xff",), "session/unsafe_name"),
    "empty": ((b"",), "session/unsafe_name"),
    "too long": ((b"a/" * 3000 + b"b",), "session/unsafe_name"),
    "file and directory": ((b"a", b"a/b"), "session/protocol"),
    "duplicate": ((b"a", b"a"), "session/protocol"),
    "wrong order": ((b"b", b"a"), "session/protocol"),
}


@pytest.mark.parametrize("case", BAD_PATHS)
async def test_paths_that_leave_or_collide_are_refused(case: str) -> None:
    """No path of a manifest that could be written elsewhere, or twice, reaches the sink."""
    paths, reason = BAD_PATHS[case]
    sink = MemorySink()
    assert await refusal(capture(named(*paths).messages(), sink)) == reason
    assert sink.calls == ["abort"]


def _changed(**changes: Callable[[Lie], Any]) -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        lie = honest()
        for name, change in changes.items():
            setattr(lie, name, change(lie))
        return lie.messages()

    return make


def _header(**fields: int | bytes) -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        lie = honest()
        for name, value in fields.items():
            setattr(lie.header, name, value)
        return lie.messages()

    return make


def _trailer(**fields: Any) -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        lie = honest()
        for name, value in fields.items():
            setattr(lie.trailer.payload, name, value)
        return lie.messages()

    return make


def _flip(data: bytes, at: int) -> bytes:
    flipped = bytearray(data)
    flipped[at] ^= 1
    return bytes(flipped)


def _offset(offset: int) -> list[Any]:
    messages = honest().messages()
    messages[1].chunk.offset = offset
    return messages


def _million() -> list[Any]:
    manifest = b"".join(b"\x0a\x08\x0a\x04%04x\x10\x01" % (number % 65536) for number in range(1_000_000))
    header = honest().header
    header.manifest_bytes, header.payload_bytes = len(manifest), len(manifest) + 1
    return [bundle_pb2.CaptureResponse(header=header), *chunks(manifest)]


LIES: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "nothing": (list, "session/incomplete"),
    "no header": (lambda: honest().messages()[1:], "session/protocol"),
    "two headers": (lambda: honest().messages()[:1] * 2, "session/protocol"),
    "no trailer": (lambda: honest().messages()[:-1], "session/incomplete"),
    "header only": (lambda: honest().messages()[:1], "session/incomplete"),
    "trailer at once": (lambda: [honest().messages()[0], honest().messages()[-1]], "session/incomplete"),
    "cut content": (_changed(payload=lambda lie: lie.payload[:-40]), "session/incomplete"),
    "chunk after trailer": (lambda: [*honest().messages(), honest().messages()[1]], "session/protocol"),
    "two trailers": (lambda: [*honest().messages(), honest().messages()[-1]], "session/protocol"),
    "empty message": (lambda: [bundle_pb2.CaptureResponse()], "session/protocol"),
    "garbage": (lambda: [b"\xff" * 99], "session/protocol"),
    "wrong offset": (lambda: _offset(1), "session/protocol"),
    "huge offset": (lambda: _offset((1 << 64) - 1), "session/protocol"),
    "empty chunk": (
        lambda: [honest().messages()[0], bundle_pb2.CaptureResponse(chunk=payload_pb2.Chunk())],
        "session/protocol",
    ),
    "long chunk": (
        lambda: [
            honest().messages()[0],
            bundle_pb2.CaptureResponse(chunk=payload_pb2.Chunk(data=bytes(CHUNK_BYTES + 1))),
        ],
        "session/protocol",
    ),
    "message over the limit": (
        lambda: [bundle_pb2.CaptureResponse(chunk=payload_pb2.Chunk(data=bytes(5 << 20)))],
        "session/protocol",
    ),
    "flipped content": (_changed(payload=lambda lie: _flip(lie.payload, -60)), "session/digest_mismatch"),
    "flipped digest": (_changed(payload=lambda lie: _flip(lie.payload, -1)), "session/digest_mismatch"),
    "flipped bundle digest": (_trailer(sha256=bytes(32)), "session/digest_mismatch"),
    "no bundle digest": (_trailer(sha256=b""), "session/digest_mismatch"),
    "trailer of another size": (_trailer(size=1), "session/incomplete"),
    "more than announced": (_changed(payload=lambda lie: lie.payload + b"more"), "limit/max_bytes"),
    "payload like -1": (_header(payload_bytes=(1 << 64) - 1), "session/protocol"),
    "payload smaller than manifest": (_header(payload_bytes=1), "session/protocol"),
    "bytes like -1": (_header(bytes_count=(1 << 64) - 1), "limit/max_bytes"),
    "files like -1": (_header(files_count=(1 << 64) - 1), "limit/max_files"),
    "million files announced": (_header(files_count=1_000_000), "limit/max_files"),
    "million files hidden": (_million, "limit/max_files"),
    "manifest like -1": (_header(manifest_bytes=(1 << 64) - 1), "limit/max_manifest_bytes"),
    "no manifest": (_header(manifest_bytes=0), "session/protocol"),
    "other number of files": (_header(files_count=2), "session/protocol"),
    "other number of bytes": (_header(bytes_count=6006), "session/protocol"),
    "no files": (lambda: told([], {}).messages(), "session/protocol"),
    "relative source": (_header(source=b"home/agent"), "session/protocol"),
    "source with parent": (_header(source=b"/home/../etc"), "session/protocol"),
    "huge source": (_header(source=b"/" + b"x" * 100_000), "session/protocol"),
    "manifest is garbage": (
        _changed(payload=lambda lie: b"\xff" * lie.header.manifest_bytes + lie.payload[lie.header.manifest_bytes :]),
        "session/protocol",
    ),
    "size like -1": (
        lambda: told([Entry(b"a", (1 << 64) - 1)], {b"a": b""}, bytes_count=1).messages(),
        "limit/max_bytes",
    ),
    "offset past the end": (lambda: told([Entry(b"a", 1, b"", 2)], {b"a": b"xyz"}).messages(), "session/protocol"),
    "digest of a wrong length": (
        lambda: told([Entry(b"a", 0, b"x"), Entry(b"b", 1)], {b"a": b"", b"b": b"x"}).messages(),
        "session/protocol",
    ),
    "unchanged though nothing is held": (
        lambda: told([Entry(b"a", 1, bytes(32), 1), Entry(b"b", 1)], {b"a": b"x", b"b": b"x"}).messages(),
        "session/protocol",
    ),
    "grown though nothing is held": (
        lambda: told([Entry(b"a", 2, b"", 1)], {b"a": b"xy"}).messages(),
        "session/protocol",
    ),
}


@pytest.mark.parametrize("case", LIES)
async def test_broken_streams_are_refused(case: str) -> None:
    """Each way to break a capture stream has its reason, and the sink ends with abort and nothing else."""
    make, reason = LIES[case]
    sink = MemorySink()
    assert await refusal(capture(make(), sink)) == reason
    assert sink.aborted
    assert not sink.contents


async def test_more_left_out_than_told_is_refused() -> None:
    """The list of what was left out cannot be longer than its count."""
    lie = honest()
    lie.trailer.left_out.add(path=b"x")
    assert await refusal(capture(lie.messages(), MemorySink())) == "session/protocol"


HELD = {b"a": b"held"}
NOT_HELD = {
    "another digest": Entry(b"a", 4, bytes(32), 4),
    "another size": Entry(b"a", 5, hashlib.sha256(b"held").digest(), 5),
    "unchanged and sent": Entry(b"a", 9, hashlib.sha256(b"held").digest(), 4),
    "grown from elsewhere": Entry(b"a", 9, b"", 3),
}


@pytest.mark.parametrize("case", NOT_HELD)
async def test_content_is_reused_only_when_it_was_named(case: str) -> None:
    """A daemon cannot make the host reuse content that is not what the host said it holds."""
    lie = told([NOT_HELD[case], Entry(b"b", 1)], {b"a": b"held+more", b"b": b"x"})
    sink = MemorySink(HELD)
    assert await refusal(capture(lie.messages(), sink, held=entries_of(HELD))) == "session/protocol"
    assert sink.aborted


async def test_held_content_is_completed() -> None:
    """Unchanged files are named, grown ones continue, and the result has whole entries."""
    held = {b"a": b"same", b"b": b"old"}
    now = {b"a": b"same", b"b": b"old and new"}
    same, grown = entries_of(now)
    sink = MemorySink(held)
    lie = told([same._replace(from_offset=4), grown._replace(sha256=b"", from_offset=3)], now)
    captured = await capture(lie.messages(), sink, held=entries_of(held))
    assert sink.contents == now
    assert captured.entries == (same, grown)
    assert b"same" not in lie.payload


async def test_endless_data_is_refused_at_its_announced_end() -> None:
    """A stream that never ends is cut as soon as it exceeds what its header said."""

    async def script(exchange: Exchange) -> None:
        lie = honest()
        await exchange.send(*lie.messages()[:-1])
        offset = len(lie.payload)
        while True:
            chunk = payload_pb2.Chunk(offset=offset, data=bytes(CHUNK_BYTES))
            await exchange.send(bundle_pb2.CaptureResponse(chunk=chunk))
            offset += CHUNK_BYTES

    sink = MemorySink()
    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(BundleService_Capture=script) as target,
        connect(target) as sandbox,
    ):
        assert await refusal(sandbox.bundles.capture(PLACE, sink)) == "limit/max_bytes"
    assert sink.aborted


@pytest.mark.parametrize("sent_count", [0, 1, 2, 3])
async def test_silence_ends_by_the_stall_limit(sent_count: int) -> None:
    """A daemon that stops sending, wherever, cannot hang a capture."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(*honest().messages()[:sent_count])
        await exchange.stall()

    sink = MemorySink()
    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(BundleService_Capture=script) as target,
        connect(target, stall_seconds=0.2) as sandbox,
    ):
        assert await refusal(sandbox.bundles.capture(PLACE, sink)) == "timeout/deadline"
    assert sink.aborted


async def test_failure_in_the_middle_is_the_daemons_own() -> None:
    """What the daemon reports after some chunks is what the caller sees, with everything it names."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(*honest().messages()[:2])
        failure = SessionError("changed", "b/c changed\x1b[2J while it was read", facts={"path": "b/c"})
        await exchange.fail(grpc.StatusCode.ABORTED, pack_status(failure))

    sink = MemorySink()
    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(BundleService_Capture=script) as target,
        connect(target) as sandbox,
    ):
        with pytest.raises(SessionError) as caught:
            await sandbox.bundles.capture(PLACE, sink)
    assert (caught.value.reason, caught.value.facts, caught.value.retryable) == ("changed", {"path": "b/c"}, True)
    assert "\x1b" not in str(caught.value)
    assert sink.aborted


@pytest.mark.parametrize(
    ("code", "details", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, None, "unavailable/unreachable"),
        (grpc.StatusCode.CANCELLED, None, "unavailable/cancelled"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, None, "timeout/deadline"),
        (grpc.StatusCode.UNIMPLEMENTED, None, "unavailable/unsupported"),
        (grpc.StatusCode.INTERNAL, b"\xff\x00garbage", "unavailable/internal"),
        (grpc.StatusCode.NOT_FOUND, b"", "unavailable/internal"),
        (grpc.StatusCode.INTERNAL, b"\x08\x0d\x12" + b"\xff" * 3000, "unavailable/internal"),
        (grpc.StatusCode.INTERNAL, b"x" * 500_000, "session/protocol"),
    ],
)
async def test_status_without_usable_details(code: grpc.StatusCode, details: bytes | None, reason: str) -> None:
    """A bare, garbled or huge status becomes a row of the table and no text of gRPC."""

    async def script(exchange: Exchange) -> None:
        await exchange.fail(code, details)

    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(BundleService_Capture=script) as target,
        connect(target) as sandbox,
    ):
        assert await refusal(sandbox.bundles.capture(PLACE, MemorySink())) == reason


async def test_endless_list_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that does not end is cut."""
    monkeypatch.setattr("host_client.sandbox.reply.MAX_LISTED_COUNT", 100)

    async def script(exchange: Exchange) -> None:
        while True:
            await exchange.send(bundle_pb2.ListResponse(id="S1", path=b"/x"))

    async def listed() -> int:
        return len([item async for item in sandbox.bundles.list(PROFILE)])

    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(BundleService_List=script) as target,
        connect(target) as sandbox,
    ):
        assert await refusal(listed()) == "limit/max_files"
