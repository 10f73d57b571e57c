"""Send followed files: when to look, how often, and what to say meanwhile.

The one rule: a burst of changes costs no more than one look in each interval, and nothing is looked at in the loop.
"""

from __future__ import annotations

import asyncio
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from sandbox_agent import log
from sandbox_agent.core.file import name_matcher
from sandbox_agent.core.follow_file import Begin, Data, Held, Mark
from sandbox_agent.core.follow_folder import Pattern
from sandbox_agent.core.inotify import Watches
from sandbox_agent.errors import from_os
from sandbox_api.errors import ConfigurationError, UnavailableError, printable
from sandbox_api.manifest import DIGEST_BYTES
from sandbox_api.names import path_problem
from sandbox_api.v1 import transcript_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import grpc

    from sandbox_agent.core.follow import Batch, Follow
    from sandbox_agent.core.follow_file import Part
    from sandbox_agent.core.inotify import Subscription
    from sandbox_agent.services.worker import Worker

    Context = grpc.aio.ServicerContext[Any, Any]

BEAT_SECONDS = 10.0
"""Longest silence of a stream."""

MAX_PATTERNS_COUNT = 64
_INTERVAL_SECONDS, _MAX_INTERVAL_SECONDS = 0.25, 60.0
_GATHER_SECONDS = 0.05
"""For how long events gather in the kernel before more are taken: each taking costs, however few there are."""


class Wakeups:
    """What wakes the calls of one daemon that follow files. All of it runs in the event loop.

    The kernel's watches are opened for the first subscriber and closed after the last.
    """

    def __init__(self) -> None:
        self.is_ending = False
        self._ended = asyncio.Event()
        self._wakes: set[Callable[[], None]] = set()
        self._watches: Watches | None = None
        self._timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Have all calls end, and those that are still to come."""
        self.is_ending = True
        self._ended.set()
        for wake in self._wakes:
            wake()

    async def wait_ended(self) -> None:
        """Wait for `end`."""
        await self._ended.wait()

    @contextmanager
    def subscription(self, wake: Callable[[], None]) -> Iterator[Subscription | None]:
        """Give a subscription, or None where the kernel has no watches to give.

        Args:
            wake: Called when something changes, and by `end`.
        """
        if not self._wakes:
            self._open()
        self._wakes.add(wake)
        try:
            if self._watches is None:
                yield None
            else:
                # Whoever follows closes it in a thread, since it may have many watches; who failed to begin does not.
                with closing(self._watches.subscribe(wake)) as subscription:
                    yield subscription
        finally:
            self._wakes.remove(wake)
            if not self._wakes:
                self._close()

    def _open(self) -> None:
        try:
            self._watches = Watches()
        except OSError as error:
            log.warning("changes of files are looked for, not told", errno=from_os(error).facts["errno"])
        else:
            self._resume(self._watches)

    def _close(self) -> None:
        if self._watches is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        asyncio.get_running_loop().remove_reader(self._watches.fd)
        self._watches.close()
        self._watches = self._timer = None

    def _resume(self, watches: Watches) -> None:
        asyncio.get_running_loop().add_reader(watches.fd, self._deliver, watches)

    def _deliver(self, watches: Watches) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(watches.fd)
        self._timer = loop.call_later(_GATHER_SECONDS, self._resume, watches)
        watches.deliver()


class FollowStream:
    """The answers of one call.

    Args:
        context: The call.
        wakeups: Says when the daemon ends.
        woken: Set whenever there may be something new.
        interval_seconds: Least time from the end of one look, and what it had to send, to the next.
        beat_seconds: Longest silence.
    """

    def __init__(
        self,
        context: Context,
        wakeups: Wakeups,
        woken: asyncio.Event,
        *,
        interval_seconds: float,
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        self._context = context
        self._wakeups = wakeups
        self._woken = woken
        self._interval_seconds = interval_seconds
        self._beat_seconds = beat_seconds
        self._time = asyncio.get_running_loop().time
        self._beat_at = self._time() + beat_seconds

    async def run(self, worker: Worker, follow: Follow) -> None:
        """Send what is new, until the call is cancelled.

        Raises:
            UnavailableError: `unreachable`: the daemon ends.
        """
        batches = await worker.enter(closing(follow.batches()))  # type: ignore[type-var]
        while True:
            self._woken.clear()
            is_last = False
            while not is_last:
                self._check_ending()
                messages, is_last = await worker.run(_next_messages, batches)
                for message in messages:
                    await self._send(message)
                if not messages and self._time() >= self._beat_at:
                    await self._beat()
            await self._wait(self._time() + self._interval_seconds, self._wakeups.wait_ended)
            await self._wait(self._time() + follow.seconds_to_look, self._woken.wait)

    async def _wait(self, until: float, event: Callable[[], Any]) -> None:
        """Wait for an event, but only until some time."""
        while (now := self._time()) < until and not self._wakeups.is_ending:
            try:
                async with asyncio.timeout(min(until, self._beat_at) - now):
                    await event()
                    return
            except TimeoutError:
                if self._time() >= self._beat_at:
                    await self._beat()

    async def _beat(self) -> None:
        await self._send(_BEAT)

    async def _send(self, message: bytes) -> None:
        await self._context.write(message)
        self._beat_at = self._time() + self._beat_seconds

    def _check_ending(self) -> None:
        if self._wakeups.is_ending:
            raise UnavailableError("unreachable", "the daemon is ending", hint="follow again when it has started")


def unpack_follow(request: transcript_pb2.FollowRequest) -> tuple[list[Pattern], dict[bytes, Held], float]:
    """Return the checked patterns, what the client holds by path, and the interval in seconds.

    Raises:
        ConfigurationError: `invalid_argument`.
    """
    if not 0 < len(request.patterns) <= MAX_PATTERNS_COUNT:
        raise ConfigurationError("invalid_argument", f"{len(request.patterns)} patterns cannot be followed")
    patterns = []
    for item in request.patterns:
        if item.directory and (problem := path_problem(item.directory)):
            raise ConfigurationError("invalid_argument", f"the directory '{printable(item.directory)}' {problem}")
        patterns.append(Pattern(item.directory, name_matcher(item.pattern), item.whole_lines))
    held = {}
    for file in request.held:
        sizes = file.prefix_sizes or (file.size,)
        is_whole = len(file.sha256) == DIGEST_BYTES * len(sizes) and sum(sizes) == file.size
        if path_problem(file.path) or not is_whole:
            raise ConfigurationError("invalid_argument", "a file the client says it holds has no usable path or digest")
        digests = (file.sha256[at : at + DIGEST_BYTES] for at in range(0, len(file.sha256), DIGEST_BYTES))
        held[file.path] = Held(tuple(zip(sizes, digests, strict=True)))
    interval_seconds = request.interval_milliseconds / 1000 or _INTERVAL_SECONDS
    if interval_seconds > _MAX_INTERVAL_SECONDS:
        raise ConfigurationError("invalid_argument", f"files cannot be told every {interval_seconds} seconds")
    return patterns, held, interval_seconds


def _next_messages(batches: Iterator[Batch]) -> tuple[list[bytes], bool]:
    batch = next(batches)
    return [_pack(part).SerializeToString() for part in batch.parts], batch.is_last


def _pack(part: Part) -> transcript_pb2.FollowResponse:
    match part:
        case Begin(number, path, offset):
            begin = transcript_pb2.FollowBegin(number=number, path=path, offset=offset)
            return transcript_pb2.FollowResponse(begin=begin)
        case Data(number, offset, data, mark_sha256):
            sent = transcript_pb2.FollowData(number=number, offset=offset, data=data, mark_sha256=mark_sha256)
            return transcript_pb2.FollowResponse(data=sent)
        case Mark(number, size, sha256):
            return transcript_pb2.FollowResponse(
                mark=transcript_pb2.FollowMark(number=number, size=size, sha256=sha256)
            )


_BEAT = transcript_pb2.FollowResponse(beat=transcript_pb2.FollowBeat()).SerializeToString()
