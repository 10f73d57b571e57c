"""A session directory in a relay: what a capture receives goes to a spool as well, and from there to the targets.

The one rule: a target's daemon gets the digest of all, without which it commits nothing, only from the record of the
capture.
"""

from __future__ import annotations

import os
import time
from contextlib import aclosing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from host_client.sandbox.place import Place
from host_client.sandbox.task import in_thread
from host_client.session.failure import host_failures
from host_client.session.output import Output

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from host_client.sandbox.capture import CaptureSink
    from host_client.stores.bundle import SessionBundleConversations
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import RestoreOutcome
    from host_client.stores.relay_spool import Spool, SpooledFile, SpoolReader
    from sandbox_api.manifest import Entry

_PAYLOAD = PurePosixPath("payload")


class SpoolingSink:
    """The `CaptureSink` in front of another one that writes all contents to a spool, each with its digest behind it.

    Args:
        inner: Verifies what comes, and keeps it.
        spool: Is told of the file.
        directory: Where the file is made, under a name that nothing has.
    """

    def __init__(self, inner: CaptureSink, spool: Spool, directory: Path) -> None:
        self._inner = inner
        self._spool = spool
        self._path = directory / str(_PAYLOAD)
        self._fd = -1
        self._output: Output
        self._file: SpooledFile

    def begin(self, source: PurePosixPath, entries: Sequence[Entry]) -> None:
        """Take the checked manifest."""
        self._inner.begin(source, entries)
        with host_failures(self._path):
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._output = Output(self._fd, self._path)
        self._spool.entries = entries
        self._spool.expected_bytes = sum(entry.size for entry in entries)
        self._file = self._spool.add(_PAYLOAD, "plain", self._path, self._path)

    def whole(self, index: int, content: memoryview, sha256: bytes) -> None:
        """Take an entry."""
        self._inner.whole(index, content, sha256)
        self._write(bytes(content), sha256)

    def data(self, index: int, piece: memoryview) -> None:
        """Take a part of an entry."""
        self._inner.data(index, piece)
        self._write(bytes(piece))

    def end(self, index: int, sha256: bytes) -> None:
        """Take the end of an entry."""
        self._inner.end(index, sha256)
        self._write(sha256)

    def finish(self) -> None:
        """Tell that all has come."""
        self._output.flush()
        self._spool.complete(self._file, self._output.written_bytes)

    def abort(self) -> None:
        """Let go of the file, and drop what the other one took."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        self._inner.abort()

    def _write(self, *parts: bytes) -> None:
        self._output.add(*parts)
        self._spool.grow(self._file, self._output)


async def restore_spooled_bundle(
    store: SessionBundleConversations, conversation_id: str, reader: SpoolReader, context: ConversationContext
) -> RestoreOutcome:
    """Restore what a reader reads; where the daemon is too old for that, what the capture has kept at its end.

    Raises:
        OutpostError: those of `SessionBundleConversations.restore`.
    """
    started_seconds = time.perf_counter()
    bundles = context.connected.bundles
    if not bundles.can_stream:
        reader.leave()
        return await store.restore(await reader.kept(), context)
    while not reader.has_begun:
        await reader.more()

    async def digest() -> bytes:
        return bytes.fromhex((await reader.kept()).digest)

    async with aclosing(_contents(reader)) as contents:
        restored = await bundles.restore_stream(
            Place(store.profile, conversation_id, context.variables, context.follow_root_link),
            reader.spool.entries,
            contents,
            digest,
            limits=context.limits,
            full_durability=context.is_durable,
            owner=context.owner,
            force=context.force,
            progress=context.progress,
        )
    return store.outcome_of(conversation_id, restored, started_seconds)


async def _contents(reader: SpoolReader) -> AsyncGenerator[bytes, None]:
    pieces = reader.pieces(reader.spool.files[0])
    try:
        while (piece := await in_thread(next, pieces, None)) is not None:
            if piece:
                yield piece
            else:
                await reader.more()
    finally:
        await in_thread(pieces.close)
