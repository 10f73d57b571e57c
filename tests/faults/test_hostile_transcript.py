"""A daemon that breaks a restore of transcripts: no success without a commit, its own error heard, never a hang."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from host_client.errors import ConfigurationError, ConflictError, LimitError, OutpostError
from host_client.sandbox.sandbox import connect
from host_client.sandbox.transcript import TranscriptSource
from sandbox_api.limits import CHUNK_BYTES
from sandbox_api.lock import LockSign
from sandbox_api.v1 import payload_pb2, transcript_pb2
from sandbox_api.wire import pack_status
from support.fake_daemon import Exchange, fake_daemon
from support.lie import HANG_SECONDS, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from host_client.sandbox.transcript_restore import RestoredTranscript

    Script = Callable[[Exchange], Awaitable[None]]

pytestmark = pytest.mark.anyio

HOME = PurePosixPath("/home/agent/.claude")
FILES = {"sub/a.jsonl": [b"first"], "empty": [], "main.jsonl": [b"one\n", b"", b"two\n"]}


def source(path: str, pieces: Sequence[bytes], **options: Any) -> TranscriptSource:
    """Return a file in memory."""
    return TranscriptSource(PurePosixPath(path), lambda: iter(pieces), **options)


def sources() -> list[TranscriptSource]:
    """Return the files of these tests."""
    return [source(path, pieces) for path, pieces in FILES.items()]


async def restore(script: Script, files: Any = None, **options: Any) -> RestoredTranscript:
    """Restore to a daemon that acts by the script."""
    stall_seconds = options.pop("stall_seconds", 60.0)
    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(TranscriptService_Restore=script) as target,
        connect(target, stall_seconds=stall_seconds) as sandbox,
    ):
        return await sandbox.transcripts.restore(HOME, "claude", "S1", sources() if files is None else files, **options)


async def received(exchange: Exchange, last: str) -> list[transcript_pb2.TranscriptRestoreRequest]:
    """Return the client's messages up to one of that kind, or all there are."""
    messages = []
    while (data := await exchange.receive()) is not None:
        messages.append(transcript_pb2.TranscriptRestoreRequest.FromString(data))
        if messages[-1].WhichOneof("part") == last:
            break
    return messages


def answering(*answers: transcript_pb2.TranscriptRestoreResponse | bytes) -> Script:
    """Return a script that takes everything and gives these answers."""

    async def script(exchange: Exchange) -> None:
        await received(exchange, "commit")
        await exchange.send(*answers)

    return script


def watching(saw: list[str | None], is_cancelled: asyncio.Event) -> Script:
    """Return a script that notes the kinds of what comes, never answers, and tells when the call is cancelled."""

    async def script(exchange: Exchange) -> None:
        try:
            while (data := await exchange.receive()) is not None:
                saw.append(transcript_pb2.TranscriptRestoreRequest.FromString(data).WhichOneof("part"))
            await exchange.stall()
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    return script


def answer(**fields: Any) -> transcript_pb2.TranscriptRestoreResponse:
    """Return a result."""
    return transcript_pb2.TranscriptRestoreResponse(**fields)


async def test_honest_restore_sends_every_file_in_order() -> None:
    """Each file is its path, chunks that count within it and its digest; the commit counts all; the result is told."""
    sent: list[transcript_pb2.TranscriptRestoreRequest] = []
    counted: list[int] = []

    async def script(exchange: Exchange) -> None:
        sent.extend(await received(exchange, "commit"))
        await exchange.send(answer(recovery="S1-old", replaced=[b"main.jsonl"], added=[b"sub/a.jsonl"]))

    files = [*sources(), source("big", [bytes(CHUNK_BYTES), b"x" * 5], mode=0o640, append_lines=True)]
    sign = LockSign("sessions", r"^(?P<pid>\d+)[.]json$", b"S1")
    restored = await restore(
        script, files, owner=(3, 4), force=True, locks=[sign], expected_bytes=99, after_chunk=counted.append
    )
    header = sent[0].header
    assert (header.home, header.format, header.id, header.expected_bytes) == (
        b"/home/agent/.claude",
        "claude",
        "S1",
        99,
    )
    assert (header.owner.uid, header.owner.gid, header.force) == (3, 4, True)
    assert header.durability == payload_pb2.DURABILITY_FULL
    assert [(item.directory, item.contains) for item in header.locks] == [(b"sessions", b"S1")]
    told = [message.file for message in sent if message.WhichOneof("part") == "file"]
    assert [(file.path, file.mode, file.append_lines) for file in told] == [
        (b"sub/a.jsonl", 0o600, False),
        (b"empty", 0o600, False),
        (b"main.jsonl", 0o600, False),
        (b"big", 0o640, True),
    ]
    parts = [message.WhichOneof("part") for message in sent]
    small = ["file", "chunk", "trailer", "file", "trailer", "file", "chunk", "trailer"]
    assert parts == ["header", *small, "file", "chunk", "chunk", "trailer", "commit"]
    assert [message.chunk.offset for message in sent if message.HasField("chunk")] == [0, 0, 0, CHUNK_BYTES]
    contents = [b"first", b"", b"one\ntwo\n", bytes(CHUNK_BYTES) + b"x" * 5]
    assert [(message.trailer.size, message.trailer.sha256) for message in sent if message.HasField("trailer")] == [
        (len(content), hashlib.sha256(content).digest()) for content in contents
    ]
    total = sum(map(len, contents))
    assert (sent[-1].commit.files_count, sent[-1].commit.bytes_count) == (4, total)
    assert (restored.files_count, restored.bytes_count, sum(counted)) == (4, total, total)
    assert [(entry.path, entry.size, entry.sha256) for entry in restored.entries] == [
        (file.path, len(content), hashlib.sha256(content).digest())
        for file, content in zip(told, contents, strict=True)
    ]
    assert restored.sent_bytes == sum(message.ByteSize() for message in sent[1:-1])
    assert (restored.recovery, restored.unchanged) == ("S1-old", False)
    assert (restored.replaced, restored.added) == ((PurePosixPath("main.jsonl"),), (PurePosixPath("sub/a.jsonl"),))


RESULTS: dict[str, tuple[tuple[transcript_pb2.TranscriptRestoreResponse | bytes, ...], str]] = {
    "nothing": ((), "unavailable/unreachable"),
    "two results": ((answer(), answer()), "session/protocol"),
    "garbage": ((b"\xff\xff",), "session/protocol"),
    "file that was not sent": ((answer(added=[b"other"]),), "session/protocol"),
    "path from the root": ((answer(added=[b"/main.jsonl"]),), "session/protocol"),
    "path with a step up": ((answer(recovery="S1-x", replaced=[b"../main.jsonl"]),), "session/protocol"),
    "one file twice": ((answer(added=[b"empty", b"empty"]),), "session/protocol"),
    "one file in both": ((answer(recovery="S1-x", added=[b"empty"], replaced=[b"empty"]),), "session/protocol"),
    "more than were sent": ((answer(added=[b"%d" % number for number in range(101)]),), "session/protocol"),
    "replaced without recovery": ((answer(replaced=[b"empty"]),), "session/protocol"),
    "unchanged with recovery": ((answer(unchanged=True, recovery="S1-x"),), "session/protocol"),
    "unchanged with added": ((answer(unchanged=True, added=[b"empty"]),), "session/protocol"),
    "recovery with a slash": ((answer(recovery="S1-/../x"),), "session/protocol"),
    "recovery with a control character": ((answer(recovery="S1-\x1b[2J"),), "session/protocol"),
    "recovery of another conversation": ((answer(recovery="S2-x"),), "session/protocol"),
    "recovery that is huge": ((answer(recovery="S1-" + "x" * 100_000),), "session/protocol"),
}


@pytest.mark.parametrize("case", RESULTS)
async def test_restore_that_was_not_committed_is_no_success(case: str) -> None:
    """A restore succeeds by one proper result after the commit and in no other way."""
    answers, reason = RESULTS[case]
    assert await refusal(restore(answering(*answers))) == reason


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, ConflictError("in_use", "process 7 has S1 open")),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, LimitError("disk_full", "no space is left")),
        (grpc.StatusCode.PERMISSION_DENIED, ConfigurationError("owner", "not that owner")),
    ],
    ids=lambda value: getattr(value, "reason", ""),
)
@pytest.mark.parametrize("after_count", [0, 1, 5])
async def test_early_error_is_the_daemons_own(code: grpc.StatusCode, error: OutpostError, after_count: int) -> None:
    """A daemon that refuses while files are still being sent is heard, whatever the write runs into."""

    async def script(exchange: Exchange) -> None:
        for _ in range(after_count):
            await exchange.receive()
        await exchange.fail(code, pack_status(error))

    files = [source("a", [bytes(CHUNK_BYTES)] * 30), source("b", [b"x"])]
    assert await refusal(restore(script, files)) == f"{error.code}/{error.reason}"


async def test_ok_before_the_commit_is_no_success() -> None:
    """A daemon that ends the call with OK while files are being sent has restored nothing."""

    async def script(exchange: Exchange) -> None:
        await exchange.receive()

    assert await refusal(restore(script, [source("a", [bytes(CHUNK_BYTES)] * 30)])) == "unavailable/unreachable"


@pytest.mark.parametrize("silent_after", ["header", "commit"])
async def test_silence_in_a_restore_ends_by_the_stall_limit(silent_after: str) -> None:
    """A daemon that stops reading, or never answers, cannot hang a restore."""

    async def script(exchange: Exchange) -> None:
        await received(exchange, silent_after)
        await exchange.stall()

    files = [source("a", [bytes(CHUNK_BYTES)] * 48)] if silent_after == "header" else None
    assert await refusal(restore(script, files, stall_seconds=0.5)) == "timeout/deadline"


@pytest.mark.parametrize("pace", ["MIN_COMMIT_BYTES_PER_SECOND", "_MIN_COMMIT_FILES_PER_SECOND"])
async def test_large_commit_is_waited_for(monkeypatch: pytest.MonkeyPatch, pace: str) -> None:
    """A daemon that has much to force to disk, or to move, may be silent for longer than the stall limit."""
    monkeypatch.setattr(f"host_client.sandbox.transcript_restore.{pace}", 1)

    async def script(exchange: Exchange) -> None:
        await received(exchange, "commit")
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await exchange.stall()
        await exchange.send(answer(unchanged=True))

    assert (await restore(script, stall_seconds=0.25)).unchanged


class Broken(Exception):  # noqa: N818 - what a caller of ours may raise has any name
    """What a source of the caller raises."""


def failing(where: str, failure: Exception) -> tuple[Iterator[TranscriptSource], Callable[[], None]]:
    """Return sources and a last step of which the one that is named raises that failure."""

    def step(name: str) -> None:
        if name == where:
            raise failure

    def pieces() -> Iterator[bytes]:
        step("pieces call")
        return later()

    def later() -> Iterator[bytes]:
        step("first piece")
        yield bytes(3 * CHUNK_BYTES)
        step("later piece")

    def files() -> Iterator[TranscriptSource]:
        yield from sources()
        step("sources")
        yield TranscriptSource(PurePosixPath("x"), pieces)

    return files(), lambda: step("before_commit")


@pytest.mark.parametrize("where", ["sources", "pieces call", "first piece", "later piece", "before_commit"])
async def test_failure_of_the_caller_comes_out_unchanged_and_prevents_the_commit(where: str) -> None:
    """Whatever of the caller's own fails, the daemon sees the call cancelled and no commit."""
    saw: list[str | None] = []
    is_cancelled = asyncio.Event()
    failure = Broken(where)
    files, before_commit = failing(where, failure)
    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(TranscriptService_Restore=watching(saw, is_cancelled)) as target,
        connect(target) as sandbox,
    ):
        with pytest.raises(Broken) as caught:
            await sandbox.transcripts.restore(HOME, "claude", "S1", files, before_commit=before_commit)
        await is_cancelled.wait()
    assert caught.value is failure
    assert "commit" not in saw


@pytest.mark.parametrize("path", ["../x", "/x", "a//../b", "a\\b", ".git/x", "a\udcff", ""])
async def test_source_that_leaves_the_home_is_refused_before_it_is_sent(path: str) -> None:
    """A path that is not below the home does not reach a daemon."""
    saw: list[str | None] = []
    is_cancelled = asyncio.Event()
    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(TranscriptService_Restore=watching(saw, is_cancelled)) as target,
        connect(target) as sandbox,
    ):
        call = sandbox.transcripts.restore(HOME, "claude", "S1", [source(path, [b"x"])])
        assert await refusal(call) == "session/unsafe_name"
        await is_cancelled.wait()
    assert "file" not in saw


async def test_sources_are_advanced_one_after_the_other_off_the_loop() -> None:
    """A source sees what those before it did, in a thread; generators are closed there too, also after a failure."""
    loop_thread, seen, closed = threading.get_ident(), [], []

    def pieces(name: str) -> Iterator[bytes]:
        try:
            seen.append((f"begin {name}", threading.get_ident() != loop_thread))
            yield b"x" * CHUNK_BYTES * 2
            seen.append((f"end {name}", threading.get_ident() != loop_thread))
        finally:
            closed.append((name, threading.get_ident() != loop_thread))

    def files() -> Iterator[TranscriptSource]:
        try:
            for name in ("a", "b"):
                seen.append((f"next {name}", threading.get_ident() != loop_thread))
                yield TranscriptSource(PurePosixPath(name), lambda name=name: pieces(name))  # type: ignore[misc]
        finally:
            closed.append(("files", threading.get_ident() != loop_thread))

    def before_commit() -> None:
        seen.append(("before commit", threading.get_ident() != loop_thread))

    await restore(answering(answer(unchanged=True)), files(), before_commit=before_commit)
    order = ["next a", "begin a", "end a", "next b", "begin b", "end b", "before commit"]
    assert seen == [(step, True) for step in order]
    assert closed == [("a", True), ("b", True), ("files", True)]

    closed.clear()
    failing = pack_status(ConflictError("busy", "S1 is held"))
    held = files()  # as a caller that still has it

    async def script(exchange: Exchange) -> None:
        await exchange.fail(grpc.StatusCode.ABORTED, failing)

    assert await refusal(restore(script, held)) == "conflict/busy"
    assert all(is_off for _, is_off in closed)
    assert next(held, None) is None


async def test_many_small_files_share_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand small files cost as many messages, but only a few changes between thread and loop."""
    steps = 0
    original = asyncio.AbstractEventLoop.run_in_executor

    def counting(self: Any, executor: Any, function: Any, *args: Any) -> Any:
        nonlocal steps
        steps += 1
        return original(self, executor, function, *args)

    files = [source(f"file-{number}", [b"x" * 100]) for number in range(1000)]
    original = asyncio.get_running_loop().__class__.run_in_executor
    monkeypatch.setattr(asyncio.get_running_loop().__class__, "run_in_executor", counting)
    restored = await restore(answering(answer(unchanged=True)), files)
    assert restored.files_count == 1000
    assert steps < 20


async def test_cancelled_restore_ends_its_thread_and_the_call() -> None:
    """A cancel in the middle waits for the thread, closes the sources and cancels the call; no commit is sent."""
    is_running, may_go_on, closed = threading.Event(), threading.Event(), []
    saw: list[str | None] = []
    is_cancelled = asyncio.Event()

    def pieces() -> Iterator[bytes]:
        try:
            yield bytes(CHUNK_BYTES)
            is_running.set()
            assert may_go_on.wait(HANG_SECONDS)
            yield bytes(CHUNK_BYTES)
        finally:
            closed.append("pieces")

    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(TranscriptService_Restore=watching(saw, is_cancelled)) as target,
        connect(target) as sandbox,
    ):
        files = [TranscriptSource(PurePosixPath("a"), pieces)]
        task = asyncio.create_task(sandbox.transcripts.restore(HOME, "claude", "S1", files))
        await asyncio.to_thread(is_running.wait, HANG_SECONDS)
        task.cancel()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed == ["pieces"]
        await is_cancelled.wait()
    assert "commit" not in saw
