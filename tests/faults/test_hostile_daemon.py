"""A daemon that lies, breaks the stream or falls silent: refused by reason, the sink aborted, and never a hang."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from host_client.errors import OutpostError, SessionError
from host_client.sandbox.place import Place
from host_client.sandbox.sandbox import connect
from sandbox_api.framing import Batcher
from sandbox_api.limits import CHUNK_BYTES, Limits
from sandbox_api.manifest import Entry, bundle_digest
from sandbox_api.v1 import bundle_pb2, payload_pb2
from sandbox_api.wire import pack_manifest, pack_status
from support.bundle_end import PROFILE, MemorySink, MemorySource, entries_of
from support.fake_daemon import Exchange, fake_daemon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from host_client.sandbox.place import Captured, Restored

pytestmark = pytest.mark.anyio

PLACE = Place(PROFILE, "S1")
CONTENTS = {b"a": b"first", b"b/c": b"second" * 1000, b"empty": b""}
HANG_SECONDS = 20
"""No test here waits for anything but the daemon's next lie."""


@dataclass
class Lie:
    """A capture stream as a proper daemon would send it, with parts for a test to replace."""

    entries: Sequence[Entry]
    header: bundle_pb2.CaptureHeader
    payload: bytes
    trailer: bundle_pb2.CaptureTrailer

    def messages(self) -> list[bundle_pb2.CaptureResponse]:
        """Return the stream."""
        return [
            bundle_pb2.CaptureResponse(header=self.header),
            *chunks(self.payload),
            bundle_pb2.CaptureResponse(trailer=self.trailer),
        ]


def chunks(payload: bytes) -> list[bundle_pb2.CaptureResponse]:
    """Return a payload as messages."""
    batcher = Batcher()
    parts = [*batcher.add(payload), *batcher.flush()]
    return [bundle_pb2.CaptureResponse(chunk=payload_pb2.Chunk(offset=offset, data=data)) for offset, data in parts]


def told(entries: Sequence[Entry], contents: Mapping[bytes, bytes], **header: Any) -> Lie:
    """Return a stream that is right in itself, for a manifest that may not be."""
    manifest = pack_manifest(entries)
    whole = [replace(entry, sha256=hashlib.sha256(contents[entry.path]).digest()) for entry in entries]
    payload = manifest + b"".join(
        contents[entry.path][entry.from_offset :] + done.sha256
        for entry, done in zip(entries, whole, strict=True)
        if not entry.sha256
    )
    proper = {
        "source": b"/home/agent/.plain/sessions/S1",
        "manifest_bytes": len(manifest),
        "files_count": len(entries),
        "bytes_count": sum(entry.size for entry in entries),
        "payload_bytes": len(payload),
    }
    trailer = payload_pb2.Trailer(size=len(payload), sha256=bundle_digest(whole))
    return Lie(
        entries,
        bundle_pb2.CaptureHeader(**{**proper, **header}),
        payload,
        bundle_pb2.CaptureTrailer(payload=trailer),
    )


def honest(contents: Mapping[bytes, bytes] = CONTENTS) -> Lie:
    """Return a stream without any lie."""
    return told([replace(entry, sha256=b"") for entry in entries_of(contents)], contents)


def named(*paths: bytes) -> Lie:
    """Return a stream whose manifest has these paths in this order."""
    return told([Entry(path, 1) for path in paths], dict.fromkeys(paths, b"x"))


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
    lie = told([replace(same, from_offset=4), replace(grown, sha256=b"", from_offset=3)], now)
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


# Restores


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


async def refusal(call: Awaitable[Any]) -> str:
    """Return code and reason of the failure of a call."""
    with pytest.raises(OutpostError) as caught:
        await call
    return f"{caught.value.code}/{caught.value.reason}"
