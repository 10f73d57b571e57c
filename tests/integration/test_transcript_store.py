"""Transcript conversations moved between this host and private daemons by their store."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client import sync
from host_client.agents.registry import builtin_format
from host_client.errors import ConfigurationError, ConflictError, OutpostError, SessionError
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.stores.context import ConversationContext
from host_client.stores.layout import Conversation, Related, Skipped
from host_client.stores.transcript import TranscriptConversations
from sandbox_api.lock import LockSign
from support.conversation import files_below
from support.recorded import DATA
from support.transcript_format import ID, IN_BUCKETS, LAYOUT, WITH_SIDECARS, lines, write_transcript

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from host_client.sandbox.progress import Progress
    from host_client.sandbox.sandbox import Sandbox
    from host_client.stores.contract import ConversationRecord
    from host_client.stores.layout import TranscriptFunctions

pytestmark = pytest.mark.anyio

CHILD = f"{ID}/subagents/agent-x.jsonl"


@asynccontextmanager
async def sandbox_of(directory: Path, workspace: str = "workspace") -> AsyncIterator[Sandbox]:
    """Serve `home` and a workspace of a directory."""
    for name in ("home", workspace):
        (directory / name).mkdir(parents=True, exist_ok=True)
    async with connect(LocalTarget(directory / "home", directory / workspace)) as sandbox:
        yield sandbox


class Host:
    """A host's home with a conversation, its repository, and the directory of a sandbox."""

    def __init__(self, tmp_path: Path, layout: TranscriptFunctions, content: bytes | None = None) -> None:
        self.store = TranscriptConversations(layout)
        self.home, self.repository, self.other = tmp_path / "host", tmp_path / "repo", tmp_path / "b"
        self.repository.mkdir()
        self.folder = self.home / ".mycli/sessions"
        if layout.root:
            self.folder /= "repo"
        content = lines(str(self.repository)) if content is None else content
        self.path = write_transcript(self.folder, content)
        self.context = ConversationContext(conversation_home=self.home, repository=self.repository)
        self.placed = self.other / "home/.mycli/sessions" / ("workspace" if layout.root else "")

    async def locate(self) -> ConversationRecord:
        """Return the record of the conversation."""
        return await self.store.locate(ID, self.context)


@pytest.mark.parametrize("layout", [LAYOUT, WITH_SIDECARS, IN_BUCKETS], ids=["plain", "sidecars", "buckets"])
async def test_a_conversation_of_the_host_goes_to_a_sandbox(tmp_path: Path, layout: TranscriptFunctions) -> None:
    """The files arrive relocated, private and new; the host's are untouched; a second restore changes nothing."""
    host = Host(tmp_path, layout)
    old = 1_000_000_000
    os.utime(host.path, (old, old))
    before = files_below(host.home)
    record = await host.locate()
    async with sandbox_of(host.other) as sandbox:
        context = replace(host.context, sandbox=sandbox)
        outcome = await host.store.restore(record, context)
        again = await host.store.restore(record, context)
        assert [item async for item in host.store.list_recovery(context)] == []
    workspace = str(host.other / "workspace")
    expected = {f"{ID}.jsonl": lines(workspace)}
    if layout.sidecars:
        # The child was recorded elsewhere than the transcript it belongs to: its values are not those of the origin.
        expected[CHILD] = lines(count=1)
    assert files_below(host.placed) == expected
    placed = host.placed / f"{ID}.jsonl"
    assert placed.stat().st_mode & 0o777 == 0o600
    assert placed.stat().st_mtime > old
    assert (outcome.target, outcome.unchanged, outcome.recovery) == (PurePosixPath(placed), False, "")
    assert outcome.relocated == [str(placed.relative_to(host.other / "home" / (".mycli" if layout.root else "")))]
    assert outcome.files_count == len(expected) == record.files_count
    assert outcome.bytes_count == sum(map(len, expected.values()))
    assert (again.unchanged, again.digest, again.recovery) == (True, outcome.digest, "")
    assert files_below(host.home) == before
    assert host.path.stat().st_mtime == old


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


async def test_the_very_place_it_is_kept_at_is_left_alone(tmp_path: Path) -> None:
    """Restoring to this host's own home and repository sends nothing; another workspace of that home is refused."""
    host = Host(tmp_path, IN_BUCKETS)
    record = await host.locate()
    before = host.path.stat()
    async with connect(LocalTarget(host.home, host.repository)) as sandbox:
        outcome = await host.store.restore(record, replace(host.context, sandbox=sandbox))
        assert (outcome.unchanged, outcome.sent_bytes, outcome.target) == (True, 0, PurePosixPath(host.path))
        assert outcome.digest == record.digest
        with pytest.raises(SessionError) as stale:
            await host.store.restore(replace(record, digest="0" * 64), replace(host.context, sandbox=sandbox))
    assert stale.value.reason == "digest_mismatch"
    assert host.path.stat() == before
    async with connect(LocalTarget(host.home, tmp_path)) as sandbox:
        with pytest.raises(ConflictError) as caught:
            await host.store.restore(record, replace(host.context, sandbox=sandbox))
    assert caught.value.reason == "other_bucket"
    assert [offender.path for offender in caught.value.offenders] == [str(host.path)]


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


async def test_a_restore_needs_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of the user's own home is restored by a context that has nothing but a sandbox."""
    host = Host(tmp_path, IN_BUCKETS)
    monkeypatch.setenv("HOME", str(host.home))
    record = await host.store.locate(ID, ConversationContext(repository=host.repository))
    async with sandbox_of(host.other) as sandbox:
        outcome = await host.store.restore(record, ConversationContext(sandbox=sandbox))
    assert outcome.target == PurePosixPath(host.placed / f"{ID}.jsonl")


def test_programs_that_block_have_the_same(tmp_path: Path) -> None:
    """The blocking façade captures, locates, restores and relays transcripts."""
    host = Host(tmp_path, IN_BUCKETS)
    store = sync.Conversations(host.store)
    for name in ("b", "c", "kept"):
        (tmp_path / name).mkdir()
    with sync.connect(f"local:{host.home},{host.repository}") as a, sync.connect(f"local:{tmp_path / 'b'}") as b:
        kept = tmp_path / "kept"
        record = store.capture(ID, a.context(conversation_home=kept))
        assert store.locate(ID, b.context(conversation_home=kept)).digest == record.digest
        assert not store.restore(record, b.context(conversation_home=kept)).unchanged
        result = sync.relay(a, ID, [b, f"local:{tmp_path / 'c'}"], store)
    assert [delivery.error for delivery in result.outcomes] == [None, None]
    assert [delivery.outcome and delivery.outcome.unchanged for delivery in result.outcomes] == [True, False]


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


async def test_the_variable_of_the_sandbox_leads_and_the_decoy_is_not_touched(tmp_path: Path) -> None:
    """The CLI home is where the environment of the CLI says; what lies in the usual one is neither read nor written."""
    host = Host(tmp_path, IN_BUCKETS)
    decoy = write_transcript(host.other / "home/.mycli/sessions/x")
    before = files_below(decoy.parent)
    record = await host.locate()
    async with sandbox_of(host.other) as sandbox:
        moved = host.other / "workspace/state"
        context = replace(host.context, sandbox=sandbox, variables={"MYCLI_HOME": str(moved)})
        outcome = await host.store.restore(record, context)
        assert [item.path async for item in host.store.list_sessions(context)] == [outcome.target]
    assert outcome.target == PurePosixPath(moved / f"sessions/workspace/{ID}.jsonl")
    assert files_below(decoy.parent) == before


async def test_a_home_that_is_a_link_needs_consent(tmp_path: Path) -> None:
    """The sandbox's CLI home may be a link only when the caller accepts it; the target told is the resolved one."""
    host = Host(tmp_path, IN_BUCKETS)
    real = host.other / "home/dotfiles"
    real.mkdir(parents=True)
    (host.other / "home/.mycli").symlink_to("dotfiles")
    record = await host.locate()
    async with sandbox_of(host.other) as sandbox:
        context = replace(host.context, sandbox=sandbox)
        with pytest.raises(SessionError) as caught:
            await host.store.restore(record, context)
        assert caught.value.reason == "root_symlink"
        outcome = await host.store.restore(record, replace(context, follow_root_link=True))
    assert outcome.target == PurePosixPath(real / f"sessions/workspace/{ID}.jsonl")


async def test_a_transcript_without_a_directory_is_moved_as_it_is(tmp_path: Path) -> None:
    """No line names a working directory: not a byte changes, children included, and a notice says so."""
    host = Host(tmp_path, WITH_SIDECARS, b'{"a":1}\n')
    record = await host.locate()
    assert [notice.reason for notice in record.notices] == ["no_origin"]
    async with sandbox_of(host.other) as sandbox:
        outcome = await host.store.restore(record, replace(host.context, sandbox=sandbox))
    assert [notice.reason for notice in outcome.notices] == ["no_origin"]
    assert outcome.relocated == []
    assert outcome.digest == record.digest
    assert files_below(host.placed) == files_below(host.folder)


@pytest.mark.parametrize("content", [b"", b"\n", b"no json\n"])
async def test_an_empty_transcript_is_no_conversation(tmp_path: Path, content: bytes) -> None:
    """Nothing was said in it: refused by `locate`, unless that is allowed."""
    host = Host(tmp_path, LAYOUT, content)
    with pytest.raises(SessionError) as caught:
        await host.locate()
    assert caught.value.reason == "empty"
    allowed = await host.store.locate(ID, replace(host.context, allow_empty=True))
    assert allowed.bytes_count == len(content)


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


async def test_a_capture_and_locate_agree(tmp_path: Path) -> None:
    """Whatever came, went or grew in the sandbox, the record of a capture is the one that is located and restored."""
    layout = replace(IN_BUCKETS, ends_with_newline=True)
    store = TranscriptConversations(layout)
    folder = tmp_path / "a/home/.mycli/sessions/workspace"
    path = write_transcript(folder)
    (tmp_path / "kept").mkdir()
    context = ConversationContext(conversation_home=tmp_path / "kept")

    def nothing() -> None:
        """Leave all as it is."""

    def grow() -> None:
        path.write_bytes(path.read_bytes() + lines()[:-1])

    def add_child() -> None:
        (folder / ID / "subagents/agent-y.jsonl").write_bytes(lines())

    def lose_child() -> None:
        (folder / CHILD).unlink()

    def begin_anew() -> None:
        path.write_bytes(lines(count=1))

    async with sandbox_of(tmp_path / "a") as source, sandbox_of(tmp_path / "b") as target:
        for change in (nothing, grow, add_child, lose_child, begin_anew):
            change()
            captured = await store.capture(ID, replace(context, sandbox=source))
            located = await store.locate(ID, context)
            assert (located.digest, located.files_count, located.bytes_count, located.source) == (
                captured.digest,
                captured.files_count,
                captured.bytes_count,
                captured.source,
            ), change
            await store.restore(captured, replace(context, sandbox=target))
            placed = (tmp_path / f"b/home/.mycli/sessions/workspace/{ID}.jsonl").read_bytes()
            moved = path.read_bytes().replace(b'"/old"', json.dumps(str(tmp_path / "b/workspace")).encode())
            assert placed.removesuffix(b"\n") == moved.removesuffix(b"\n"), change


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


def test_destinations(tmp_path: Path) -> None:
    """Where it is kept, or where the layout would put a new one; a format that is no name makes no store."""
    host = Host(tmp_path, IN_BUCKETS)
    assert host.store.directory(host.context) == host.folder
    assert host.store.destination(ID, host.context) == host.path
    assert host.store.destination("S2", host.context) == host.folder / "S2.jsonl"
    plain = TranscriptConversations(LAYOUT)
    assert plain.destination("S2", host.context) == host.home / ".mycli/sessions/S2.jsonl"
    with pytest.raises(ConfigurationError) as caught:
        plain.destination("../x", host.context)
    assert caught.value.reason == "invalid_id"
    with pytest.raises(ConfigurationError):
        TranscriptConversations(replace(LAYOUT, format="a/b"))
