"""Prune and pushes that meet or are killed, at any operation: nothing that a snapshot names is ever missing."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_client import ConflictError
from host_client.stores.archive_survey import ConversationName
from support.faulty_transport import Fault, FaultyTransport
from support.small_archive import DAY_SECONDS, InterposedTransport, SmallArchive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from host_client.stores.archive_prune import PruneReport
    from host_client.transports.contract import Transport

pytestmark = pytest.mark.anyio

OLD, NEW, LEFT, NEXT = (
    {"log": name, "same": b"always the same"} for name in (b"of the old snapshot", b"new", b"left by a push", b"next")
)


class Killed(Exception):  # noqa: N818 - it stands for a signal
    """The process ends here."""


def _killed(scene: SmallArchive, number: int, *, has_effect: bool) -> FaultyTransport:
    """Return the store of a process that is killed at an operation, before or after that takes effect."""
    if has_effect:
        faults = (Fault(after=Killed(), number=number), Fault(before=Killed(), number=number + 1, times=None))
        return FaultyTransport(scene.transport, *faults)
    return FaultyTransport(scene.transport, Fault(before=Killed(), number=number, times=None))


def _changes(transport: FaultyTransport, number: int) -> bool:
    return transport.operations[number].operation in ("write", "remove")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> SmallArchive:
    """Return an archive in which there is everything to do.

    Data and a manifest that a failed push left; data that was marked long ago, and data that has to be marked; a
    snapshot that goes.
    """
    scene = SmallArchive(tmp_path_factory.mktemp("prepared"))

    async def prepare() -> None:
        await scene.push("one", LEFT)
        await scene.push("one", OLD)
        await scene.archive().prune(keep_last=1)
        scene.let_pass(DAY_SECONDS)
        await scene.archive().prune(keep_last=1)  # marks what was left
        scene.let_pass(DAY_SECONDS)
        await scene.push("gone", {"log": b"a push that failed"})
        await scene.transport.remove(scene.layout.index_key("mycli", "gone"))
        scene.let_pass(DAY_SECONDS)
        await scene.push("one", NEW)

    asyncio.run(prepare())
    return scene


def _copies(prepared: SmallArchive, tmp_path: Path) -> Iterator[tuple[int, SmallArchive]]:
    for number in itertools.count():
        yield number, SmallArchive(shutil.copytree(prepared.directory, tmp_path / str(number)))


async def _prune(scene: SmallArchive, transport: Transport | None = None, grace_seconds: int = 3600) -> PruneReport:
    return await scene.archive(transport).prune(keep_last=1, grace_seconds=grace_seconds)


async def _check_whole(scene: SmallArchive) -> None:
    report = await scene.archive().verify()
    assert report.is_whole, report.findings


async def _check_ended(scene: SmallArchive, *, runs_count: int = 3) -> None:
    """Let prune come to its end, and make sure that nothing is left but what is needed."""
    for _ in range(runs_count):  # they take out of the index, mark, remove
        await _prune(scene)
        scene.let_pass(2 * 3600)
    report = await scene.archive().verify()
    assert (report.is_whole, report.unreferenced_count, report.unindexed) == (True, 0, [])
    assert not await scene.keys("marks")
    assert not runs_count or not await scene.keys("probe")  # they go when they are old


async def test_what_is_prepared_is_what_the_tests_need(prepared: SmallArchive, tmp_path: Path) -> None:
    """One run marks, removes marked data and a manifest, and takes a snapshot out."""
    _, scene = next(_copies(prepared, tmp_path))
    assert len(await scene.keys("marks")) == 1
    report = await _prune(scene)
    assert (len(report.removed), report.removed_count, report.marked_count) == (1, 2, 2)
    await _check_ended(scene)


@pytest.mark.parametrize("has_effect", [False, True])
@pytest.mark.parametrize("grace_seconds", [0, 3600])
async def test_a_prune_that_is_killed(
    prepared: SmallArchive, tmp_path: Path, grace_seconds: int, *, has_effect: bool
) -> None:
    """At every operation: the archive is whole, its newest snapshot can be read, and the next run ends what is left."""
    for number, scene in _copies(prepared, tmp_path):
        transport = _killed(scene, number, has_effect=has_effect)
        try:
            await _prune(scene, transport, grace_seconds)
        except Killed:
            if has_effect and not _changes(transport, number):
                continue  # the same as a kill before the next operation
            await _check_whole(scene)
            await _prune(scene, grace_seconds=grace_seconds)
            await _check_ended(scene, runs_count=3 if grace_seconds else 0)
            assert await scene.restored("one") == NEW
        else:
            break
    assert number > 15


@pytest.mark.parametrize("has_effect", [False, True])
async def test_a_push_that_is_killed(prepared: SmallArchive, tmp_path: Path, *, has_effect: bool) -> None:
    """At every operation: the archive is whole, has the old or the new snapshot, and what was left goes in time."""
    for number, scene in _copies(prepared, tmp_path):
        transport = _killed(scene, number, has_effect=has_effect)
        try:
            await scene.push("one", NEXT, transport=transport)
        except Killed:
            if has_effect and not _changes(transport, number):
                continue
            await _check_whole(scene)
            assert await scene.restored("one") in (NEW, NEXT)
            scene.let_pass(2 * 3600)
            await _check_ended(scene)
            await scene.push("one", NEXT)
            assert await scene.restored("one") == NEXT
        else:
            break
    assert number > 5


@pytest.mark.parametrize("grace_seconds", [0, 3600])
async def test_a_push_between_any_two_operations_of_a_prune(
    prepared: SmallArchive, tmp_path: Path, grace_seconds: int
) -> None:
    """Pushes of what prune is about to remove, to the conversation and to another: both are whole to the end.

    The conversation that was written to is skipped if it was about to lose a snapshot.
    """
    skipped_count = 0
    for number, scene in _copies(prepared, tmp_path):

        async def push(scene: SmallArchive = scene) -> None:
            await scene.push("one", LEFT)
            await scene.push("two", OLD)

        transport = InterposedTransport(scene.transport, number, push)
        report = await _prune(scene, transport, grace_seconds)
        if not transport.has_acted:
            break
        if report.skipped:
            assert report.skipped == [ConversationName("mycli", "one")]
            assert not report.removed
            assert len((await scene.index("one")).entries) == 3
            skipped_count += 1
        await _check_whole(scene)
        await _check_ended(scene)
        assert await scene.restored("one") == LEFT
        assert await scene.restored("two") == OLD
    assert number > 15
    assert skipped_count > 0


async def test_a_prune_between_any_two_operations_of_a_push(prepared: SmallArchive, tmp_path: Path) -> None:
    """A writer that began before objects were marked and publishes after it has them written again."""
    for number, scene in _copies(prepared, tmp_path):
        contents = {"log": b"a push that failed", "other": OLD["log"]}
        transport = InterposedTransport(scene.transport, number, partial(_prune, scene))
        with suppress(ConflictError):  # prune took a snapshot out of the index that the push is to replace
            await scene.push("one", contents, transport=transport)
        if not transport.has_acted:
            break
        if (await scene.restored("one")) == NEW:
            await scene.push("one", contents)
        await _check_whole(scene)
        await _check_ended(scene)
        assert await scene.restored("one") == contents
    assert number > 5


async def test_a_prune_between_any_two_operations_of_a_fork(prepared: SmallArchive, tmp_path: Path) -> None:
    """The snapshot that is forked goes meanwhile: the fork has its data all the same, to the end."""
    for number, scene in itertools.islice(_copies(prepared, tmp_path), 1, None):  # after the index was read
        old = (await scene.index("one")).entries[0].snapshot_id
        transport = InterposedTransport(scene.transport, number, partial(_prune, scene))
        await scene.fork("one", old, "fork", transport=transport)
        if not transport.has_acted:
            break
        await _check_whole(scene)
        await _check_ended(scene)
        assert await scene.restored("fork") == OLD
    assert number > 4


@pytest.mark.parametrize("grace_seconds", [0, 3600])
async def test_a_prune_between_any_two_operations_of_another(
    prepared: SmallArchive, tmp_path: Path, grace_seconds: int
) -> None:
    """Two runs at once, by other rules: what is needed stays, and both come to an end."""
    for number, scene in _copies(prepared, tmp_path):
        action = partial(_prune, scene, grace_seconds=grace_seconds)
        transport = InterposedTransport(scene.transport, number, action)
        await scene.archive(transport).prune(garbage_only=True, grace_seconds=3600)
        if not transport.has_acted:
            break
        await _check_whole(scene)
        assert await scene.restored("one") == NEW
        await _check_ended(scene)
    assert number > 15


async def test_a_push_looks_for_marks_once_more_before_it_publishes(prepared: SmallArchive, tmp_path: Path) -> None:
    """It counted on an object, prune marked that, and a later prune is about to remove it: it is written again."""
    contents = {"log": b"a push that failed"}
    copies = _copies(prepared, tmp_path)
    _, rehearsed = next(copies)
    transport = FaultyTransport(rehearsed.transport)
    await rehearsed.push("two", contents, transport=transport)
    (number,) = (at for at, call in enumerate(transport.operations) if "/snapshots/" in call.key)

    _, scene = next(copies)
    removal = Fault(operation="remove", key="data/", hold=asyncio.Event(), times=None)
    async with asyncio.TaskGroup() as group:

        async def mark_and_begin_to_remove() -> None:
            await _prune(scene)
            scene.let_pass(3600)
            group.create_task(_prune(scene, FaultyTransport(scene.transport, removal)))
            await removal.reached.wait()

        transport = InterposedTransport(scene.transport, number, mark_and_begin_to_remove)
        await scene.push("two", contents, transport=transport)
        assert transport.has_acted
        assert removal.hold is not None
        removal.hold.set()
    await _check_whole(scene)
    assert await scene.restored("two") == contents
    await _check_ended(scene)


def test_a_prune_and_a_push_that_overlap(prepared: SmallArchive, tmp_path: Path) -> None:
    """Either begins, stops at any operation while the other gets as far as any of its own, and both go on."""
    numbers = itertools.count()
    contents = {"log": b"a push that failed", "other": OLD["log"]}

    @settings(max_examples=25)
    @given(st.integers(0, 12), st.integers(0, 30))
    def check(push_number: int, prune_number: int) -> None:
        scene = SmallArchive(shutil.copytree(prepared.directory, tmp_path / str(next(numbers))))

        async def overlap() -> None:
            push_goes_on, prune_goes_on = asyncio.Event(), asyncio.Event()
            push_waits = Fault(number=push_number, hold=push_goes_on)
            prune_waits = Fault(number=prune_number, hold=prune_goes_on)

            async def push() -> None:
                try:
                    await scene.push("two", contents, transport=FaultyTransport(scene.transport, push_waits))
                finally:
                    push_waits.reached.set()

            async def prune() -> None:
                try:
                    await _prune(scene, FaultyTransport(scene.transport, prune_waits))
                finally:
                    prune_waits.reached.set()

            async with asyncio.TaskGroup() as group:
                pushing = group.create_task(push())
                await push_waits.reached.wait()
                pruning = group.create_task(prune())
                await prune_waits.reached.wait()
                push_goes_on.set()
                await pushing
                prune_goes_on.set()
                await pruning
            await _check_whole(scene)
            await _check_ended(scene)
            assert await scene.restored("two") == contents
            assert await scene.restored("one") == NEW

        asyncio.run(overlap())

    check()
    assert next(numbers) > 1
