"""Transcript conversations moved between this host and private daemons by their store."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client import sync
from host_client.errors import ConfigurationError, ConflictError, SessionError
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.stores.context import ConversationContext
from host_client.stores.transcript import TranscriptConversations
from support.conversation import files_below
from support.restore_scene import CHILD, Host, sandbox_of
from support.transcript_format import ID, IN_BUCKETS, LAYOUT, WITH_SIDECARS, lines, write_transcript

if TYPE_CHECKING:
    from host_client.stores.layout import TranscriptFunctions

pytestmark = pytest.mark.anyio


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
