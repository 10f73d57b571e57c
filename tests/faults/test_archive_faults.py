"""Pushes into an archive that fail or are killed at every operation of the store, and pushes at the same time.

Whatever happens, the archive verifies clean afterwards, has the old snapshot or the new one, and takes the push again.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConflictError, OutpostError, SessionError
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.context import ConversationContext
from support.archive_hosts import Scene
from support.faulty_transport import Fault, FaultyTransport, damage, flipped, unreachable
from support.small_archive import InterposedTransport, SmallArchive
from support.transcript_format import ID, lines, write_transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

pytestmark = pytest.mark.anyio

KEY = ArchiveKey(bytes(range(32)))
CHUNKED = bytes(range(256)) * 800
"""Of two chunks: 200 KiB, and what is added to it."""

OLD = {"a.json": b"{}", "log.jsonl": CHUNKED}
NEW = {"a.json": b"{1}", "log.jsonl": CHUNKED + b"more\n" * 40_000, "z.bin": os.urandom(40_000)}


def scene_of(tmp_path: Path, key: ArchiveKey | None = None) -> SmallArchive:
    """Return an empty archive."""
    tmp_path.mkdir(exist_ok=True)
    return SmallArchive(tmp_path, key=key)


async def operations_count(tmp_path: Path) -> int:
    """Tell how many operations the push of the new state has."""
    scene = scene_of(tmp_path)
    await scene.push("c", OLD)
    counting = FaultyTransport(scene.transport)
    await scene.push("c", NEW, transport=counting)
    assert {call.operation for call in counting.operations} == {"read", "list", "stat", "write"}
    return len(counting.operations)


async def check(scene: SmallArchive) -> None:
    """Make sure that the archive is whole, and takes the push again."""
    report = await scene.archive().verify()
    assert not report.findings
    restored = await scene.restored("c")
    assert restored in (OLD, NEW)
    if restored == OLD:
        await scene.push("c", NEW)
    assert await scene.restored("c") == NEW
    first = (await scene.index("c")).entries[0]
    assert await scene.restored("c", first.snapshot_id) == OLD
    assert not (await scene.archive().verify()).findings


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_push_that_fails_at_any_operation(tmp_path: Path, when: str) -> None:
    """An answer that never comes, or is lost once the operation took effect, leaves the old state or the new one."""
    count = await operations_count(tmp_path / "count")
    for number in range(count):
        scene = scene_of(tmp_path / f"{number}", KEY if number % 2 else None)
        await scene.push("c", OLD)
        fault = Fault(number=number, times=None, **{when: unreachable()})
        with pytest.raises(OutpostError):
            await scene.push("c", NEW, transport=FaultyTransport(scene.transport, fault))
        assert fault.reached.is_set()
        await check(scene)


async def test_a_push_that_is_killed_at_any_operation(tmp_path: Path) -> None:
    """A process that is killed leaves the old state or the new one."""
    count = await operations_count(tmp_path / "count")
    for number in range(count):
        scene = scene_of(tmp_path / f"{number}")
        await scene.push("c", OLD)
        assert killed(scene, number)
        await check(scene)


def killed(scene: SmallArchive, number: int) -> bool:
    """Push in a child that is killed right before an operation; tell whether it was."""

    async def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    child = forked(lambda: scene.push("c", NEW, transport=InterposedTransport(scene.transport, number, kill)))
    return ended(child) == -signal.SIGKILL


def ended(child: int) -> int:
    """Wait for a child; return its exit status, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def forked(push: Callable[[], Coroutine[object, object, object]]) -> int:
    """Push in a child, which ends with 0 when it won, with 3 when somebody else was faster, and else with 1."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        # Threads of other tests' gRPC objects are not here: to collect one of these would wait for them for ever.
        gc.disable()
        asyncio._set_running_loop(None)  # that of the parent
        asyncio.new_event_loop().run_until_complete(push())
        status = 0
    except ConflictError as error:
        status = 3 if error.reason == "stale_revision" else 1
    finally:
        os._exit(status)


async def test_of_two_processes_exactly_one_wins(tmp_path: Path) -> None:
    """Two processes that meet right before they write the index: one wins, the other is told, nothing is lost."""
    scene = scene_of(tmp_path)
    await scene.push("c", OLD)
    together = multiprocessing.get_context("fork").Barrier(2, timeout=60)

    class MeetingTransport(FaultyTransport):
        async def write(self, key: str, data: bytes, *, if_revision: str | None) -> str:
            if key.endswith("/index"):
                together.wait()
            return await super().write(key, data, if_revision=if_revision)

    pushed = [NEW, {**NEW, "b.json": b"[]"}]
    children = [
        forked(lambda one=one: scene.push("c", one, transport=MeetingTransport(scene.transport))) for one in pushed
    ]
    statuses = [ended(child) for child in children]
    assert sorted(statuses) == [0, 3]
    assert await scene.restored("c") == pushed[statuses.index(0)]
    assert len((await scene.index("c")).entries) == 2
    assert not (await scene.archive().verify()).findings
    await scene.push("c", pushed[statuses.index(3)])
    assert await scene.restored("c") == pushed[statuses.index(3)]


async def test_of_two_archivers_exactly_one_wins(tmp_path: Path) -> None:
    """Both begin with the same index; the slower one is told so, changes nothing, and is taken when it comes again."""
    scene = Scene(tmp_path)
    path = write_transcript(scene.home() / ".mycli/sessions", lines(count=2))
    async with scene.sandbox() as context:
        await scene.archive("a").capture(ID, context)
        path.write_bytes(lines(count=3))
        hold = Fault(operation="write", key="conversations/", hold=asyncio.Event())
        slow = scene.archive("slow", transport=FaultyTransport(scene.transport.inner, hold))
        losing = asyncio.create_task(slow.capture(ID, context))
        await hold.reached.wait()
        path.write_bytes(lines(count=4))
        won = await scene.archive("b").capture(ID, context)
        assert hold.hold is not None
        hold.hold.set()
        with pytest.raises(ConflictError) as caught:
            await losing
        assert caught.value.reason == "stale_revision"
        assert "capture again" in caught.value.hint
        again = await slow.capture(ID, context)
    assert again.digest == won.digest
    assert again.unchanged
    assert [entry.diverged for entry in await slow.history(ID)] == [False, False]


async def test_first_snapshots_at_once_are_one(tmp_path: Path) -> None:
    """Where there is no index yet, one of two makes it, and the other one is told."""
    scene = scene_of(tmp_path)
    found = await asyncio.gather(scene.push("c", OLD), scene.push("c", NEW), return_exceptions=True)
    failures = [one for one in found if isinstance(one, BaseException)]
    assert len(failures) == 1
    assert isinstance(failures[0], ConflictError)
    assert failures[0].reason == "stale_revision"
    assert len((await scene.index("c")).entries) == 1
    assert not (await scene.archive().verify()).findings


async def test_damage_of_any_object_is_told(tmp_path: Path) -> None:
    """A bit flipped in any object, or one that is missing, is an error for whoever locates; never less data."""
    for key in (None, KEY):
        hosts = Scene(tmp_path / ("encrypted" if key else "plain"))
        write_transcript(hosts.home() / ".mycli/sessions", lines(count=2))
        async with hosts.sandbox() as context:
            await hosts.archive(key=key).capture(ID, context)
        store = hosts.transport.inner
        keys = [info.key async for info in store.list()]
        assert len(keys) >= 3
        for number, name in enumerate(keys):
            found = await store.read(name)
            assert found is not None
            for at in (0, len(found.data) // 2, -1):
                await damage(store, name, flipped(at))
                with pytest.raises(SessionError) as caught:
                    await hosts.archive(f"f{number}{at}", key=key).locate(ID, ConversationContext())
                assert caught.value.reason in ("corrupt", "digest_mismatch")
                await damage(store, name, flipped(at))
            await store.remove(name)
            with pytest.raises(SessionError) as caught:
                await hosts.archive(f"m{number}", key=key).locate(ID, ConversationContext())
            assert caught.value.reason == ("not_found" if name.endswith("/index") else "missing_object")
            assert name in str(caught.value.facts.get("key"))
            await store.write(name, found.data, if_revision=None)
        await hosts.archive("z", key=key).locate(ID, ConversationContext())
