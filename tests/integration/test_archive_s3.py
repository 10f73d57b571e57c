"""An archive in a real S3 server: hosts that share it, through a store that fails now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConflictError
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.archive_maintenance import ConversationArchive
from host_client.stores.context import ConversationContext
from host_client.transports.retry import RetryingTransport
from host_client.transports.url import open_transport
from support.archive_hosts import NAMESPACE, Scene
from support.faulty_transport import Fault, FaultyTransport, unreachable
from support.transcript_format import ID, lines, write_transcript

if TYPE_CHECKING:
    from pathlib import Path

    from support.object_store import S3Server

pytestmark = pytest.mark.anyio

KEY = ArchiveKey(bytes(range(32)))


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
async def test_hosts_share_an_archive(tmp_path: Path, s3_server: S3Server, key: ArchiveKey | None) -> None:
    """What one host archives another one restores and goes on with; who comes too late is told; all of it verifies."""
    url = s3_server.place()
    scene = Scene(tmp_path)
    write_transcript(scene.home("a") / ".mycli/sessions", lines(count=2000))
    a, b = (scene.archive(name, key=key, transport=open_transport(url)) for name in ("a", "b"))
    async with scene.sandbox("a") as first, scene.sandbox("b", "elsewhere") as second:
        await a.capture(ID, first)
        await b.restore(await b.locate(ID, ConversationContext()), second)
        there = scene.home("b") / f".mycli/sessions/{ID}.jsonl"
        with there.open("ab") as file:
            file.write(b'{"said": "in b"}\n')
        await b.capture(ID, second)
        with pytest.raises(ConflictError) as caught:
            await a.capture(ID, first)
        assert caught.value.reason == "behind"
        await a.restore(await a.locate(ID, ConversationContext()), first)
        assert (await a.capture(ID, first)).unchanged
    assert [entry.diverged for entry in await a.history(ID)] == [False, False]
    report = await ConversationArchive(open_transport(url), NAMESPACE, key).verify()
    assert not report.findings
    assert report.snapshots_count == 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_failures_that_pass_are_outlasted(tmp_path: Path, s3_server: S3Server, when: str) -> None:
    """A write that was not answered is looked after: neither a snapshot too many nor one too few comes of it."""
    scene = Scene(tmp_path)
    write_transcript(scene.home("a") / ".mycli/sessions", lines(count=2))
    faults = [Fault(operation="write", key=prefix, **{when: unreachable()}) for prefix in ("data/", "conversations/")]
    faulty = FaultyTransport(open_transport(s3_server.place()), *faults)
    archive = scene.archive(transport=RetryingTransport(faulty, base_seconds=0.001))
    async with scene.sandbox("a") as context:
        record = await archive.capture(ID, context)
    assert all(fault.reached.is_set() for fault in faults)
    assert [entry.digest for entry in await archive.history(ID)] == [record.digest]
