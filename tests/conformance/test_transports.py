"""What every transport keeps to: one suite over directories and object stores, with and without faults."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
import pytest
from obstore.store import MemoryStore

from host_client.errors import ConfigurationError, ConflictError, LimitError, SessionError
from host_client.transports.contract import MAX_OBJECT_BYTES
from host_client.transports.local import LocalTransport
from host_client.transports.objects import ObjectTransport, make_store
from host_client.transports.path import path_of
from host_client.transports.retry import RetryingTransport
from support.blob_server import Blob, BlobServer, blob_server
from support.faulty_transport import Fault, FaultyTransport, cut, flipped, unreachable
from support.object_store import REGION
from support.wait import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from host_client.transports.contract import Transport
    from support.object_store import S3Server

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


class Every(Fault):
    """Strikes every second call: once before it takes effect, once after."""

    def strikes(self, number: int, operation: str, key: str) -> bool:
        """Tell whether it strikes."""
        del operation, key
        step = number % 4
        self.before = unreachable() if step == 0 else None
        self.after = unreachable() if step == 2 else None
        return step % 2 == 0


@dataclass(frozen=True)
class Place:
    """Where objects are kept.

    Attributes:
        open: Makes a transport for it.
        alter: Changes what is stored under a key, behind the transport.
        url: Its URL, for other processes; empty where they cannot come.
        writers_count: How many write to one key at once.
    """

    open: Callable[[], Transport]
    alter: Callable[[str, Callable[[bytes], bytes]], None]
    url: str = ""
    writers_count: int = 16


def _local(request: pytest.FixtureRequest) -> Place:
    directory: Path = request.getfixturevalue("tmp_path_factory").mktemp("store")

    def alter(key: str, change: Callable[[bytes], bytes]) -> None:
        path = directory.joinpath(*path_of(key))
        path.write_bytes(change(path.read_bytes()))

    return Place(lambda: LocalTransport(directory), alter, directory.as_uri())


def _memory(request: pytest.FixtureRequest) -> Place:
    del request
    store = MemoryStore()
    return Place(lambda: ObjectTransport(store, name="memory", prefix="p/q"), _altering(store, "p/q"))


def _s3(request: pytest.FixtureRequest) -> Place:
    server: S3Server = request.getfixturevalue("s3_server")
    url = server.place()
    bucket, prefix = urlsplit(url).netloc, urlsplit(url).path.strip("/")
    store = make_store("s3", bucket, endpoint=server.endpoint, region=REGION, allow_http=True, path_style=True)
    alter = _altering(server.store(bucket), prefix)
    # This server lets more than two writers of one key wait for one another, by whole seconds.
    return Place(lambda: ObjectTransport(store, name=url, prefix=prefix), alter, url, writers_count=2)


def _altering(store: obstore.store.ObjectStore, prefix: str) -> Callable[[str, Callable[[bytes], bytes]], None]:
    def alter(key: str, change: Callable[[bytes], bytes]) -> None:
        path = "/".join((prefix, *path_of(key)))
        obstore.put(store, path, change(bytes(obstore.get(store, path).bytes())))

    return alter


def _blobs(kind: str) -> Callable[[pytest.FixtureRequest], Place]:
    """Return what makes places in a server that speaks as Google's or Azure's stores do."""

    def make(request: pytest.FixtureRequest) -> Place:
        server: BlobServer = request.getfixturevalue(f"{kind}_server")
        bucket = f"bucket-{next(server.numbers)}"
        endpoint = {"endpoint": server.endpoint, "account": "me"} if kind == "az" else {}
        store = make_store(kind, bucket, allow_http=True, path_style=True, **endpoint)

        def alter(key: str, change: Callable[[bytes], bytes]) -> None:
            old = server.blobs[path := "/".join(("", bucket, "p", *path_of(key)))]
            server.blobs[path] = Blob(change(old.data), next(server.numbers), old.seconds)

        return Place(lambda: ObjectTransport(store, name=kind, prefix="p"), alter)

    return make


SERVERS = {"s3_server", "gs_server", "az_server"}
KINDS = {"local": _local, "memory": _memory, "s3": _s3, "gs": _blobs("gs"), "az": _blobs("az")}


@pytest.fixture(scope="module")
def gs_server() -> Iterator[BlobServer]:
    """Run what speaks as Google's store does, and name it in the environment."""
    with blob_server("gs") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_BASE_URL", server.endpoint)
        patch.setenv("GOOGLE_BEARER_TOKEN", "token")
        yield server


@pytest.fixture(scope="module")
def az_server() -> Iterator[BlobServer]:
    """Run what speaks as Azure's store does."""
    with blob_server("az") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AZURE_SKIP_SIGNATURE", "true")
        yield server


# Of the module: servers must be there before the guards of a test look.
@pytest.fixture(scope="module", params=KINDS)
def plain(request: pytest.FixtureRequest) -> Callable[[], Place]:
    """Make places of one kind."""
    if f"{request.param}_server" in SERVERS:
        request.getfixturevalue(f"{request.param}_server")
    return lambda: KINDS[request.param](request)


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


WRITER = """
import asyncio, sys
from host_client.errors import ConflictError
from host_client.transports.url import open_transport

async def main(url, me):
    transport = open_transport(url)
    for turn in sys.stdin:
        found = await transport.read("key")
        print("ready", flush=True)
        sys.stdin.readline()
        data = f"{me}-{turn.strip()}".encode() + b"x" * 100_000
        try:
            await transport.write("key", data, if_revision=found and found.revision)
            print("won", flush=True)
        except ConflictError as error:
            print(error.reason, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module", params=["local", "s3"])
def shared(request: pytest.FixtureRequest) -> Callable[[], Place]:
    """Make places that several processes reach."""
    if f"{request.param}_server" in SERVERS:
        request.getfixturevalue(f"{request.param}_server")
    return lambda: KINDS[request.param](request)


@pytest.fixture
def writers(shared: Callable[[], Place]) -> Iterator[tuple[Place, list[subprocess.Popen[str]]]]:
    """Run three processes that write to one place when told."""
    place = shared()
    environment = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "PATH"))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, place.url, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(3)
    ]
    yield place, processes
    for process in processes:
        with process:
            process.stdin.close()  # type: ignore[union-attr]
    assert [process.returncode for process in processes] == [0, 0, 0]


async def test_one_of_many_processes_wins(writers: tuple[Place, list[subprocess.Popen[str]]]) -> None:
    """Of processes that write one key at once exactly one wins, created and replaced; the others are told of it."""
    place, processes = writers
    transport = place.open()
    for turn in range(2):
        answers = await asyncio.to_thread(_turn, processes, turn)
        assert sorted(answers) == ["stale_revision", "stale_revision", "won"]
        found = await transport.read("key")
        assert found is not None
        assert found.data.startswith(f"{answers.index('won')}-{turn}x".encode())


def _turn(processes: list[subprocess.Popen[str]], turn: int) -> list[str]:
    for process in processes:
        print(turn, file=process.stdin, flush=True)
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        print(file=process.stdin, flush=True)
    return [process.stdout.readline().strip() for process in processes if process.stdout is not None]


async def test_two_places_know_nothing_of_each_other(plain: Callable[[], Place]) -> None:
    """What is kept at one place is not at another that begins alike."""
    one, other = plain().open(), plain().open()
    key = uuid.uuid4().hex
    await one.write(key, b"", if_revision=None)
    assert await other.read(key) is None
    assert await keys(other) == []
