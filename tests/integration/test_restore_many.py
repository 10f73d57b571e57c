"""Restores in many sandboxes with real daemons: broken connections, and what the host reads for all of them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client import ConversationContext, Retry, connect, restore_many, sync
from host_client.session import bundle_reader
from support.conversation import ID, files_below, make_session, store
from support.cutting_proxy import cutting_proxy
from support.daemon import running_daemon

if TYPE_CHECKING:
    from pathlib import Path

    from host_client import ConversationRecord

LARGE = {"files/large.bin": os.urandom(3 << 20)}
AT_ONCE = Retry(base_seconds=0.0)


@pytest.fixture
def context(tmp_path: Path) -> ConversationContext:
    """Where the host keeps the conversation."""
    (tmp_path / "kept").mkdir()
    return ConversationContext(conversation_home=tmp_path / "kept", durability="none")


async def _captured(tmp_path: Path, context: ConversationContext) -> ConversationRecord:
    make_session(tmp_path / "source/.mycli", LARGE)
    async with connect(f"local:{tmp_path / 'source'}") as sandbox:
        return await store().capture(ID, replace(context, sandbox=sandbox))


@pytest.mark.anyio
async def test_a_broken_connection_goes_on_where_it_was(tmp_path: Path, context: ConversationContext) -> None:
    """The second attempt of one target sends only the rest; the other target knows nothing of it."""
    record = await _captured(tmp_path, context)
    (tmp_path / "other").mkdir()
    with running_daemon(tmp_path) as daemon:
        async with cutting_proxy(daemon.target, [2 << 20]) as (target, proxy):
            first, second = await restore_many(
                record, [target, f"local:{tmp_path / 'other'}"], store(), context, retry=AT_ONCE
            )
        assert proxy.cuts_count == 1
        placed = files_below(daemon.home / ".mycli/sessions" / ID)
    assert (first.attempts_count, second.attempts_count) == (2, 1)
    assert first.outcome
    assert first.outcome.resumed_bytes >= 1 << 20
    assert placed["files/large.bin"] == LARGE["files/large.bin"]


@pytest.mark.anyio
async def test_the_host_reads_the_index_of_a_bundle_once(
    tmp_path: Path, context: ConversationContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of a verified file is shared by all restores of it: neither read again nor held again."""
    record = await _captured(tmp_path, context)

    class Refusing:
        """Stands for the reader of an index."""

        def __init__(self, *_: object) -> None:
            raise AssertionError("the index was read again")

    monkeypatch.setattr(bundle_reader, "BundleIndexer", Refusing)
    homes = [tmp_path / f"sandbox-{number}" for number in range(3)]
    for home in homes:
        home.mkdir()
    ended = await restore_many(record, [f"local:{home}" for home in homes], store(), context)
    assert all(one.outcome for one in ended)


@pytest.mark.anyio
async def test_a_damaged_file_is_found_by_every_restore(tmp_path: Path, context: ConversationContext) -> None:
    """Nothing is handed on that is not what was verified, however the file was changed behind our back."""
    record = await _captured(tmp_path, context)
    found = record.path.stat()
    with record.path.open("r+b") as file:
        file.seek(found.st_size // 2)
        here = file.read(1)
        file.seek(found.st_size // 2)
        file.write(b"B" if here == b"A" else b"A")
    os.utime(record.path, ns=(found.st_atime_ns, found.st_mtime_ns))
    homes = [tmp_path / f"sandbox-{number}" for number in range(2)]
    for home in homes:
        home.mkdir()
    ended = await restore_many(record, [f"local:{home}" for home in homes], store(), context, retry=AT_ONCE)
    assert {one.error and one.error.code for one in ended} == {"session"}
    assert [files_below(home / ".mycli/sessions" / ID) for home in homes] == [{}, {}]


def test_the_blocking_form_takes_connected_sandboxes(tmp_path: Path, context: ConversationContext) -> None:
    """`sync.restore_many`, into one that is connected and one that is named."""
    for name in ("b", "c"):
        (tmp_path / name).mkdir()
    make_session(tmp_path / "source/.mycli", LARGE)
    blocking = sync.Conversations(store())
    with sync.connect(f"local:{tmp_path / 'source'}") as a, sync.connect(f"local:{tmp_path / 'b'}") as b:
        record = blocking.capture(ID, a.context(conversation_home=context.base))
        ended = sync.restore_many(record, [b, f"local:{tmp_path / 'c'}"], blocking, context)
    assert all(one.outcome for one in ended)
    assert ended[0].target is b.asynchronous
