"""Repeated calls: how often, with which pauses, and what a lost answer does not change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConflictError, LimitError, OutpostError, SessionError, UnavailableError
from host_client.transports.local import LocalTransport
from host_client.transports.retry import RetryingTransport
from support.faulty_transport import Fault, FaultyTransport, unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from host_client.transports.contract import ObjectInfo, Transport

pytestmark = pytest.mark.anyio


class Scene:
    """A transport that repeats, on a clock of its own.

    Args:
        directory: Where objects are.
        faults: What goes wrong.
        limits: Of the transport.
    """

    def __init__(self, directory: Path, *faults: Fault, **limits: float) -> None:
        self.pauses: list[float] = []
        self.seconds = 0.0
        self.plain = LocalTransport(directory)
        self.faulty = FaultyTransport(self.plain, *faults)
        self.transport: Transport = RetryingTransport(
            self.faulty, sleep=self._sleep, clock=lambda: self.seconds, jitter=lambda: 1.0, **limits
        )

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds


@pytest.fixture
def scene(tmp_path: Path) -> Callable[..., Scene]:
    """Make scenes."""
    return lambda *faults, **limits: Scene(tmp_path, *faults, **limits)


async def test_what_failed_for_now_is_repeated(scene: Callable[..., Scene]) -> None:
    """Each call goes on after failures that may be repeated."""
    seen = scene(*(Fault(before=unreachable(), operation=name) for name in ("read", "stat", "write", "remove", "list")))
    await seen.transport.write("a/b", b"x", if_revision=None)
    assert await seen.transport.read("a/b") is not None
    assert await seen.transport.stat("a/b") is not None
    assert [found.key async for found in seen.transport.list("a")] == ["a/b"]
    await seen.transport.remove("a/b")
    assert await seen.plain.read("a/b") is None
    assert len(seen.pauses) == 5


async def test_pauses_grow_and_are_random(scene: Callable[..., Scene]) -> None:
    """Each pause is drawn from nothing to twice as much as before, up to the limit; then the failure is told."""
    seen = scene(
        Fault(before=unreachable(), times=None),
        max_attempts_count=6,
        base_seconds=1,
        max_pause_seconds=5,
        max_seconds=99,
    )
    with pytest.raises(UnavailableError) as caught:
        await seen.transport.read("a")
    assert caught.value.reason == "store_unreachable"
    assert seen.pauses == [1, 2, 4, 5, 5]
    jitters = iter([0.0, 0.5, 1.0])
    transport = RetryingTransport(
        seen.faulty, sleep=seen._sleep, jitter=lambda: next(jitters), max_attempts_count=4, base_seconds=1
    )
    seen.pauses.clear()
    with pytest.raises(UnavailableError):
        await transport.stat("a")
    assert seen.pauses == [0, 1, 4]


async def test_the_whole_call_is_limited(scene: Callable[..., Scene]) -> None:
    """No attempt begins after the time that a call may take."""
    seen = scene(Fault(before=unreachable(), times=None), max_attempts_count=100, base_seconds=1, max_seconds=10)
    with pytest.raises(UnavailableError):
        await seen.transport.write("a", b"", if_revision=None)
    assert seen.seconds <= 10
    assert len(seen.faulty.operations) == 4


@pytest.mark.parametrize(
    "error",
    [
        ConflictError("stale_revision", "no"),
        SessionError("digest_mismatch", "no"),
        SessionError("incomplete", "no"),
        LimitError("max_bytes", "no"),
        UnavailableError("io", "no"),
    ],
    ids=lambda error: error.reason,
)
async def test_what_stays_as_it_is_is_not_repeated(scene: Callable[..., Scene], error: OutpostError) -> None:
    """Conflicts, damage and limits are told at once."""
    seen = scene(Fault(before=error, times=None))
    for call in (seen.transport.read("a"), seen.transport.write("a", b"", if_revision=None), _keys(seen.transport)):
        with pytest.raises(type(error)):
            await call
    assert seen.pauses == []


async def test_a_lost_answer_of_a_create_is_a_success(scene: Callable[..., Scene]) -> None:
    """The object that is found there is one's own: its revision is given."""
    seen = scene(Fault(after=unreachable(), operation="write", times=3))
    revision = await seen.transport.write("a", b"mine", if_revision=None)
    found = await seen.plain.read("a")
    assert found is not None
    assert (found.data, found.revision) == (b"mine", revision)


async def test_a_lost_answer_of_a_replace_is_a_success(scene: Callable[..., Scene]) -> None:
    """The same where a revision is replaced, also by equal data."""
    seen = scene(Fault(after=unreachable(), number=1, operation="write"))
    first = await seen.transport.write("a", b"same", if_revision=None)
    second = await seen.transport.write("a", b"same", if_revision=first)
    assert second != first
    found = await seen.plain.read("a")
    assert found is not None
    assert found.revision == second


async def test_somebody_elses_write_is_a_conflict(scene: Callable[..., Scene]) -> None:
    """What is found there after a lost answer is compared: other data is somebody else's."""
    seen = scene(Fault(before=unreachable(), operation="write"))
    await seen.plain.write("a", b"theirs", if_revision=None)
    with pytest.raises(ConflictError, match="stale_revision"):
        await seen.transport.write("a", b"mine", if_revision=None)
    found = await seen.plain.read("a")
    assert found is not None
    assert found.data == b"theirs"


async def test_a_first_conflict_is_not_looked_into(scene: Callable[..., Scene]) -> None:
    """Without a lost answer equal data is somebody else's as well, and nothing is read."""
    seen = scene()
    await seen.plain.write("a", b"same", if_revision=None)
    with pytest.raises(ConflictError):
        await seen.transport.write("a", b"same", if_revision=None)
    assert [call.operation for call in seen.faulty.operations] == ["write"]


async def test_a_vanished_object_stays_a_conflict(scene: Callable[..., Scene]) -> None:
    """A replace of what is gone by now is told, although an answer was lost before."""
    seen = scene(Fault(before=unreachable(), operation="write"))
    with pytest.raises(ConflictError):
        await seen.transport.write("a", b"mine", if_revision="gone")


async def test_a_lost_answer_of_a_removal_is_a_success(scene: Callable[..., Scene]) -> None:
    """What an earlier attempt removed is gone."""
    seen = scene(Fault(after=unreachable(), operation="remove", times=2))
    revision = await seen.transport.write("a", b"x", if_revision=None)
    await seen.transport.remove("a", if_revision=revision)
    assert await seen.plain.read("a") is None


async def test_a_removal_spares_what_came_since(scene: Callable[..., Scene]) -> None:
    """After a lost answer another's object of the same key is not removed: its revision is another."""
    seen = scene(Fault(before=unreachable(), operation="remove"))
    revision = await seen.plain.write("a", b"x", if_revision=None)
    await seen.plain.write("a", b"theirs", if_revision=revision)
    with pytest.raises(ConflictError):
        await seen.transport.remove("a", if_revision=revision)
    assert await seen.plain.read("a") is not None


async def test_a_broken_listing_goes_on(scene: Callable[..., Scene]) -> None:
    """A listing that breaks is begun again, and tells no object twice."""
    seen = scene(Fault(after=unreachable(), operation="list", times=2))
    for name in ("a", "b", "c"):
        await seen.transport.write(name, b"", if_revision=None)
    assert sorted(await _keys(seen.transport)) == ["a", "b", "c"]
    assert len(seen.pauses) == 2
    assert seen.transport.name == seen.plain.name


async def _keys(transport: Transport) -> list[str]:
    return [found.key async for found in transport.list()]


class _Endless(FaultyTransport):
    """A store that lists the same objects for ever."""

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """List them."""
        while True:
            async for found in super().list(prefix):
                yield found


async def test_a_listing_without_an_end_is_given_up(tmp_path: Path) -> None:
    """Who lists what it has told already, again and again, is out of order, and nobody waits for it."""
    plain = LocalTransport(tmp_path)
    for number in range(200):
        await plain.write(f"a/{number}", b"x", if_revision=None)
    transport = RetryingTransport(_Endless(plain), max_attempts_count=1)
    listing = transport.list("a")
    told = [(await anext(listing)).key for _ in range(200)]
    with pytest.raises(UnavailableError) as caught:
        await anext(listing)
    assert caught.value.reason == "store_unreachable"
    assert sorted(told) == sorted(f"a/{number}" for number in range(200))
