"""The sending half of a transcript restore: sources as messages, many in one step of a thread.

Each file is made while what came before it is on its way. Success is what the daemon says after the commit and nothing
else.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from host_client.errors import SessionError, printable
from host_client.sandbox import reply
from host_client.sandbox.restore import MIN_COMMIT_BYTES_PER_SECOND
from host_client.sandbox.task import in_thread, task_group
from sandbox_api.framing import Batcher
from sandbox_api.limits import CHUNK_BYTES
from sandbox_api.manifest import Entry
from sandbox_api.names import path_problem
from sandbox_api.v1 import payload_pb2, transcript_pb2
from sandbox_api.wire import chunk_message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import PurePosixPath

    from host_client.sandbox.transcript import TranscriptSource

    Send = Callable[[bytes], Awaitable[None]]

T = TypeVar("T")

_NOTHING_STAGED: Mapping[bytes, Entry] = MappingProxyType({})

_MIN_COMMIT_FILES_PER_SECOND = 200
"""Slowest pace at which a daemon is expected to move files: each is looked at, exchanged and noted on its own."""


@dataclass(frozen=True, slots=True)
class RestoredTranscript:
    """A restore that was committed.

    Attributes:
        unchanged: All files were there already, byte for byte.
        recovery: Name of what was replaced, in the recovery folder of the home; empty when nothing was.
        replaced: Files that replaced others, below the home, at most 100.
        added: Files where nothing was, below the home, at most 100.
        files_count: Files that were sent.
        bytes_count: Their content.
        sent_bytes: What that took on the wire.
        resumed_bytes: Content that an earlier attempt had left and was not sent.
        entries: Path, size and SHA-256 of each file as it was sent.
    """

    unchanged: bool
    recovery: str
    replaced: Sequence[PurePosixPath]
    added: Sequence[PurePosixPath]
    files_count: int
    bytes_count: int
    sent_bytes: int
    resumed_bytes: int
    entries: Sequence[Entry]


@dataclass(slots=True)
class _Batch:
    """Messages to send one after the other, and how many bytes of content they have."""

    messages: list[bytes]
    content_bytes: int = 0
    is_followed_by_nothing: bool = False
    size_bytes: int = 0

    def add(self, message: bytes, content_bytes: int = 0) -> None:
        self.messages.append(message)
        self.content_bytes += content_bytes
        self.size_bytes += len(message)


class OutgoingFiles:
    """The files of one restore.

    Args:
        sources: What to send, in this order; advanced and read in threads, one step at a time.
        wait: Waited for where a source, or a piece of one, is not there yet.
        staged: What earlier attempts have left of files, by path.

    Attributes:
        entries: Path, size and SHA-256 of each file that was handed on whole.
        bytes_count: Sum of their sizes.
        sent_bytes: Size of the messages.
        resumed_bytes: Content that was there already.
    """

    def __init__(
        self,
        sources: Iterable[TranscriptSource | None],
        wait: Callable[[], Awaitable[None]] | None = None,
        staged: Mapping[bytes, Entry] = _NOTHING_STAGED,
    ) -> None:
        self._sources = sources
        self._wait = wait
        self._staged = staged
        self.resumed_bytes = 0
        self.entries: list[Entry] = []
        self.bytes_count = 0
        self.sent_bytes = 0

    @property
    def commit(self) -> transcript_pb2.TranscriptCommit:
        """The commit of what was sent."""
        return transcript_pb2.TranscriptCommit(files_count=len(self.entries), bytes_count=self.bytes_count)

    @property
    def commit_seconds(self) -> float:
        """Time to grant a daemon, beside its usual silence, between the commit and its answer."""
        return self.bytes_count / MIN_COMMIT_BYTES_PER_SECOND + len(self.entries) / _MIN_COMMIT_FILES_PER_SECOND

    async def send(self, send: Send, after_chunk: Callable[[int], None] | None) -> None:
        """Send all files; what comes next is made while a batch is sent.

        However this ends, the sources are closed, in a thread.

        Raises:
            SessionError: `unsafe_name`: a source names no path below the home.
        """
        batches = self._batches()
        try:
            batch = await in_thread(next, batches, None)
            while batch is not None:
                async with task_group() as group:
                    following = group.create_task(self._following(batches, batch))
                    for message in batch.messages:
                        await send(message)
                self.sent_bytes += batch.size_bytes
                if after_chunk is not None and batch.content_bytes:
                    after_chunk(batch.content_bytes)
                batch = following.result()
        finally:
            await in_thread(batches.close)

    async def _following(self, batches: Iterator[_Batch], batch: _Batch) -> _Batch | None:
        if batch.is_followed_by_nothing and self._wait is not None:
            await self._wait()
        return await in_thread(next, batches, None)

    def _batches(self) -> Generator[_Batch, None, None]:
        batch = _Batch([])
        with _closing(self._sources) as sources:
            for source in sources:
                for message, content_bytes in self._messages(source) if source else ((b"", 0),):
                    if message:
                        batch.add(message, content_bytes)
                    batch.is_followed_by_nothing = not message
                    if batch.size_bytes >= CHUNK_BYTES or batch.is_followed_by_nothing:
                        yield batch
                        batch = _Batch([])
        yield batch

    def _messages(self, source: TranscriptSource) -> Generator[tuple[bytes, int], None, None]:
        """Yield the messages of a file, each with how many bytes of content it has; an empty one: none for now."""
        path = os.fsencode(source.path)
        if problem := path_problem(path):
            raise SessionError("unsafe_name", f"the path '{printable(path)}' of a transcript {problem}")
        begin = transcript_pb2.TranscriptFile(
            path=path, mode=source.mode, append_lines=source.append_lines, placed_last=source.placed_last
        )
        with ExitStack() as stack:
            pieces, sha256 = stack.enter_context(_closing(source.pieces())), hashlib.sha256()
            if (staged := self._staged.get(path)) and staged.size and not source.append_lines:
                beginning = _Beginning(pieces, staged)
                for _ in beginning.pass_over():
                    yield b"", 0
                if beginning.is_it:
                    begin.from_offset, begin.prefix_sha256 = staged.size, staged.sha256
                    pieces, sha256 = chain((beginning.rest,), pieces), beginning.content
                    self.resumed_bytes += staged.size
                else:  # never a splice: from its start
                    stack.close()
                    pieces = stack.enter_context(_closing(source.pieces()))
            yield transcript_pb2.TranscriptRestoreRequest(file=begin).SerializeToString(), begin.from_offset
            batcher = Batcher(begin.from_offset)
            for piece in pieces:
                if not piece:
                    yield b"", 0
                    continue
                sha256.update(piece)
                batcher.add(piece)
                for offset, parts in batcher.full():
                    yield chunk_message(offset, parts), sum(map(len, parts))
        for offset, parts in batcher.rest():
            yield chunk_message(offset, parts), sum(map(len, parts))
        trailer = payload_pb2.Trailer(size=batcher.size, sha256=sha256.digest())
        yield transcript_pb2.TranscriptRestoreRequest(trailer=trailer).SerializeToString(), 0
        self.bytes_count += batcher.size
        self.entries.append(Entry(path, batcher.size, sha256.digest()))


class _Beginning:
    """The beginning of a file that may be what the daemon has of it.

    Args:
        pieces: The file.
        staged: What the daemon has.

    Attributes:
        content: SHA-256 of the beginning.
        rest: What came with its last piece, and is behind it.
        is_it: Whether it is the same.
    """

    def __init__(self, pieces: Iterator[bytes], staged: Entry) -> None:
        self._pieces = pieces
        self._staged = staged
        self.content = hashlib.sha256()
        self.rest = b""
        self.is_it = False

    def pass_over(self) -> Iterator[None]:
        """Take as much as the daemon has, about a chunk at a time."""
        left_bytes, stop_bytes = self._staged.size, self._staged.size - CHUNK_BYTES
        while left_bytes:
            piece = next(self._pieces, None)
            if piece is None:
                return
            self.content.update(piece[:left_bytes])
            self.rest = piece[left_bytes:]
            left_bytes -= len(piece) - len(self.rest)
            if left_bytes <= stop_bytes:
                stop_bytes -= CHUNK_BYTES
                yield
        self.is_it = self.content.digest() == self._staged.sha256


@contextmanager
def _closing(items: Iterable[T]) -> Iterator[Iterator[T]]:
    """Iterate, and close a generator here instead of when, and in the thread where, it is forgotten."""
    iterator = iter(items)
    try:
        yield iterator
    finally:
        if isinstance(iterator, Generator):
            iterator.close()


def restored_of(
    answer: transcript_pb2.TranscriptRestoreResponse, conversation_id: str, outgoing: OutgoingFiles
) -> RestoredTranscript:
    """Return what a daemon answered to a restore, checked.

    Raises:
        SessionError: `protocol`: it cannot be what came of the files that were sent.
    """
    replaced, added = reply.relative_paths(answer.replaced), reply.relative_paths(answer.added)
    told = [*answer.replaced, *answer.added]
    if len(set(told)) < len(told) or not {entry.path for entry in outgoing.entries}.issuperset(told):
        raise SessionError("protocol", "the daemon tells of files that were not sent, or of one twice")
    if (answer.unchanged and (told or answer.recovery)) or (answer.replaced and not answer.recovery):
        raise SessionError("protocol", "the daemon's result of the restore contradicts itself")
    return RestoredTranscript(
        unchanged=answer.unchanged,
        recovery=reply.recovery_name(answer.recovery, conversation_id) if answer.recovery else "",
        replaced=replaced,
        added=added,
        files_count=len(outgoing.entries),
        bytes_count=outgoing.bytes_count,
        sent_bytes=outgoing.sent_bytes,
        resumed_bytes=outgoing.resumed_bytes,
        entries=outgoing.entries,
    )
