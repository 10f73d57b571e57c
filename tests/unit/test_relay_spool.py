"""The spool of a relay: who waits for whom, who is given up, what is freed, and when a target's time runs."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from host_client.errors import UnavailableError
from host_client.sandbox.task import in_thread
from host_client.session.punch import punch
from host_client.stores.relay_spool import Spool
from support.wait import until

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from host_client.stores.relay_spool import SpooledFile, SpoolReader

pytestmark = pytest.mark.anyio

MIB = 1 << 20


class Writer:
    """A capture that writes one main transcript into a spool, some MiB at a time."""

    def __init__(self, folder: Path, spool: Spool) -> None:
        self.path = folder / "0"
        self.path.touch()
        self._spool = spool
        self._staging = cast("Any", SimpleNamespace(folder=SimpleNamespace(host_path=folder)))
        spool.open(cast("Any", SimpleNamespace(host_path=folder / "home")), cast("Any", "main"))
        self.file: SpooledFile = spool.begin(cast("Any", "main"), "transcript", self._staging, "0")

    def write(self, mebibytes_count: int) -> None:
        """Append."""
        with self.path.open("ab") as file:
            file.write(os.urandom(MIB) * mebibytes_count)
        staged = SimpleNamespace(written_bytes=self.path.stat().st_size)
        self._spool.grow(self.file, cast("Any", staged))


def read(pieces: Any) -> int:
    """Read until nothing is there, and return how much that was."""
    size = 0
    while piece := next(pieces):
        size += len(piece)
    return size


async def hang(reader: SpoolReader, action: Awaitable[None]) -> None:
    """Read for ever, as a target that is stuck, after an action."""
    async with asyncio.timeout(None) as limit:
        with reader.within(limit):
            await action
            await asyncio.Event().wait()


async def test_who_is_far_behind_the_fastest_is_given_up_and_its_part_freed(tmp_path: Path) -> None:
    """The reader's time is over, it holds nothing back any more, and the file's blocks are free behind the other."""
    spool = Spool(16 * MIB)
    fast, slow = spool.reader(), spool.reader()
    writer = Writer(tmp_path, spool)
    await in_thread(writer.write, 24)

    async def read_all() -> None:
        assert await in_thread(read, fast.pieces(writer.file)) == 24 * MIB

    with pytest.raises(TimeoutError):
        await hang(slow, read_all())
    assert slow.failure is not None
    assert (slow.failure.code, slow.failure.reason) == ("limit", "max_spool_bytes")
    assert fast.failure is None
    assert writer.path.stat().st_size == 24 * MIB
    assert writer.path.stat().st_blocks * 512 <= 8 * MIB


async def test_a_reader_given_up_before_it_begins_ends_at_once(tmp_path: Path) -> None:
    """A target that is still connecting when it is given up has no time any more."""
    spool = Spool(2)
    fast, late = spool.reader(), spool.reader()
    writer = Writer(tmp_path, spool)
    await in_thread(writer.write, 8)
    await in_thread(read, fast.pieces(writer.file))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await hang(late, asyncio.sleep(0))
    assert late.failure is not None


async def test_a_writer_waits_only_for_the_fastest(tmp_path: Path) -> None:
    """It goes on as soon as one reader does, and when all are gone."""
    spool = Spool(8 * MIB)
    fast, slow = spool.reader(), spool.reader()
    writer = Writer(tmp_path, spool)
    await spool.pace()
    await in_thread(writer.write, 5)
    waiting = asyncio.ensure_future(spool.pace())
    await asyncio.sleep(0)
    assert not waiting.done()
    reading = fast.pieces(writer.file)
    for _ in range(3):
        await in_thread(next, reading)
    await waiting
    await in_thread(writer.write, 5)
    waiting = asyncio.ensure_future(spool.pace())
    await asyncio.sleep(0)
    assert not waiting.done()
    fast.leave()
    slow.leave()
    await waiting
    await in_thread(reading.close)


async def test_what_is_kept_for_later_readers_is_neither_freed_nor_bounded(tmp_path: Path) -> None:
    """With readers that begin later nobody is given up, nothing is freed, and the writer never waits."""
    spool = Spool(1, keeps_all=True)
    first, later = spool.reader(), spool.reader()
    writer = Writer(tmp_path, spool)
    await in_thread(writer.write, 20)
    await spool.pace()
    assert await in_thread(read, first.pieces(writer.file)) == 20 * MIB
    first.leave()
    assert await in_thread(read, later.pieces(writer.file)) == 20 * MIB
    assert later.failure is None
    assert writer.path.stat().st_blocks * 512 >= 20 * MIB


async def test_nothing_is_kept_for_nobody(tmp_path: Path) -> None:
    """When all targets have failed the capture goes on, and what it writes is freed at once."""
    spool = Spool(8 * MIB)
    reader = spool.reader()
    writer = Writer(tmp_path, spool)
    reader.leave()
    await in_thread(writer.write, 20)
    await spool.pace()
    assert writer.path.stat().st_size == 20 * MIB
    assert writer.path.stat().st_blocks * 512 <= 4 * MIB


async def test_a_targets_time_stands_still_while_there_is_nothing_to_read(tmp_path: Path) -> None:
    """Waiting for a slow source costs a target none of its seconds."""
    spool = Spool()
    reader = spool.reader()
    Writer(tmp_path, spool)
    async with asyncio.timeout(100) as limit, asyncio.TaskGroup() as group:
        with reader.within(limit):
            waiting = group.create_task(reader.more())

            async def stands_still() -> bool:
                return limit.when() is None

            await until(stands_still, "the time to stand still")
            reader.wake()
            await waiting
            when = limit.when()
            assert when is not None
            assert 90 < when - asyncio.get_running_loop().time() <= 100


async def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    """A spool that somebody truncates is never read as if it had ended there."""
    spool = Spool()
    reader = spool.reader()
    writer = Writer(tmp_path, spool)
    await in_thread(writer.write, 2)
    os.truncate(writer.path, MIB)
    with pytest.raises(UnavailableError):
        await in_thread(deque, reader.pieces(writer.file), 0)


def test_a_hole_frees_blocks_and_keeps_the_size(tmp_path: Path) -> None:
    """What was punched reads as zeros, the rest as before; an empty range is nothing."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3 * MIB)
    with path.open("r+b") as file:
        punch(file.fileno(), MIB, 2 * MIB)
        punch(file.fileno(), 5, 5)
    assert path.read_bytes() == b"x" * MIB + bytes(MIB) + b"x" * MIB
    assert path.stat().st_blocks * 512 <= 2 * MIB + 65536
