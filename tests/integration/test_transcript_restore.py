"""Restores of transcript conversations: what they replace, add, leave alone, refuse, and leave when cancelled."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.agents.registry import builtin_format
from host_client.errors import ConfigurationError, ConflictError, OutpostError, SessionError
from host_client.stores.context import ConversationContext
from host_client.stores.layout import Conversation, Related, Skipped
from sandbox_api.lock import LockSign
from support.conversation import files_below
from support.recorded import DATA
from support.restore_scene import CHILD, Host, sandbox_of
from support.transcript_format import ID, IN_BUCKETS, LAYOUT, WITH_SIDECARS, lines, write_transcript

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.sandbox.progress import Progress

pytestmark = pytest.mark.anyio


async def test_what_a_restore_replaces_can_be_put_back(tmp_path: Path) -> None:
    """The sandbox's old transcript is set aside with its child, listed, put back and pruned."""
    host = Host(tmp_path, IN_BUCKETS)
    write_transcript(host.placed, b'{"cwd":"/newer"}\n')
    old = files_below(host.placed)
    record = await host.locate()
    async with sandbox_of(host.other) as sandbox:
        context = replace(host.context, sandbox=sandbox)
        outcome = await host.store.restore(record, context)
        new = files_below(host.placed)
        assert new != old
        (entry,) = [item async for item in host.store.list_recovery(context, ID)]
        assert entry.name == outcome.recovery
        assert entry.session_path == outcome.target
        undone = await host.store.undo_restore(ID, context)
        assert files_below(host.placed) == old
        assert undone.target == outcome.target
        await host.store.undo_restore(ID, context, undone.recovery)
        assert files_below(host.placed) == new
        removed = await host.store.prune_recovery(context, keep_count=0)
        assert removed
        assert [item async for item in host.store.list_recovery(context)] == []


async def test_a_second_copy_of_an_id_is_never_made(tmp_path: Path) -> None:
    """With the id in other folders of the sandbox nothing is placed, and all of them are named."""
    host = Host(tmp_path, IN_BUCKETS)
    sessions = host.other / "home/.mycli/sessions"
    others = [write_transcript(sessions / name) for name in ("x", "y")]
    write_transcript(host.other / "home/.mycli/.outpost-recovery/S1-u/sessions/z")
    before = files_below(host.other)
    async with sandbox_of(host.other) as sandbox:
        with pytest.raises(ConflictError) as caught:
            await host.store.restore(await host.locate(), replace(host.context, sandbox=sandbox))
    assert caught.value.reason == "other_bucket"
    assert sorted(offender.path for offender in caught.value.offenders) == sorted(map(str, others))
    assert files_below(host.other) == before


async def test_a_record_that_is_stale_places_nothing(tmp_path: Path) -> None:
    """What changed since it was located is noticed before the commit; a record of no file here is refused."""
    host = Host(tmp_path, WITH_SIDECARS)
    record = await host.locate()
    child = host.folder / CHILD
    child.write_bytes(child.read_bytes() + b"{}\n")
    async with sandbox_of(host.other) as sandbox:
        context = replace(host.context, sandbox=sandbox)
        with pytest.raises(SessionError) as changed:
            await host.store.restore(record, context)
        assert changed.value.reason == "digest_mismatch"
        for wrong, kind, reason in (
            (replace(record, path=tmp_path / "elsewhere.jsonl"), ConfigurationError, "invalid_argument"),
            (replace(record, path=host.folder / "gone.jsonl"), OutpostError, "not_found"),
            (replace(record, conversation_id="../x"), ConfigurationError, "invalid_id"),
        ):
            with pytest.raises(kind) as caught:
                await host.store.restore(wrong, context)
            assert caught.value.reason == reason
        with pytest.raises(ConfigurationError) as nowhere:
            await host.store.restore(record, ConversationContext(sandbox=sandbox))
        assert "conversation_home" in nowhere.value.hint
    assert files_below(host.other / "home") == {}


async def test_a_conversation_in_use_is_replaced_only_by_force(tmp_path: Path) -> None:
    """A lock that a process holds forbids the restore, is told in the list, and yields to force."""
    layout = replace(IN_BUCKETS, locks=lambda wanted: [LockSign("locks", f"^{wanted}$")])
    host = Host(tmp_path, layout)
    record = await host.locate()
    sign = host.other / f"home/.mycli/locks/{ID}"
    sign.parent.mkdir(parents=True)
    async with sandbox_of(host.other) as sandbox:
        context = replace(host.context, sandbox=sandbox)
        with sign.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(ConflictError) as caught:
                await host.store.restore(record, context)
            assert caught.value.reason == "in_use"
            assert files_below(host.placed) == {}
            await host.store.restore(record, replace(context, force=True))
            (listed,) = [item async for item in host.store.list_sessions(context)]
            assert listed.in_use_pid == os.getpid()
        (quiet,) = [item async for item in host.store.list_sessions(context)]
        assert quiet.in_use_pid == 0
        assert (quiet.conversation_id, quiet.bytes_count) == (ID, len(lines(str(host.other / "workspace"))))
        assert quiet.path == PurePosixPath(host.placed / f"{ID}.jsonl")


async def test_lines_of_a_shared_file_are_added(tmp_path: Path) -> None:
    """Only lines of the conversation travel, once, and those of others stay; what is left out is told."""

    async def related(conversation: Conversation) -> Sequence[Related | Skipped]:
        index, database = PurePosixPath("index.jsonl"), PurePosixPath("state.db")
        values = frozenset({conversation.conversation_id, *conversation.collected["parent"]})
        found: list[Related | Skipped] = [Related(index, "lines", key="id", values=values)]
        if await conversation.files.exists(database):
            found.append(Skipped(database, "database of the CLI"))
        return found

    layout = replace(IN_BUCKETS, related=related, collected_keys=("parent",))
    host = Host(tmp_path, layout, lines() + b'{"parent":"P1"}\n')
    own = b'{"id":"S1","n":1}\n{"id":"P1"}\n'
    (host.home / ".mycli/index.jsonl").write_bytes(b'{"id":"x"}\n' + own)
    (host.home / ".mycli/state.db").write_bytes(b"no")
    index = host.other / "home/.mycli/index.jsonl"
    index.parent.mkdir(parents=True)
    index.write_bytes(b'{"id":"P1"}\n{"id":"theirs"}')
    record = await host.locate()
    assert [(item.path, item.why) for item in record.left_out] == [("state.db", "database of the CLI")]
    async with sandbox_of(host.other) as sandbox:
        await host.store.restore(record, replace(host.context, sandbox=sandbox))
        await host.store.restore(record, replace(host.context, sandbox=sandbox))
    assert index.read_bytes() == b'{"id":"P1"}\n{"id":"theirs"}\n{"id":"S1","n":1}\n'
    assert not (host.other / "home/.mycli/state.db").exists()


async def test_a_remote_path_outside_of_the_home_is_refused(tmp_path: Path) -> None:
    """What a layout returns for the sandbox is checked like any path."""
    host = Host(tmp_path, replace(LAYOUT, remote_path=lambda *_: PurePosixPath("/etc/S1.jsonl")))
    async with sandbox_of(host.other) as sandbox:
        with pytest.raises(ConfigurationError) as caught:
            await host.store.restore(await host.locate(), replace(host.context, sandbox=sandbox))
    assert caught.value.reason == "invalid_argument"


async def test_progress_ends_complete(tmp_path: Path) -> None:
    """The last report of a restore says that all files and bytes are done, also when relocation made them fewer."""
    host = Host(tmp_path, WITH_SIDECARS, lines("/a/very/long/place" * 20))
    told: list[Progress] = []
    async with sandbox_of(host.other) as sandbox:
        await host.store.restore(await host.locate(), replace(host.context, sandbox=sandbox, progress=told.append))
    assert told[-1].is_complete
    assert told[-1].files_total == 2


async def test_the_conversation_that_a_fork_needs_is_not_taken_back(tmp_path: Path) -> None:
    """What the sandbox's parent went on with stays; a parent that differs is replaced, unless it is open."""
    forked = DATA / "codex/0.171.0/fork/home"
    parent_id, fork_id = "01a22be9-6bd0-74b1-8e68-8ec8c11634b0", "01a22be9-6e94-7931-90f0-7b34fd12f652"
    shutil.copytree(forked, tmp_path / "host")
    store = builtin_format("codex")
    context = ConversationContext(conversation_home=tmp_path / "host", repository=tmp_path)
    record = await store.locate(fork_id, context)
    async with sandbox_of(tmp_path / "b") as sandbox:
        there = replace(context, sandbox=sandbox)
        first = await store.restore(record, there)
        assert (await store.restore(record, there)).digest == first.digest
        (parent,) = (tmp_path / "b/home/.codex").rglob(f"*{parent_id}.jsonl")
        grown = parent.read_bytes() + b'{"more":1}\n'
        parent.write_bytes(grown)
        outcome = await store.restore(record, there)
        assert [notice.reason for notice in outcome.notices] == ["went_on"]
        assert (outcome.files_count, outcome.recovery) == (1, "")
        assert parent.read_bytes() == grown
        parent.write_bytes(grown.replace(b"more", b"less", 1)[1:])
        lock = tmp_path / f"b/home/.codex/thread-writer-locks/{parent_id}.lock"
        lock.parent.mkdir()
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(ConflictError) as caught:
                await store.restore(record, there)
        assert caught.value.reason == "in_use"
        replaced = await store.restore(record, there)
        assert replaced.recovery
        assert replaced.digest == first.digest
        assert grown.startswith(parent.read_bytes())


async def test_a_restore_that_is_cancelled_changes_nothing(tmp_path: Path) -> None:
    """A cancel in the middle of the sending leaves the sandbox's old files, nothing staged, and the host as it was."""
    host = Host(tmp_path, IN_BUCKETS, lines(count=200_000))
    write_transcript(host.placed, b'{"cwd":"/newer"}\n')
    before = files_below(host.home), files_below(host.placed)
    record = await host.locate()
    async with sandbox_of(host.other) as sandbox:
        begun = asyncio.Event()
        context = replace(host.context, sandbox=sandbox, progress=lambda _: begun.set())
        restoring = asyncio.create_task(host.store.restore(record, context))
        await begun.wait()
        restoring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await restoring
    assert (files_below(host.home), files_below(host.placed)) == before
    assert list((host.other / "home/.mycli").glob(".outpost*")) == []
