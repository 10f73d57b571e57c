"""The sending half of a restore and of a validation: a source's bundle as the messages of a payload.

Reading runs in a thread one chunk ahead of sending. Success is what the daemon says after its commit and nothing else.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

from host_client.errors import SessionError, printable
from host_client.sandbox import reply
from host_client.sandbox.progress import Progress
from host_client.sandbox.task import in_thread, task_group
from sandbox_api.framing import Batcher
from sandbox_api.limits import CHUNK_BYTES
from sandbox_api.manifest import bundle_digest, check_entries
from sandbox_api.v1 import bundle_pb2, payload_pb2
from sandbox_api.wire import chunk_message, pack_manifest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence

    from sandbox_api.limits import Limits
    from sandbox_api.manifest import Entry

    Send = Callable[[bytes], Awaitable[None]]


MIN_COMMIT_BYTES_PER_SECOND = 8 << 20
"""Slowest pace at which a daemon is expected to check, copy and force to disk what it was sent before it answers."""

MAX_PARTS_COUNT = 64
"""Files that a daemon may have a part of; the contract says so."""


class RestoreSource(Protocol):
    """Gives the content of a bundle. `pieces` and its iterator block; they run in threads, one at a time.

    Attributes:
        entries: The files in order, each with the SHA-256 of its whole content.
    """

    @property
    def entries(self) -> Sequence[Entry]:
        """Return the manifest."""

    def pieces(self, index: int, room: Callable[[], int]) -> Iterator[bytes]:
        """Yield the content of one entry; pieces of at most `room()` bytes are sent without a copy."""


class Outgoing:
    """The payload of one restore or validation.

    Args:
        source: What to send.
        limits: The smaller of both sides' limits.

    Attributes:
        manifest: As it is sent.
        digest: The bundle digest.
        resumed_bytes: What a broken attempt had left with the daemon and is not sent again.

    Raises:
        SessionError: `unsafe_name`, `protocol`, `empty`: the source's manifest must not be sent.
        LimitError: `max_files`, `max_bytes`.
    """

    def __init__(self, source: RestoreSource, limits: Limits) -> None:
        self._source = source
        self._entries = source.entries
        check_entries(self._entries, limits, complete=True)
        self._batcher = Batcher()
        self.manifest = pack_manifest(self._entries)
        self.digest = bundle_digest(self._entries)
        self._files_count = 0
        self._bytes_count = 0
        self._bytes_total = sum(entry.size for entry in self._entries)
        self._offsets: dict[int, int] = {}
        self.resumed_bytes = 0

    @property
    def sent_bytes(self) -> int:
        """Payload that was handed on so far."""
        return self._batcher.size

    @property
    def commit_seconds(self) -> float:
        """Time to grant a daemon, beside its usual silence, between the trailer and its answer."""
        return self._bytes_total / MIN_COMMIT_BYTES_PER_SECOND

    @property
    def progress(self) -> Progress:
        """How much the other side has, what it had before included."""
        return Progress(self._files_count, len(self._entries), self._bytes_count, self._bytes_total)

    @property
    def trailer(self) -> payload_pb2.Trailer:
        """The trailer of what was sent."""
        return payload_pb2.Trailer(size=self._batcher.size, sha256=self.digest)

    async def send_manifest(self, send: Send) -> None:
        """Send the manifest as chunks of its own."""
        self._batcher.add(self.manifest)
        for offset, parts in self._batcher.rest():
            await send(chunk_message(offset, parts))

    def lacking(self, need: bundle_pb2.RestoreNeed) -> list[int]:
        """Return the entries whose content the daemon lacks.

        Raises:
            SessionError: `protocol`: the bits are not those of this manifest.
        """
        count = len(self._entries)
        bits = int.from_bytes(need.lacking, "little")
        if len(need.lacking) != (count + 7) // 8 or bits >> count:
            raise SessionError("protocol", "the daemon's need is not about the manifest that was sent")
        return [index for index in range(count) if bits >> index & 1]

    async def go_on(self, need: bundle_pb2.RestoreNeed, lacking: Sequence[int]) -> bundle_pb2.RestoreResume | None:
        """Compare the parts that the daemon has with the source, and go on behind those that are its beginnings.

        Returns:
            What to tell the daemon; None: it asks nothing.

        Raises:
            SessionError: `protocol`: the parts are not those of this manifest.
        """
        sizes = {index: self._entries[index].size for index in lacking}
        parts = [(part.entry, part.size, reply.digest(part.sha256)) for part in need.parts]
        indices = [index for index, _, _ in parts]
        staged_most_bytes = self._bytes_total - sum(sizes.values())
        if (
            len(parts) > MAX_PARTS_COUNT
            or indices != sorted(set(indices) & sizes.keys())
            or not all(0 < size < sizes[index] for index, size, _ in parts)
            or need.staged_bytes > staged_most_bytes
        ):
            raise SessionError("protocol", "what the daemon has staged does not belong to the manifest that was sent")
        for index, size, digest in parts:
            if await in_thread(self._begins_with, index, size, digest):
                self._offsets[index] = size
        self.resumed_bytes = need.staged_bytes + sum(self._offsets.values())
        return bundle_pb2.RestoreResume(entries=self._offsets) if parts else None

    def _begins_with(self, index: int, size: int, digest: bytes) -> bool:
        content = sha256()
        left_bytes = size
        for piece in self._source.pieces(index, lambda: CHUNK_BYTES):
            content.update(piece[:left_bytes])
            left_bytes -= min(left_bytes, len(piece))
            if not left_bytes:
                break
        return not left_bytes and content.digest() == digest

    async def send_contents(self, indices: Sequence[int], send: Send, after_chunk: Callable[[], None]) -> None:
        """Send the content of the entries, in order, behind what is there; the next chunk is read while one is sent.

        Raises:
            SessionError: `corrupt`: the source gave more or less than its manifest says.
        """
        lacking = set(indices)
        self._bytes_count = sum(self._offsets.values()) + sum(
            entry.size for index, entry in enumerate(self._entries) if index not in lacking
        )
        self._files_count = len(self._entries) - len(lacking)
        chunks = self._chunks(indices)
        try:
            chunk = await in_thread(next, chunks, None)
            while chunk is not None:
                async with task_group() as group:
                    following = group.create_task(in_thread(next, chunks, None))
                    await send(chunk)
                after_chunk()
                chunk = following.result()
        finally:
            await in_thread(chunks.close)

    def _chunks(self, indices: Sequence[int]) -> Generator[bytes, None, None]:
        for index in indices:
            for piece in self._pieces(index):
                self._bytes_count += len(piece)
                self._batcher.add(piece)
                for offset, parts in self._batcher.full():
                    yield chunk_message(offset, parts)
            self._files_count += 1
        for offset, parts in self._batcher.rest():
            yield chunk_message(offset, parts)

    def _pieces(self, index: int) -> Iterator[bytes]:
        entry = self._entries[index]
        left_bytes = entry.size
        there_bytes = self._offsets.get(index, 0)
        for piece in self._source.pieces(index, lambda: self._batcher.room_bytes):
            left_bytes -= len(piece)
            if left_bytes < 0:
                break
            if there_bytes < len(piece):
                yield piece[there_bytes:] if there_bytes else piece
            there_bytes -= min(there_bytes, len(piece))
        if left_bytes:
            raise SessionError(
                "corrupt", f"the content of '{printable(entry.path)}' does not have the {entry.size} bytes promised"
            )
