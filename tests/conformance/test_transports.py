"""What every transport keeps to: one suite over directories and object stores, with and without faults."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, ConflictError, LimitError, SessionError
from host_client.transports.contract import MAX_OBJECT_BYTES
from host_client.transports.retry import RetryingTransport
from support.faulty_transport import FaultyTransport, cut, flipped
from support.transport_place import Every
from support.wait import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from host_client.transports.contract import Transport
    from support.transport_place import Place

pytestmark = pytest.mark.anyio

KEY = "conversations/team-1/kimi/index"
ODD_KEYS = [
    "a",
    "-",
    "_._",
    "a..",
    "a.",
    "A/a",
    "a/A",
    "x" * 512,
    f"{'y' * 200}/{'z' * 201}/{'y' * 100}",
    "/".join("a" * 64),
    "con/nul/aux",
    "a.tmp",
    "a.lock",
    "probe",
]
REFUSED_KEYS = ["", "/", "a/", "/a", "a//b", ".", "..", "a/..", "a/../b", ".a", "a/.b", "a\0", "a\n", "a b", "ä", "a!"]
REFUSED_KEYS += ["a" * 513, "a\\b", "a%2e", "\ud800", "*", "a?b"]


@pytest.fixture(params=["alone", "retried"])
def place(request: pytest.FixtureRequest, plain: Callable[[], Place]) -> Place:
    """One place, as it is, or with every second call failing and repeated."""
    place = plain()
    if request.param == "alone":
        return place

    async def sleep(_: float) -> None:
        await asyncio.sleep(0)

    def troubled() -> Transport:
        return RetryingTransport(FaultyTransport(place.open(), Every()), sleep=sleep)

    return replace(place, open=troubled)


@pytest.fixture
def transport(place: Place) -> Transport:
    """One transport."""
    return place.open()


async def keys(transport: Transport, prefix: str = "") -> list[str]:
    """Return what is listed, sorted."""
    return sorted([found.key async for found in transport.list(prefix)])


async def test_what_is_written_is_read(transport: Transport) -> None:
    """Data comes back byte for byte, under the revision that the write gave."""
    revision = await transport.write(KEY, b"data", if_revision=None)
    found = await transport.read(KEY)
    assert found is not None
    assert (found.data, found.revision) == (b"data", revision)


async def test_nothing_is_there_before(transport: Transport) -> None:
    """What was never written is none: read, looked at, listed and removed."""
    assert await transport.read(KEY) is None
    assert await transport.stat(KEY) is None
    assert await keys(transport) == []
    assert await keys(transport, "conversations") == []
    await transport.remove(KEY)


async def test_an_object_is_created_once(transport: Transport) -> None:
    """Who creates what is there already gets a conflict, and it stays as it was."""
    revision = await transport.write(KEY, b"first", if_revision=None)
    with pytest.raises(ConflictError) as caught:
        await transport.write(KEY, b"second", if_revision=None)
    assert caught.value.reason == "stale_revision"
    found = await transport.read(KEY)
    assert found is not None
    assert (found.data, found.revision) == (b"first", revision)


async def test_an_object_is_replaced_by_who_knows_it(transport: Transport) -> None:
    """The current revision replaces; an older one, and one of nothing, does not."""
    first = await transport.write(KEY, b"first", if_revision=None)
    second = await transport.write(KEY, b"second", if_revision=first)
    for stale in (first, "nothing", "", "*", '"*"', "1", "a\nb", "ä"):
        with pytest.raises(ConflictError, match="stale_revision"):
            await transport.write(KEY, b"third", if_revision=stale)
    found = await transport.read(KEY)
    assert found is not None
    assert (found.data, found.revision) == (b"second", second)


async def test_what_is_gone_is_not_replaced(transport: Transport) -> None:
    """A replace never creates: not where nothing was, not where something was removed."""
    with pytest.raises(ConflictError, match="stale_revision"):
        await transport.write("other", b"data", if_revision="nothing")
    revision = await transport.write(KEY, b"data", if_revision=None)
    await transport.remove(KEY)
    with pytest.raises(ConflictError, match="stale_revision"):
        await transport.write(KEY, b"again", if_revision=revision)
    assert await keys(transport) == []


async def test_equal_bytes_have_another_revision(transport: Transport) -> None:
    """Each write has a revision of its own, also of equal data, also after a removal."""
    revisions = [await transport.write(KEY, b"same", if_revision=None)]
    revisions.append(await transport.write(KEY, b"same", if_revision=revisions[-1]))
    await transport.remove(KEY, if_revision=revisions[-1])
    revisions.append(await transport.write(KEY, b"same", if_revision=None))
    assert len(set(revisions)) == 3


async def test_a_removal_looks_at_the_revision(transport: Transport) -> None:
    """A stale revision removes nothing; the current one does, and so does none."""
    first = await transport.write(KEY, b"first", if_revision=None)
    second = await transport.write(KEY, b"second", if_revision=first)
    with pytest.raises(ConflictError, match="stale_revision"):
        await transport.remove(KEY, if_revision=first)
    assert await keys(transport) == [KEY]
    await transport.remove(KEY, if_revision=second)
    assert await transport.read(KEY) is None
    await transport.write(KEY, b"third", if_revision=None)
    await transport.remove(KEY)
    assert await transport.read(KEY) is None


async def test_a_removed_object_may_be_removed_again(transport: Transport) -> None:
    """Removing what is gone is no failure, with its revision as well."""
    revision = await transport.write(KEY, b"data", if_revision=None)
    await transport.remove(KEY, if_revision=revision)
    await transport.remove(KEY, if_revision=revision)
    await transport.remove(KEY)


async def test_odd_keys(transport: Transport) -> None:
    """Whatever a key may be is a key: written, read, looked at, listed once, removed."""
    for key in ODD_KEYS:
        await transport.write(key, key.encode(), if_revision=None)
    for key in ODD_KEYS:
        found = await transport.read(key)
        assert found is not None, key
        assert found.data == key.encode()
        assert await transport.stat(key) is not None
    assert await keys(transport) == sorted(ODD_KEYS)
    for key in ODD_KEYS:
        await transport.remove(key)
    assert await keys(transport) == []


async def test_refused_keys(transport: Transport) -> None:
    """What is no key is refused by every call, before anything is asked of the store."""
    for key in REFUSED_KEYS:
        calls = (
            transport.read(key),
            transport.stat(key),
            transport.write(key, b"", if_revision=None),
            transport.remove(key),
            keys(transport, key or "/"),
        )
        for call in calls:
            with pytest.raises(ConfigurationError) as caught:
                await call
            assert caught.value.reason == "invalid_key"


async def test_one_key_may_continue_another(transport: Transport) -> None:
    """`a`, `a/b` and `a/b/c` are three objects: none is in the way of another, whatever goes first."""
    for key in ("a/b", "a/b/c", "a"):
        await transport.write(key, key.encode(), if_revision=None)
    await transport.remove("a/b")
    assert await keys(transport) == ["a", "a/b/c"]
    await transport.write("a/b", b"again", if_revision=None)
    assert await keys(transport, "a") == ["a/b", "a/b/c"]


async def test_a_prefix_is_exact(transport: Transport) -> None:
    """A prefix lists what goes on with `/` after it, and nothing else that begins alike; not the key itself."""
    for key in ("a/b", "a/b/c", "a/b/d/e", "a/bc", "a/bc/d", "ab/c", f"{'n' * 300}/a", f"{'n' * 301}/a"):
        await transport.write(key, b"", if_revision=None)
    assert await keys(transport, "a/b") == ["a/b/c", "a/b/d/e"]
    assert await keys(transport, "a") == ["a/b", "a/b/c", "a/b/d/e", "a/bc", "a/bc/d"]
    assert await keys(transport, "a/b/c") == []
    assert await keys(transport, "n" * 300) == [f"{'n' * 300}/a"]
    assert await keys(transport, "n" * 200) == []


async def test_an_object_is_looked_at(transport: Transport) -> None:
    """Looking and listing tell the same: key, size with a little more than the data, time of the write."""
    await transport.write(KEY, b"x" * 1000, if_revision=None)
    info = await transport.stat(KEY)
    assert info is not None
    assert [found async for found in transport.list()] == [info]
    assert 1000 <= info.stored_bytes <= 1100
    assert info.modified.utcoffset() is not None
    await transport.write("later", b"", if_revision=None)
    later = await transport.stat("later")
    assert later is not None
    assert later.modified >= info.modified


async def test_empty_objects(transport: Transport) -> None:
    """An object of no bytes is one."""
    revision = await transport.write(KEY, b"", if_revision=None)
    found = await transport.read(KEY, max_bytes=0)
    assert found is not None
    assert (found.data, found.revision) == (b"", revision)


async def test_a_reader_says_how_much_it_takes(transport: Transport) -> None:
    """An object that is larger than its reader allows is refused; one of just that size is read."""
    await transport.write(KEY, b"x" * 1000, if_revision=None)
    with pytest.raises(LimitError) as caught:
        await transport.read(KEY, max_bytes=999)
    assert caught.value.reason == "max_bytes"
    found = await transport.read(KEY, max_bytes=1000)
    assert found is not None
    assert len(found.data) == 1000


async def test_the_largest_object(plain: Callable[[], Place]) -> None:
    """An object of the limit is kept; one byte more is refused before anything of it is sent."""
    transport = plain().open()
    data = bytes(MAX_OBJECT_BYTES)
    with pytest.raises(LimitError) as caught:
        await transport.write(KEY, data + b"x", if_revision=None)
    assert caught.value.reason == "max_bytes"
    assert await keys(transport) == []
    await transport.write(KEY, data, if_revision=None)
    found = await transport.read(KEY)
    assert found is not None
    assert found.data == data


async def test_one_of_many_writers_wins(place: Place) -> None:
    """Of many writers of one revision exactly one wins, and what it wrote is there: created, then replaced."""
    transports = [place.open() for _ in range(place.writers_count)]
    revision = None
    for turn in range(2):
        calls = [
            transport.write(KEY, f"{turn}-{number}".encode(), if_revision=revision)
            for number, transport in enumerate(transports)
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        [winner] = [number for number, result in enumerate(results) if isinstance(result, str)]
        assert all(isinstance(result, ConflictError) for result in results if not isinstance(result, str))
        found = await transports[0].read(KEY)
        assert found is not None
        assert (found.data, found.revision) == (f"{turn}-{winner}".encode(), results[winner])
        revision = found.revision


async def test_a_listing_while_others_write(place: Place) -> None:
    """While objects come, change and go, all others are listed exactly once."""
    transport = place.open()
    stay = [f"stay/{number:02}" for number in range(20)]
    for key in stay:
        await transport.write(key, b"", if_revision=None)
    is_listed = asyncio.Event()

    async def write() -> None:
        number = 0
        while not is_listed.is_set() or number < 2:
            revision = await transport.write(f"stay/come-{number}", b"x", if_revision=None)
            await transport.write(f"stay/come-{number}", b"y", if_revision=revision)
            await transport.remove(f"stay/come-{number}")
            number += 1

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        for _ in range(3):
            listed = [key for key in await keys(transport, "stay") if "come" not in key]
            assert listed == stay
        is_listed.set()


async def test_a_listing_may_be_left(place: Place) -> None:
    """Who stops in the middle of a listing leaves nothing open."""
    transport = place.open()
    for number in range(3):
        await transport.write(f"a/{number}", b"", if_revision=None)
    listing = transport.list()
    async for found in listing:
        assert found.key.startswith("a/")
        break
    await listing.aclose()


async def test_a_cancelled_write_is_whole_or_not_there(plain: Callable[[], Place]) -> None:
    """Wherever a write is cancelled, what is read is all of the new or all of the old, and the place is usable."""
    transport = plain().open()
    data = [b"0" * 300_000]
    await transport.write(KEY, data[0], if_revision=None)
    for steps in (0, 1, 2, 3, 5, 8, 13, 50):
        found = await transport.read(KEY)
        assert found is not None
        data.append(str(steps).encode() * 300_000)
        task = asyncio.ensure_future(transport.write(KEY, data[-1], if_revision=found.revision))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        found = await transport.read(KEY)
        assert found is not None
        assert found.data in data
    last = b"last"

    async def is_written() -> bool:
        # A store may still be at what was sent before the cancel.
        found = await transport.read(KEY)
        assert found is not None
        try:
            await transport.write(KEY, last, if_revision=found.revision)
        except ConflictError:
            return False
        return True

    await until(is_written, "a write after all")
    assert await keys(transport) == [KEY]


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "magic": ("digest_mismatch", flipped(0)),
    "version": ("digest_mismatch", flipped(7)),
    "random": ("digest_mismatch", flipped(10)),
    "size": ("digest_mismatch", flipped(24)),
    "digest": ("digest_mismatch", flipped(40)),
    "data": ("digest_mismatch", flipped(64)),
    "end": ("digest_mismatch", flipped(-1)),
    "longer": ("digest_mismatch", lambda stored: stored + b"x"),
    "foreign": ("digest_mismatch", lambda _: b"something else that is no object of ours" * 3),
    "short": ("digest_mismatch", lambda _: b"other"),
    "shorter": ("incomplete", lambda stored: stored[:-1]),
    "no data": ("incomplete", cut(64)),
    "half a header": ("incomplete", cut(30)),
    "half a magic": ("incomplete", cut(3)),
    "nothing": ("incomplete", cut(0)),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_found(place: Place, damage: str) -> None:
    """Any flipped bit, missing end or foreign content is a failure, never data."""
    reason, change = DAMAGE[damage]
    transport = place.open()
    await transport.write(KEY, b"some data", if_revision=None)
    place.alter(KEY, change)
    with pytest.raises(SessionError) as caught:
        await transport.read(KEY)
    assert caught.value.reason == reason
    await transport.remove(KEY)
    await transport.write(KEY, b"anew", if_revision=None)


async def test_damage_cannot_be_replaced_unseen(place: Place) -> None:
    """What was changed behind the transport has another revision, or still its own: never is a write lost silently."""
    transport = place.open()
    revision = await transport.write(KEY, b"some data", if_revision=None)
    place.alter(KEY, lambda _: b"")
    with pytest.raises(ConflictError):
        await transport.write(KEY, b"other", if_revision=revision)


async def test_two_places_know_nothing_of_each_other(plain: Callable[[], Place]) -> None:
    """What is kept at one place is not at another that begins alike."""
    one, other = plain().open(), plain().open()
    key = uuid.uuid4().hex
    await one.write(key, b"", if_revision=None)
    assert await other.read(key) is None
    assert await keys(other) == []
