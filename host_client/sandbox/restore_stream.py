"""The sending half of a restore whose digests follow its contents: a capture is passed on while it arrives.

The one rule: the daemon hears the bundle digest, without which it places nothing, only from who has verified the
capture to its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import SessionError
from host_client.sandbox.progress import Progress
from host_client.sandbox.restore import MIN_COMMIT_BYTES_PER_SECOND
from sandbox_api.framing import Batcher
from sandbox_api.manifest import DIGEST_BYTES, check_entries
from sandbox_api.v1 import payload_pb2
from sandbox_api.wire import chunk_message, pack_manifest

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Sequence

    from host_client.sandbox.restore import Send
    from sandbox_api.limits import Limits
    from sandbox_api.manifest import Entry


class OutgoingStream:
    """The payload of one such restore.

    Args:
        entries: The manifest, without digests.
        limits: The smaller of both sides' limits.

    Attributes:
        manifest: As it is sent.
        resumed_bytes: 0: such a restore begins anew.

    Raises:
        SessionError: `unsafe_name`, `protocol`, `empty`: the manifest must not be sent.
        LimitError: `max_files`, `max_bytes`.
    """

    def __init__(self, entries: Sequence[Entry], limits: Limits) -> None:
        check_entries(entries, limits, complete=False)
        if any(entry.sha256 or entry.from_offset for entry in entries):
            raise SessionError("protocol", "the manifest of a restore whose digests follow has some already")
        self.manifest = pack_manifest(entries)
        self.resumed_bytes = 0
        self._batcher = Batcher()
        self._files_count = len(entries)
        self._bytes_total = sum(entry.size for entry in entries)
        self._payload_bytes = self._bytes_total + len(entries) * DIGEST_BYTES
        self._digest = b""
        self._passed_bytes = 0

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
        """How much was passed on; files are counted when all of them were, digests with the contents before them."""
        is_done = self._passed_bytes == self._payload_bytes
        passed_bytes = min(self._passed_bytes, self._bytes_total)
        return Progress(self._files_count if is_done else 0, self._files_count, passed_bytes, self._bytes_total)

    @property
    def trailer(self) -> payload_pb2.Trailer:
        """The trailer of what was sent."""
        return payload_pb2.Trailer(size=self._batcher.size, sha256=self._digest)

    async def send_manifest(self, send: Send) -> None:
        """Send the manifest as chunks of its own."""
        self._batcher.add(self.manifest)
        await self._send(self._batcher.rest(), send)

    async def pass_on(
        self,
        contents: AsyncIterable[bytes],
        digest: Callable[[], Awaitable[bytes]],
        send: Send,
        after_piece: Callable[[], None],
    ) -> None:
        """Send contents and digests as they come, then wait for the bundle digest.

        Raises:
            SessionError: `corrupt`: they are more or less than the manifest says.
        """
        async for piece in contents:
            self._passed_bytes += len(piece)
            if self._passed_bytes > self._payload_bytes:
                break
            self._batcher.add(piece)
            await self._send(self._batcher.full(), send)
            after_piece()
        if self._passed_bytes != self._payload_bytes:
            raise SessionError("corrupt", f"the contents do not have the {self._bytes_total} bytes promised")
        await self._send(self._batcher.rest(), send)
        self._digest = await digest()

    @staticmethod
    async def _send(chunks: Sequence[tuple[int, list[bytes]]], send: Send) -> None:
        for offset, parts in chunks:
            await send(chunk_message(offset, parts))
