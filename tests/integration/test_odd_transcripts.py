"""Odd conversations of Claude Code and Codex: what is found twice, named oddly, damaged, or open."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client.agents.claude import project_key
from host_client.agents.registry import builtin_format
from host_client.errors import ConflictError, LimitError, SessionError
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.session import line_block
from host_client.session.compression import compressed
from host_client.stores.context import ConversationContext
from host_client.stores.layout import Conversation, Related
from host_client.stores.transcript import TranscriptConversations
from support.conversation import files_below
from support.transcript_format import IN_BUCKETS, lines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from host_client.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.anyio

A, B, C = (f"01a22be9-6e94-7931-90f0-7b34fd12f65{digit}" for digit in "012")
CLAUDE, CODEX = builtin_format("claude"), builtin_format("codex")


def rollout(thread_id: str, folder: str = "sessions/2026/11/30") -> str:
    """Return where Codex keeps a thread."""
    return f".codex/{folder}/rollout-2026-11-30T10-04-08-{thread_id}.jsonl"


def told(thread_id: str, session_id: str = "", **more: object) -> bytes:
    """Return a rollout of a thread in which something was said."""
    meta = {"session_id": session_id or thread_id, "id": thread_id, "cwd": "/old", **more}
    said = [{"type": "session_meta", "payload": meta}, {"type": "response_item", "payload": {"cwd": "/old"}}]
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in said)


def write(home: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a home."""
    for path, data in files.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(data)


@asynccontextmanager
async def sandbox(folder: Path) -> AsyncIterator[Sandbox]:
    """Serve `home` and `workspace` of a folder, made where missing."""
    for name in ("home", "workspace"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    async with connect(LocalTarget(folder / "home", folder / "workspace")) as served:
        yield served


def context_of(tmp_path: Path, served: Sandbox) -> ConversationContext:
    """Return a context that keeps copies in `kept`, for the repository `repo`."""
    for name in ("kept", "repo"):
        (tmp_path / name).mkdir(exist_ok=True)
    return ConversationContext(sandbox=served, conversation_home=tmp_path / "kept", repository=tmp_path / "repo")


@pytest.mark.parametrize("thread_id", [A, B, C], ids=["main", "sub-agent", "forked from"])
async def test_no_second_copy_of_a_rollout_is_made_on_the_host(tmp_path: Path, thread_id: str) -> None:
    """A thread that the user archived here is not put beside the archived one; nothing is changed until it is moved."""
    base = {"thread_id": C, "end_byte_offset": len(told(C)), "end_ordinal_exclusive": 2}
    write(
        tmp_path / "a/home",
        {rollout(A): told(A, history_base=base), rollout(B): told(B, A), rollout(C): told(C)},
    )
    kept = tmp_path / "kept"
    async with sandbox(tmp_path / "a") as source:
        context = context_of(tmp_path, source)
        assert (await CODEX.capture(A, context)).files_count == 3
        archived = kept / rollout(thread_id, "archived_sessions")
        archived.parent.mkdir()
        (kept / rollout(thread_id)).rename(archived)
        before = files_below(kept)
        with pytest.raises(ConflictError) as caught:
            await CODEX.capture(A, context)
        assert caught.value.reason == "other_bucket"
        assert [offender.path for offender in caught.value.offenders] == [str(archived)]
        assert files_below(kept) == before
        archived.rename(kept / rollout(thread_id))
        assert (await CODEX.capture(A, context)).unchanged


async def test_claude_takes_the_copy_of_its_own_repository(tmp_path: Path) -> None:
    """Captured for a second repository, the copy of the first stays and is named: the CLI looks in its own folder."""
    home, other = tmp_path / "a/home", tmp_path / "other"
    main = f".claude/projects/{project_key(str(tmp_path / 'a/workspace'))}/{A}.jsonl"
    write(home, {main: b'{"type":"user","cwd":"/old"}\n'})
    other.mkdir()
    async with sandbox(tmp_path / "a") as source:
        context = context_of(tmp_path, source)
        first = await CLAUDE.capture(A, context)
        second = await CLAUDE.capture(A, replace(context, repository=other))
        for record in (second, await CLAUDE.locate(A, replace(context, repository=other))):
            (notice,) = (one for one in record.notices if one.reason == "other_copy")
            assert tmp_path / "kept/.claude" / notice.path == first.path
        assert first.path.exists()
        with pytest.raises(SessionError) as caught:
            await CLAUDE.locate(A, replace(context, repository=tmp_path))
        assert caught.value.reason == "ambiguous"


async def test_names_beside_a_transcript_are_no_ids(tmp_path: Path) -> None:
    """Two conversations have a file of one name beside them; both are moved, and neither is taken for the other."""

    async def related(conversation: Conversation) -> Sequence[Related]:
        beside = await conversation.files.find(conversation.transcript.with_suffix(""))
        return [Related(path, "transcript", beside=True) for path in beside]

    store = TranscriptConversations(replace(IN_BUCKETS, sidecars=False, related=related))
    for name in ("S1", "S2"):
        folder = f".mycli/sessions/workspace/{name}"
        write(tmp_path / "a/home", {f"{folder}.jsonl": lines(), f"{folder}/log.jsonl": lines()})
    async with sandbox(tmp_path / "a") as source, sandbox(tmp_path / "b") as target:
        for name in ("S1", "S2"):
            record = await store.capture(name, context_of(tmp_path, source))
            outcome = await store.restore(record, context_of(tmp_path, target))
            assert (record.files_count, outcome.files_count) == (2, 2)


@pytest.mark.parametrize("packed", [False, True])
async def test_a_hole_is_no_way_to_take_the_memory_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, packed: bool
) -> None:
    """A line that is longer than any CLI can read is refused while it comes; the copy of before stays."""
    monkeypatch.setattr(line_block, "MAX_LINE_BYTES", 16 << 20)
    path = rollout(A) + ".zst" * packed
    plain = told(A)
    write(tmp_path / "a/home", {path: b"".join(compressed([plain])) if packed else plain})
    async with sandbox(tmp_path / "a") as source:
        context = context_of(tmp_path, source)
        record = await CODEX.capture(A, context)
        before = files_below(tmp_path / "kept")
        if packed:
            (tmp_path / "a/home" / path).write_bytes(b"".join(compressed([plain, bytes(17 << 20)])))
        else:
            os.truncate(tmp_path / "a/home" / path, 17 << 20)
        with pytest.raises(LimitError) as caught:
            await CODEX.capture(A, context)
        assert caught.value.reason == "max_bytes"
        assert caught.value.message.startswith(path.removeprefix(".codex/"))
        assert files_below(tmp_path / "kept") == before
        assert (await CODEX.locate(A, context)).digest == record.digest


async def test_damage_is_told_with_the_file(tmp_path: Path) -> None:
    """Of the files of a conversation the one whose compression is damaged is named, on either side."""
    path = rollout(A) + ".zst"
    good = b"".join(compressed([told(A)]))
    write(tmp_path / "a/home", {path: good[:-1]})
    async with sandbox(tmp_path / "a") as source, sandbox(tmp_path / "b") as target:
        context = context_of(tmp_path, source)
        with pytest.raises(SessionError) as caught:
            await CODEX.capture(A, context)
        failures = [caught.value]
        (tmp_path / "a/home" / path).write_bytes(good)
        record = await CODEX.capture(A, context)
        record.path.write_bytes(good[:-1])
        for step in (CODEX.locate(A, context), CODEX.restore(record, replace(context, sandbox=target))):
            with pytest.raises(SessionError) as caught:
                await step
            failures.append(caught.value)
        assert not (tmp_path / "b/home/.codex/sessions").exists()
    assert [failure.reason for failure in failures] == ["corrupt"] * 3
    assert all(failure.message.startswith(path.removeprefix(".codex/")) for failure in failures)


async def test_a_byte_order_mark_hides_nothing(tmp_path: Path) -> None:
    """Behind a mark the directory, the family and the reference of a fork are found; the mark stays."""
    mark, parent = b"\xef\xbb\xbf", told(C)
    base = {"thread_id": C, "end_byte_offset": len(mark + parent), "end_ordinal_exclusive": 2}
    write(
        tmp_path / "a/home",
        {
            rollout(A): mark + told(A, history_base=base),
            rollout(B): mark + told(B, A),
            rollout(C): mark + parent + told(C),
        },
    )
    async with sandbox(tmp_path / "a") as source, sandbox(tmp_path / "longer/b") as target:
        record = await CODEX.capture(A, context_of(tmp_path, source))
        await CODEX.restore(record, context_of(tmp_path, target))
    assert record.files_count == 3
    for home, directory in (("kept", "repo"), ("longer/b/home", "longer/b/workspace")):
        found = {name: (tmp_path / home / rollout(name)).read_bytes() for name in (A, B, C)}
        moved = parent.replace(b'"/old"', json.dumps(str(tmp_path / directory)).encode())
        assert found[C].startswith(mark + moved)
        assert all(data.startswith(mark) and b'"/old"' not in data for data in found.values())
        meta = json.loads(found[A].removeprefix(mark).splitlines()[0])["payload"]
        assert meta["history_base"]["end_byte_offset"] == len(mark + moved)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"user","cwd":"/old","text":"\xff\xed\xa0\x80"}\n',
        b'{"type":"user","cwd":"/old","text":"\\ud800"}\n',
        b'{"type":"mode"}{"type":"assistant","cwd":"/old"}\n',
    ],
    ids=["bytes that are no UTF-8", "a lone surrogate", "two values in a line"],
)
async def test_what_the_cli_reads_is_something_said(tmp_path: Path, line: bytes) -> None:
    """A conversation of one line that a strict parser refuses, and the CLI does not, is not empty; its bytes stay."""
    main = f".claude/projects/{project_key(str(tmp_path / 'a/workspace'))}/{A}.jsonl"
    write(tmp_path / "a/home", {main: line})
    async with sandbox(tmp_path / "a") as source:
        record = await CLAUDE.capture(A, context_of(tmp_path, source))
    assert record.notices == []
    assert record.path.read_bytes() == line.replace(b'"/old"', json.dumps(str(tmp_path / "repo")).encode())
