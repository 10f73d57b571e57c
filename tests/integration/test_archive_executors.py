"""Archived conversations restored through executors: each worker opens the archive by itself, once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError
from host_client.fleet import worker as workers_module
from host_client.fleet.executor import restore_through
from host_client.fleet.job import ArchiveSource, RestoreJob
from host_client.fleet.retry import Retry
from host_client.sandbox.sandbox import connect
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.context import ConversationContext
from host_client.transports.local import LocalTransport
from host_client.transports.url import open_transport
from support.conversation import EXTRA, ID
from support.executor import dask_workers, performed_by_a_fork, spawned
from support.faulty_transport import FaultyTransport
from support.fleet_scene import Fleet, restored, store

if TYPE_CHECKING:
    from support.object_store import S3Server

pytestmark = pytest.mark.anyio

NAMESPACE = "team"


@pytest.fixture(scope="module", autouse=True)
def _tracked() -> None:
    """Start what spawned processes need before any test is looked at for what it leaves."""
    resource_tracker.ensure_running()


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A conversation in a sandbox, and other sandboxes."""
    return Fleet.make(tmp_path)


async def _archive(fleet: Fleet, source: ArchiveSource) -> str:
    """Archive the conversation; return the snapshot's id."""
    transport = open_transport(source.url)
    archived = await asyncio.to_thread(source.conversations, store(), transport)
    async with connect(f"local:{fleet.directory / 'source'}") as sandbox:
        await archived.capture(ID, ConversationContext(sandbox=sandbox))
    return (await archived.history(ID))[-1].snapshot_id


async def test_a_snapshot_is_fetched_once_for_all_targets(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many jobs in one process the first reads the archive, by one transport; the others take the copy."""
    source = ArchiveSource(url=f"file://{fleet.directory}/store", namespace=NAMESPACE, cache=fleet.directory / "cache")
    (fleet.directory / "store").mkdir()
    await _archive(fleet, source)
    opened: list[FaultyTransport] = []

    def counted(url: str) -> FaultyTransport:
        assert url == source.url
        opened.append(FaultyTransport(LocalTransport(fleet.directory / "store")))
        return opened[-1]

    monkeypatch.setattr(workers_module, "open_transport", counted)
    monkeypatch.setattr(workers_module, "_process", workers_module._Process())
    fetched = ArchiveSource(url=source.url, namespace=NAMESPACE, cache=fleet.directory / "another cache")
    targets = fleet.targets(4)
    with ThreadPoolExecutor(2) as threads:
        ended = await restore_through(threads, [fleet.job(target, archive=fetched) for target in targets])
    assert [one.error for one in ended] == [None] * 4
    assert all(restored(target) == EXTRA for target in targets)
    (transport,) = opened
    data = [operation.key for operation in transport.operations if operation.key.startswith("data/")]
    assert data
    assert len(data) == len(set(data)), "an object was read more than once"


async def test_older_snapshots_and_keys_reach_the_workers(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot is chosen by its id, the key is the worker's own; without it the outcome says so."""
    (fleet.directory / "store").mkdir()
    key_path = fleet.directory / "key"
    key = ArchiveKey.generate()
    key_path.write_text(key.text)
    key_path.chmod(0o600)
    place = {"url": f"file://{fleet.directory}/store", "namespace": NAMESPACE, "cache": fleet.directory / "cache"}
    by_file = ArchiveSource(**place, key_path=key_path)  # type: ignore[arg-type]
    first = await _archive(fleet, by_file)
    added = fleet.directory / "source/.mycli/sessions" / ID / "files/later"
    added.write_bytes(b"later")
    await _archive(fleet, by_file)
    monkeypatch.setenv("TEAM_KEY", key.text)
    by_variable = ArchiveSource(**place, key_variable="TEAM_KEY")  # type: ignore[arg-type]
    without = ArchiveSource(**place)  # type: ignore[arg-type]
    old, new, refused = fleet.targets(3)
    jobs = [
        RestoreJob(target=old, format=store, conversation_id=ID, archive=by_variable, snapshot=first),
        fleet.job(new, archive=by_file),
        fleet.job(refused, archive=without),
    ]
    with spawned() as processes:
        ended = await restore_through(processes, jobs, retry=Retry(attempts_count=1))
    assert [one.error and (one.error.code, one.error.reason) for one in ended] == [
        None,
        None,
        ("configuration", "wrong_key"),
    ]
    assert restored(old) == EXTRA
    assert restored(new) == {**EXTRA, "files/later": b"later"}


def test_a_key_is_in_one_place() -> None:
    """Two are refused: nobody would know which one it was."""
    with pytest.raises(ConfigurationError, match="in two places"):
        ArchiveSource(url="memory://a", namespace="a", key_path=Path("/k"), key_variable="K")


async def test_a_forked_worker_of_a_process_with_object_stores_is_refused(fleet: Fleet) -> None:
    """Their library would wait for ever there: the worker says what to do instead, before it asks for anything."""
    open_transport("memory://parent")
    source = ArchiveSource(url="memory://child", namespace=NAMESPACE, cache=fleet.directory / "cache")
    ended = await performed_by_a_fork(fleet.job("nowhere", archive=source))
    assert ended.error
    assert (ended.error.code, ended.error.reason) == ("configuration", "invalid_argument")
    assert "object stores" in ended.error.message
    assert "spawn" in ended.error.hint


async def test_workers_of_dask_restore_from_a_real_object_store(
    fleet: Fleet, s3_server: S3Server, tmp_path: Path
) -> None:
    """Several processes, each with its own connections to S3 and to its sandboxes."""
    source = ArchiveSource(url=s3_server.place(), namespace=NAMESPACE, cache=tmp_path / "cache")
    await _archive(fleet, source)
    fetched = ArchiveSource(url=source.url, namespace=NAMESPACE, cache=tmp_path / "another cache")
    targets = fleet.targets(4)
    with dask_workers(tmp_path) as workers:
        ended = await restore_through(workers, [fleet.job(target, archive=fetched) for target in targets])
    assert [one.error for one in ended] == [None] * 4
    assert all(restored(target) == EXTRA for target in targets)
