"""The stream of followed files: woken by changes, paced, never silent for long, and gone when it ends."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest

from sandbox_agent.core import follow as follow_module
from sandbox_agent.core import syscall
from sandbox_agent.core.follow import Follow
from sandbox_agent.core.follow_file import Held
from sandbox_agent.core.paths import Roots
from sandbox_agent.services import follow as service
from sandbox_agent.services.follow import FollowStream, Wakeups, unpack_follow
from sandbox_agent.services.worker import Worker
from sandbox_api.errors import ConfigurationError, UnavailableError
from sandbox_api.v1 import transcript_pb2
from support.following import append, pattern

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

HANG_SECONDS = 30.0


class Client:
    """The other end: what it was sent, and when."""

    def __init__(self) -> None:
        self.sent_count = 0
        self._sent: asyncio.Queue[tuple[float, transcript_pb2.FollowResponse]] = asyncio.Queue()

    async def write(self, message: bytes) -> None:
        """Take a message."""
        now = asyncio.get_running_loop().time()
        self.sent_count += 1
        self._sent.put_nowait((now, transcript_pb2.FollowResponse.FromString(message)))

    async def next(self) -> tuple[str, Any]:
        """Return the name and content of the next message."""
        name, message, _ = await self.next_timed()
        return name, message

    async def next_timed(self) -> tuple[str, Any, float]:
        """Return the name, content and time of the next message."""
        async with asyncio.timeout(HANG_SECONDS):
            moment, message = await self._sent.get()
        name = message.WhichOneof("part")
        assert name is not None
        return name, getattr(message, name), moment


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with one file to follow."""
    (tmp_path / "home/p").mkdir(parents=True)
    (tmp_path / "home/p/a").write_bytes(b"begun")
    return tmp_path / "home"


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[Roots]:
    """What the home lies in, held."""
    with closing(Roots([bytes(tmp_path)])) as held:
        yield held


@asynccontextmanager
async def streaming(
    roots: Roots, home: Path, wakeups: Wakeups, *, interval_seconds: float = 0.01, beat_seconds: float = HANG_SECONDS
) -> AsyncIterator[tuple[Client, asyncio.Task[None]]]:
    """Run a stream of the home's files; cancel it afterwards."""
    client, woken = Client(), asyncio.Event()

    async def run() -> None:
        with wakeups.subscription(woken.set) as subscription:
            follow = Follow(roots, bytes(home), [pattern()], {}, max_files=10, subscription=subscription)
            stream = FollowStream(
                cast("Any", client), wakeups, woken, interval_seconds=interval_seconds, beat_seconds=beat_seconds
            )
            async with Worker(executor) as worker:
                await stream.run(worker, await worker.enter(follow))

    with ThreadPoolExecutor(2) as executor:
        task = asyncio.create_task(run())
        try:
            yield client, task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_a_change_wakes_the_stream(roots: Roots, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is sent because the kernel told of it, not because it was time to look."""
    monkeypatch.setattr(follow_module, "LOOK_SECONDS", 1e9)
    async with streaming(roots, home, Wakeups()) as (client, _):
        assert [(await client.next())[0] for _ in range(2)] == ["begin", "data"]
        append(home / "p/a", b", more")
        name, data = await client.next()
        assert (name, data.offset, data.data) == ("data", 5, b", more")
        (home / "p/b").touch()
        assert [(await client.next())[0] for _ in range(2)] == ["begin", "mark"]


async def test_everything_is_looked_at_where_nothing_is_told(
    roots: Roots, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without watches, because the user has too many or the kernel has none, files are polled."""

    def refused() -> int:
        raise OSError(errno.EMFILE, "no more instances")

    monkeypatch.setattr(syscall, "inotify_init", refused)
    async with streaming(roots, home, Wakeups()) as (client, _):
        assert [(await client.next())[0] for _ in range(2)] == ["begin", "data"]
        append(home / "p/a", b", more")
        assert (await client.next())[1].data == b", more"


async def test_a_file_that_cannot_be_watched_is_polled(
    roots: Roots, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is when the user has an instance, but too many watches."""

    def refused(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no more watches")

    monkeypatch.setattr(syscall, "inotify_add_watch", refused)
    monkeypatch.setattr(follow_module, "LOOK_SECONDS", 1e9)
    async with streaming(roots, home, Wakeups()) as (client, _):
        assert [(await client.next())[0] for _ in range(2)] == ["begin", "data"]
        append(home / "p/a", b", more")
        assert (await client.next())[1].data == b", more"


async def test_what_was_not_told_is_found_later(roots: Roots, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another home at the same path says nothing; its files are found when it is time to look."""
    monkeypatch.setattr(follow_module, "LOOK_SECONDS", 0.05)
    async with streaming(roots, home, Wakeups()) as (client, _):
        assert [(await client.next())[0] for _ in range(2)] == ["begin", "data"]
        _replace(home)
        name, begin = await client.next()
        assert (name, begin.path) == ("begin", b"p/c")


def _replace(home: Path) -> None:
    """Put another home in the place of one."""
    (home.parent / "other/p").mkdir(parents=True)
    (home.parent / "other/p/c").write_bytes(b"other")
    home.rename(home.parent / "away")
    (home.parent / "other").rename(home)


async def test_batches_of_a_file_keep_their_distance(roots: Roots, home: Path) -> None:
    """However often a file grows, its parts come no faster than the interval."""
    async with streaming(roots, home, Wakeups(), interval_seconds=0.2) as (client, _):
        begin = await client.next_timed()
        times = [begin[2]]
        await client.next()
        for number in range(3):
            append(home / "p/a", b"x")
            name, data, moment = await client.next_timed()
            assert (name, data.data) == ("data", b"x"), number
            times.append(moment)
        assert all(later - earlier >= 0.2 for earlier, later in pairwise(times))


async def test_events_gather(roots: Roots, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of changes is taken from the kernel a few times, and looked at as often."""
    taken: list[int] = []
    deliver = service.Watches.deliver
    monkeypatch.setattr(service.Watches, "deliver", lambda watches: (taken.append(1), deliver(watches)))
    async with streaming(roots, home, Wakeups(), interval_seconds=0.2) as (client, _):
        assert [(await client.next())[0] for _ in range(2)] == ["begin", "data"]
        for _ in range(500):
            append(home / "p/a", b"x")
            await asyncio.sleep(0)
        received = 0
        while received < 500:
            received += len((await client.next())[1].data)
    assert len(taken) < 100


async def test_silence_is_broken(roots: Roots, home: Path) -> None:
    """By a beat, again and again, also between two looks that are far apart; what is sent puts it off."""
    async with streaming(roots, home, Wakeups(), interval_seconds=60, beat_seconds=0.2) as (client, _):
        names, times = [], []
        for _ in range(4):
            name, _, moment = await client.next_timed()
            names.append(name)
            times.append(moment)
        assert names == ["begin", "data", "beat", "beat"]
        assert times[2] - times[1] >= 0.19
        assert times[3] - times[2] >= 0.19


@pytest.mark.parametrize("interval_seconds", [0.01, 60])
async def test_the_end_of_the_daemon_ends_the_stream(
    roots: Roots, home: Path, monkeypatch: pytest.MonkeyPatch, interval_seconds: float
) -> None:
    """At once, wherever it waits, and one that comes later as well."""
    monkeypatch.setattr(follow_module, "LOOK_SECONDS", 1e9)
    wakeups = Wakeups()
    paces = {"interval_seconds": interval_seconds, "beat_seconds": 0.5}
    async with streaming(roots, home, wakeups, **paces) as (client, task):
        # By the beat it waits for the interval to end, or for something to happen.
        assert [(await client.next())[0] for _ in range(3)] == ["begin", "data", "beat"]
        sent_count = client.sent_count
        wakeups.end()
        async with asyncio.timeout(HANG_SECONDS):
            with pytest.raises(UnavailableError, match="unreachable"):
                await task
        assert client.sent_count == sent_count  # no beat was waited for
    async with streaming(roots, home, wakeups) as (_, task), asyncio.timeout(HANG_SECONDS):
        with pytest.raises(UnavailableError, match="unreachable"):
            await task


async def test_watches_go_with_the_last_stream(roots: Roots, home: Path) -> None:
    """Streams share one instance; a stream that ends, also by a failure, takes only what is its own."""
    wakeups = Wakeups()
    async with streaming(roots, home, wakeups) as (first, _):
        assert [(await first.next())[0] for _ in range(2)] == ["begin", "data"]
        watches = wakeups._watches
        assert watches is not None
        numbers = set(watches._watched)
        async with streaming(roots, home / "none", wakeups) as (_, failing):
            await asyncio.wait([failing], timeout=HANG_SECONDS)
            assert isinstance(failing.exception(), FileNotFoundError)
        async with streaming(roots, home, wakeups) as (second, _):
            assert [(await second.next())[0] for _ in range(2)] == ["begin", "data"]
            assert wakeups._watches is watches
        assert set(watches._watched) == numbers
        assert len(watches._subscriptions) == 1
    assert wakeups._watches is None


def test_requests_are_checked() -> None:
    """Patterns, what is held and the interval must be possible; an interval that is not given is the usual one."""
    good = transcript_pb2.FollowedPattern(directory=b"p", pattern="*.jsonl", whole_lines=True)
    patterns, held, interval_seconds = unpack_follow(
        transcript_pb2.FollowRequest(
            patterns=[good, transcript_pb2.FollowedPattern(pattern="*")],
            held=[transcript_pb2.FollowedHeld(path=b"p/a", size=3, sha256=bytes(32))],
        )
    )
    assert [(item.directory, item.whole_lines) for item in patterns] == [(b"p", True), (b"", False)]
    assert (held, interval_seconds) == ({b"p/a": Held(((3, bytes(32)),))}, 0.25)
    wrong = [
        transcript_pb2.FollowRequest(),
        transcript_pb2.FollowRequest(patterns=[good] * 65),
        transcript_pb2.FollowRequest(patterns=[transcript_pb2.FollowedPattern(directory=b"../p", pattern="*")]),
        transcript_pb2.FollowRequest(patterns=[transcript_pb2.FollowedPattern(directory=b"p", pattern="a/b")]),
        transcript_pb2.FollowRequest(patterns=[good], interval_milliseconds=60_001),
        transcript_pb2.FollowRequest(patterns=[good], held=[{"path": b"/p", "sha256": bytes(32)}]),
        transcript_pb2.FollowRequest(patterns=[good], held=[{"path": b"p", "sha256": bytes(31)}]),
        transcript_pb2.FollowRequest(
            patterns=[good], held=[{"path": b"p", "size": 3, "sha256": bytes(64), "prefix_sizes": [1, 1]}]
        ),
        transcript_pb2.FollowRequest(
            patterns=[good], held=[{"path": b"p", "size": 2, "sha256": bytes(32), "prefix_sizes": [1, 1]}]
        ),
    ]
    for request in wrong:
        with pytest.raises(ConfigurationError, match="invalid_argument"):
            unpack_follow(request)
