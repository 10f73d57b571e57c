"""A conversation on its way from one capture to several readers: written once to this host's disk, read behind it.

The one rule: nobody waits for a slow reader. One that falls too far behind the fastest is given up; only when all are
behind does the capture wait.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from host_client.errors import LimitError
from host_client.session.failure import host_failures
from host_client.session.punch import punch
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path, PurePosixPath

    from host_client.session.transcript_writer import Staging
    from host_client.stores.contract import ConversationRecord
    from host_client.stores.layout import Kind
    from host_client.stores.transcript_home import HostHome
    from host_client.stores.transcript_member import Members
    from host_client.stores.transcript_order import Fetched
    from sandbox_api.manifest import Entry

DEFAULT_MAX_SPOOL_BYTES = 1 << 30
_SLACK_BYTES = 4 << 20
"""What two readers that are equally fast may be apart."""
_FREE_BYTES = 4 << 20
"""What is freed at a time."""


class NotStreamableError(Exception):
    """What a target must be told first of this conversation is known only when all of it was captured."""


class Written(Protocol):
    """A file that is being written."""

    @property
    def written_bytes(self) -> int:
        """What can be read of it by now."""


@dataclass(slots=True)
class SpooledFile:
    """A file of the spool.

    Attributes:
        path: Its path on this host, below the home.
        kind: Of its content; no lines of a shared file.
        staged_path: Where it is written.
        placed_path: Where the capture puts it at its end.
        start: Where it begins, counting all files before it.
        size_bytes: What can be read of it.
        is_whole: Whether that is all of it, and verified.
    """

    path: PurePosixPath
    kind: Kind
    staged_path: Path
    placed_path: Path
    start: int
    size_bytes: int = 0
    is_whole: bool = False

    @contextmanager
    def opened(self, flags: int = os.O_RDONLY) -> Iterator[int]:
        """Open it, wherever it is by now; blocks."""
        with host_failures(self.placed_path):
            try:
                fd = os.open(self.staged_path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                fd = os.open(self.placed_path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            yield fd
        finally:
            os.close(fd)


class Spool:
    """The files of one conversation, in the order in which they can be sent. To be made in the event loop's thread.

    A capture adds to it: the main transcript as it arrives, where no attempt of it could be taken back, and every other
    file when it is whole. Lines of shared files come last; they are read where the capture puts them.

    Args:
        max_bytes: About how far apart the writer and the slowest reader may be; half of that is for the writer and the
            fastest.
        keeps_all: Nothing is freed, and nobody is given up: some readers begin later than others.

    Attributes:
        home: The home on this host; known once a file was added, as the next three.
        main: The main transcript, below it.
        expected_bytes: About how much there is.
        members: All files, by their paths on this host; known when the main transcript has been told to be whole.
        entries: The manifest of a session directory, whose payload is the only file.
        record: What the capture has kept; None: it is not over.
        over: Set when it is.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_SPOOL_BYTES, *, keeps_all: bool = False) -> None:
        self.home: HostHome
        self.main: PurePosixPath
        self.expected_bytes = 0
        self.members: Members
        self.entries: Sequence[Entry] = ()
        self.record: ConversationRecord | None = None
        self.over = asyncio.Event()
        self.files: list[SpooledFile] = []
        self._max_bytes = max_bytes
        self._keeps_all = keeps_all
        self._lock = threading.Lock()
        self._readers: list[SpoolReader] = []
        self._written_bytes = self._fastest_bytes = self._freed_bytes = self._freed_count = 0
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._is_waking = False

    def reader(self) -> SpoolReader:
        """Add a reader, before anything is written."""
        reader = SpoolReader(self)
        self._readers.append(reader)
        return reader

    def open(self, home: HostHome, main: PurePosixPath) -> None:
        """Tell where the files go on this host, before the first is added."""
        self.home, self.main = home, main

    def begin(self, place: PurePosixPath, kind: Kind, staging: Staging, name: str) -> SpooledFile:
        """Add a file that is about to be written; the one before it must be whole."""
        return self.add(place, kind, staging.folder.host_path / name, self.home.host_path / place)

    def add(self, place: PurePosixPath, kind: Kind, staged_path: Path, placed_path: Path) -> SpooledFile:
        """Do the same; the file is at one of two paths."""
        with self._lock:
            file = SpooledFile(place, kind, staged_path, placed_path, self._written_bytes)
            self.files.append(file)
        return file

    def grow(self, file: SpooledFile, staged: Written) -> None:
        """Take note of what was written of the last file; readers take it in chunks. Blocks."""
        written_bytes = staged.written_bytes
        if written_bytes - file.size_bytes >= CHUNK_BYTES:
            with self._lock:
                self._written_bytes += written_bytes - file.size_bytes
                file.size_bytes = written_bytes
                freed = () if self._readers else self._claim_freed()
            self._wake()
            _free(freed)

    def end(self, fetched: Fetched, staging: Staging) -> None:
        """Take note that a file is whole; one that was not begun is added."""
        if fetched.placing is None or fetched.entry is None or fetched.is_refused:
            return
        last = self.files[-1] if self.files else None
        if last is None or last.path != fetched.place:
            last = self.begin(fetched.place, fetched.member.kind, staging, fetched.placing.staged)
        self.complete(last, fetched.entry.size)

    def complete(self, file: SpooledFile, size_bytes: int) -> None:
        """Take note that the last file is whole."""
        with self._lock:
            self._written_bytes += size_bytes - file.size_bytes
            file.size_bytes = size_bytes
            file.is_whole = True
        self._wake()

    async def pace(self) -> None:
        """Wait while what was written is too far ahead of all who read."""
        while self._is_too_far():
            self._room.clear()
            if self._is_too_far():
                await self._room.wait()

    def finish(self, record: ConversationRecord) -> None:
        """Tell that the capture is over: everything is verified, and where its record says."""
        self.record = record
        self.over.set()
        self._wake()

    def advance(self, reader: SpoolReader, position: int) -> None:
        """Take note of how far a reader is, give up who is too far behind it, and free what all have passed; blocks."""
        with self._lock:
            reader.position_bytes = position
            if position > self._fastest_bytes and not self._keeps_all:
                self._fastest_bytes = position
                for one in list(self._readers):
                    if position - one.position_bytes > self._max_bytes // 2 + _SLACK_BYTES:
                        self._readers.remove(one)
                        self._loop.call_soon_threadsafe(one.give_up, self._max_bytes)
            freed = self._claim_freed()
        self._wake()
        _free(freed)

    def leave(self, reader: SpoolReader) -> None:
        """Forget a reader."""
        with self._lock:
            if reader in self._readers:
                self._readers.remove(reader)
        self._wake()

    def _claim_freed(self) -> Sequence[tuple[SpooledFile, int, int]]:
        """Return the parts of files that all readers have passed since this was asked for last, when they are many."""
        slowest = min((one.position_bytes for one in self._readers), default=self._written_bytes)
        if self._keeps_all or slowest - self._freed_bytes < _FREE_BYTES:
            return ()
        found = []
        while self._freed_count < len(self.files):
            file = self.files[self._freed_count]
            start, end = self._freed_bytes - file.start, min(slowest - file.start, file.size_bytes)
            if start < end:
                found.append((file, start, end))
                self._freed_bytes = file.start + end
            if not file.is_whole or end < file.size_bytes:
                break
            self._freed_count += 1
        return found

    def _is_too_far(self) -> bool:
        with self._lock:
            ahead_bytes = self._written_bytes - max((one.position_bytes for one in self._readers), default=0)
            return bool(self._readers) and not self._keeps_all and ahead_bytes > self._max_bytes // 2

    def _wake(self) -> None:
        with self._lock:
            is_waking, self._is_waking = self._is_waking, True
        if not is_waking:
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        with self._lock:
            self._is_waking = False
            readers = list(self._readers)
        self._room.set()
        for reader in readers:
            reader.wake()


def _free(parts: Sequence[tuple[SpooledFile, int, int]]) -> None:
    for file, start, end in parts:
        with file.opened(os.O_RDWR) as fd:
            punch(fd, start, end)


class SpoolReader:
    """One reader's place in a spool.

    Attributes:
        failure: Why it was given up; None: it was not.
        position_bytes: How far it is, counting all files.
    """

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.failure: LimitError | None = None
        self.position_bytes = 0
        self._more = asyncio.Event()
        self._limit: asyncio.Timeout | None = None

    @property
    def has_begun(self) -> bool:
        """Whether there is a file: where it belongs is known then."""
        return bool(self.spool.files) or self.spool.record is not None

    @contextmanager
    def within(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Read within a time limit, which stands still while there is nothing to read, and is over when given up."""
        self._limit = limit
        if self.failure is not None:
            self._end_limit()
        try:
            yield
        finally:
            self._limit = None

    def give_up(self, max_bytes: int) -> None:
        """End its time; in the event loop's thread."""
        self.failure = LimitError(
            "max_spool_bytes",
            f"the target fell further behind than {max_bytes} bytes may wait for it",
            hint="restore it from a kept copy or an archive, or raise max_spool_bytes (--max-spool-bytes)",
            facts={"max_spool_bytes": str(max_bytes)},
        )
        self._end_limit()

    def wake(self) -> None:
        """Let it look again; in the event loop's thread."""
        self._more.set()

    async def more(self) -> None:
        """Wait until there is more to read than when it was looked for last, or the capture is over."""
        await self._wait(self._more)
        self._more.clear()

    async def kept(self) -> ConversationRecord:
        """Wait until the capture is over, and return its record."""
        await self._wait(self.spool.over)
        if self.spool.record is None:
            raise RuntimeError("the capture is not over")
        return self.spool.record

    async def _wait(self, event: asyncio.Event) -> None:
        """Wait without losing time."""
        limit, loop = self._limit, asyncio.get_running_loop()
        when = limit.when() if limit else None
        left_seconds = None if when is None else when - loop.time()
        if limit is not None and left_seconds is not None and self.failure is None:
            limit.reschedule(None)
        try:
            await event.wait()
        finally:
            if limit is not None and left_seconds is not None and self.failure is None:
                limit.reschedule(loop.time() + left_seconds)

    def files(self) -> Iterator[SpooledFile | None]:
        """Yield the files in their order, None where there is nothing yet, to the end of the capture. Blocks."""
        count = 0
        while True:
            is_over = self.spool.record is not None
            if count < len(self.spool.files):
                yield self.spool.files[count]
                count += 1
            elif is_over:
                return
            else:
                yield None

    def pieces(self, file: SpooledFile) -> Generator[bytes, None, None]:
        """Yield a file's bytes, an empty piece where there is nothing yet. Blocks."""
        at = 0
        with file.opened() as fd:
            while True:
                is_whole, size_bytes = file.is_whole, file.size_bytes
                if at < size_bytes:
                    with host_failures(file.placed_path):
                        piece = os.pread(fd, min(CHUNK_BYTES, size_bytes - at), at)
                        if not piece:
                            raise OSError(errno.EIO, "a file of the spool became shorter")
                    at += len(piece)
                    yield piece
                    self.spool.advance(self, file.start + at)
                elif is_whole:
                    return
                else:
                    yield b""

    def leave(self) -> None:
        """Let the others go on without it."""
        self.spool.leave(self)

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())
