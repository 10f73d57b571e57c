"""A sandbox whose transcripts are endless: memory and time of a capture are bounded, and the host keeps what it had."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import zstandard

from host_client.agents import codex
from host_client.session.transcript_scan import MAX_VALUES_COUNT, TranscriptScan
from host_client.stores import transcript_fetch
from sandbox_api.limits import Limits
from sandbox_api.v1 import file_pb2, payload_pb2
from support.hostile_host import (
    ID,
    KEY,
    LINE,
    MAIN,
    OTHER,
    Host,
    capture,
    claude_home,
    codex_home,
    meta,
    rollout,
    tree,
)

if TYPE_CHECKING:
    from pathlib import Path

    from support.fake_daemon import Exchange

pytestmark = pytest.mark.anyio

MIB = 1 << 20
LIMITS = Limits(max_bytes=8 * MIB, max_files=100)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Give the host."""
    return Host(tmp_path)


def thread(number: int) -> str:
    """Return a thread's id."""
    return f"f1000000-0000-4000-8000-{number:012d}"


async def test_long_line_of_forks_is_captured(host: Host) -> None:
    """A fork of a fork, and so on for longer than Python calls itself, is one conversation."""
    first, count = 1000, 400
    lies = codex_home(meta(ID, {"thread_id": thread(first), "end_byte_offset": 3}))
    for number in range(first, first + count):
        base = {"thread_id": thread(number + 1), "end_byte_offset": 2} if number < first + count - 1 else None
        lies.files[rollout(thread(number))] = meta(thread(number), base)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(count)
    try:
        assert await capture(host, lies, codex.LAYOUT) == ""
    finally:
        sys.setrecursionlimit(before)


async def test_endless_forks_end_by_the_limit_of_files(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that has a parent for each parent does not keep a capture for ever."""
    monkeypatch.setattr(codex, "MAX_FILES_COUNT", 30)
    before = tree(host.root)
    lies = codex_home(meta(ID, {"thread_id": thread(100), "end_byte_offset": 3}))

    def made(directory: str, pattern: str) -> list[bytes]:
        if directory == "sessions" and pattern.startswith("rollout-*-f") and ID not in pattern:
            path = pattern.replace("*", "2026-01-02T00-00-00", 1).removesuffix("*")
            number = int(path.rpartition("-")[2].removesuffix(".jsonl"))
            base = {"thread_id": thread(number + 1), "end_byte_offset": 3}
            lies.files[f"sessions/{path}"] = meta(thread(number), base)
            return [b"%b/sessions/%b" % (lies.home, path.encode())]
        return []

    lies.planted = made
    assert await capture(host, lies, codex.LAYOUT) == "limit/max_files"
    assert tree(host.root) == before


async def test_bomb_is_refused_by_the_limit_of_what_it_unpacks_to(host: Host) -> None:
    """A small compressed rollout that stands for more than a conversation may hold ends with an error."""
    before = tree(host.root)
    name = rollout(ID) + ".zst"
    lies = codex_home()
    for parent in (None, {"thread_id": OTHER, "end_byte_offset": 3}):
        content = meta(ID, parent).replace(b'"cwd"', b'"was"') + b"{}\n" * (32 * MIB // 3)
        lies.files = {name: zstandard.compress(content), rollout(OTHER): meta(OTHER)}
        assert len(lies.files[name]) < MIB
        assert await capture(host, lies, codex.LAYOUT, limits=LIMITS) == "limit/max_bytes"
    assert tree(host.root) == before


async def test_endless_transcript_is_refused_by_the_limit(host: Host) -> None:
    """A daemon that sends a file without end is not heard for longer than a conversation may be."""
    sent = 0

    async def endless(exchange: Exchange) -> None:
        nonlocal sent
        request = file_pb2.ReadRequest.FromString(await exchange.receive() or b"")
        if request.max_bytes:  # the first line
            await lies.answer_read(exchange, request)
            return
        info = lies.info(request.path, 1 << 62)
        await exchange.send(file_pb2.ReadResponse(header=file_pb2.ReadHeader(file=info)))
        while True:
            chunk = payload_pb2.Chunk(offset=sent, data=b"{}\n" * (MIB // 3))
            sent += len(chunk.data)
            await exchange.send(file_pb2.ReadResponse(chunk=chunk))

    before = tree(host.root)
    lies = codex_home(meta(ID, {"thread_id": OTHER, "end_byte_offset": 3}), {rollout(OTHER): meta(OTHER)})
    lies.scripts = {"FileService_Read": endless}
    assert await capture(host, lies, codex.LAYOUT, limits=LIMITS) == "limit/max_bytes"
    assert sent < 64 * MIB
    assert tree(host.root) == before


async def test_shared_lines_of_one_conversation_are_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of the shared index are held in memory: too many are refused, none is added."""
    monkeypatch.setattr(transcript_fetch, "_MAX_LINES_BYTES", 1000)
    before = tree(host.root)
    line = json.dumps({"id": ID, "name": "own"}).encode() + b"\n"
    lies = codex_home(files={"session_index.jsonl": line * 1000})
    assert await capture(host, lies, codex.LAYOUT) == "limit/max_bytes"
    assert tree(host.root) == before


async def test_deep_json_and_a_line_without_end_are_lines(host: Host) -> None:
    """Nesting, numbers and lines of any size are captured as they are, in memory of a few of the longest line."""
    deep = b"[" * 50_000 + b"\n" + b'{"a":' * 20_000 + b"\n" + b'{"n":' + b"9" * 10_000 + b"}\n"
    long = b'{"type":"user","x":"' + b"x" * (2 * MIB)
    lies = claude_home()
    lies.files[MAIN] = deep + LINE + long
    assert await capture(host, lies) == ""
    assert (host.home / host.key / f"{ID}.jsonl").stat().st_size > 2 * MIB
    first = codex_home(b"[" * 200_000 + meta(ID))
    assert await capture(host, first, codex.LAYOUT) == ""


async def test_a_million_values_of_a_key_cost_no_memory() -> None:
    """Values that are collected are bounded, also those of one long line while it is looked at."""
    line = b'{"x":[' + b",".join(b'{"slug":"%06d"}' % number for number in range(250_000)) + b"]}\n"
    scan = TranscriptScan(keys=("slug",))
    tracemalloc.start()
    try:
        scan.feed(line)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(scan.collected["slug"]) == MAX_VALUES_COUNT
    assert peak_bytes < 3 * len(line)


async def test_thousands_of_companions_are_bounded(host: Host) -> None:
    """What belongs to a conversation has a limit; beyond it nothing is placed."""
    before = tree(host.root)
    lies = claude_home(**{f"{KEY}/{ID}/tool-results/{number}.txt": b"x" for number in range(3000)})
    assert await capture(host, lies, limits=LIMITS) == "limit/max_files"
    assert tree(host.root) == before


@pytest.mark.parametrize("size", [0, 1, 1 << 40, (1 << 64) - 1])
async def test_sizes_that_change_between_find_and_read(host: Host, size: int) -> None:
    """A size that was told before is a guess: what is read counts, and a limit is a limit."""
    lies = claude_home()
    lies.size = lambda _path, _size: size
    before = tree(host.root)
    expected = "limit/max_bytes" if size > LIMITS.max_bytes else ""
    assert await capture(host, lies, limits=LIMITS) == expected
    if expected:
        assert tree(host.root) == before
