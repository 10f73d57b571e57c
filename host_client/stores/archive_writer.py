"""Archived files on their way back to a kept conversation, in the folder of nobody else.

The one rule: every file has the SHA-256 that its manifest says before anything is made of it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from host_client.errors import SessionError, printable
from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.session.bundle import BundleWriter, Folder
from host_client.session.failure import host_failures
from host_client.stores.archive_content import is_native
from host_client.stores.bundle import STEPS, SessionBundleConversations
from host_client.stores.transcript import TranscriptConversations
from host_client.stores.transcript_home import HostHome
from host_client.stores.transcript_kept import effective_limits
from sandbox_api.manifest import Entry, bundle_digest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import PurePosixPath
    from types import TracebackType
    from typing import Self

    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationStore

_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ArchivedContent:
    """A conversation as a manifest has it.

    Attributes:
        conversation_id: The id by which its CLI knows it.
        source: Where it was captured from.
        entries: Its files, by path.
        digest: The digest of its record.
    """

    conversation_id: str
    source: PurePosixPath
    entries: Sequence[Entry]
    digest: bytes


class _ContentWriter(Protocol):
    """Makes a kept conversation of archived files, in the order of their paths. Methods block.

    Use it as a context manager; what was not finished is no kept conversation.
    """

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of everything."""

    def add(self, index: int, piece: bytes | memoryview) -> None:
        """Take the next part of a file."""

    def end(self, index: int) -> None:
        """Take note that a file is whole, an empty one too.

        Raises:
            SessionError: `digest_mismatch`.
        """

    def finish(self) -> None:
        """Make it the kept conversation."""


async def write_content(
    base: ConversationStore,
    content: ArchivedContent,
    context: ConversationContext,
    fetch: Callable[[Callable[[bytes], None]], Awaitable[None]],
) -> None:
    """Make archived files a kept conversation below the context's conversation home, where nothing is yet.

    Args:
        base: The store that is to find it there.
        content: What it is.
        context: Has the conversation home.
        fetch: Hands the contents of all files, in a row, to what it is given, which blocks.

    Raises:
        SessionError: `digest_mismatch`; `corrupt`: the files are no conversation of the format.
        LimitError: `max_bytes`, `max_files`; `disk_full`, `read_only`, `descriptors`.
        OutpostError: those of `fetch`.
    """
    entries = content.entries
    # Before anything is fetched: one small object, named again and again, is as large as its manifest says.
    limits = context.effective_limits if isinstance(base, SessionBundleConversations) else effective_limits(context)
    limits.check(bytes_count=sum(entry.size for entry in entries), files_count=len(entries))
    # The base finds its files by looking: others beside them would stay on this host, and count for nobody.
    if is_native(base) and bundle_digest(entries) != content.digest:
        raise SessionError(
            "digest_mismatch",
            f"the archived files of {content.conversation_id} do not have the digest of the whole",
        )
    async with opened_in_thread(_writer, base, content, context) as writer:
        filling = _Filling(writer, content.entries)
        await fetch(filling.take)
        await in_thread(filling.finish)


class _Filling:
    """Contents in a row, told apart."""

    def __init__(self, writer: _ContentWriter, entries: Sequence[Entry]) -> None:
        self._writer = writer
        self._entries = entries
        self._index = 0
        self._written_bytes = 0  # of the file that is being written

    def take(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._end_files()
            if self._index == len(self._entries):
                raise SessionError("corrupt", "the archived content is longer than its files")
            piece = view[: self._entries[self._index].size - self._written_bytes]
            self._writer.add(self._index, piece)
            self._written_bytes += len(piece)
            view = view[len(piece) :]

    def finish(self) -> None:
        self._end_files()
        if self._index < len(self._entries):
            raise SessionError("corrupt", "the archived content is shorter than its files")
        self._writer.finish()

    def _end_files(self) -> None:
        while self._index < len(self._entries) and self._written_bytes == self._entries[self._index].size:
            self._writer.end(self._index)
            self._index, self._written_bytes = self._index + 1, 0


def _writer(base: ConversationStore, content: ArchivedContent, context: ConversationContext) -> _ContentWriter:
    """Return what writes archived files as the base keeps them, below the context's conversation home; blocks.

    Nothing may be there yet.
    """
    if isinstance(base, SessionBundleConversations):
        return _BundleContentWriter(base, content, context)
    if isinstance(base, TranscriptConversations):
        home = HostHome.of(base.layout, context)
        return _FileContentWriter(home.open(create=True, durable=False), content.entries)
    return _FileContentWriter(Folder.open(context.base, (), create=False), content.entries)


class _BundleContentWriter:
    def __init__(
        self, base: SessionBundleConversations, content: ArchivedContent, context: ConversationContext
    ) -> None:
        self._format = base.format
        self._content = content
        self._folder = Folder.open(context.base, (*STEPS, base.format), create=True, durable=False)
        self._writer = BundleWriter(self._folder, base.profile, content.conversation_id, previous=None, durable=False)

    def __enter__(self) -> Self:
        try:
            entries = [Entry(entry.path, entry.size) for entry in self._content.entries]
            self._writer.begin(self._content.source, entries)
        except BaseException as error:
            self._folder.close()
            if isinstance(error, SessionError) and error.reason == "protocol":
                problem = f"what is archived is no session of {self._format}: {error.message}"
                raise SessionError("corrupt", problem, offenders=error.offenders) from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.abort()
        self._folder.close()

    def add(self, index: int, piece: bytes | memoryview) -> None:
        self._writer.data(index, piece)

    def end(self, index: int) -> None:
        self._writer.end(index, self._content.entries[index].sha256)

    def finish(self) -> None:
        self._writer.finish(self._content.entries, self._content.digest)


class _FileContentWriter:
    def __init__(self, home: Folder, entries: Sequence[Entry]) -> None:
        self._home = home
        self._entries = entries
        self._fd = -1
        self._sha256 = hashlib.sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._home.close()

    def add(self, index: int, piece: bytes | memoryview) -> None:
        if self._fd < 0:
            self._begin(index)
        self._sha256.update(piece)
        with self._failures(index):
            view = memoryview(piece)
            while view:
                view = view[os.write(self._fd, view) :]

    def end(self, index: int) -> None:
        if self._fd < 0:
            self._begin(index)
        self._close()
        entry = self._entries[index]
        if self._sha256.digest() != entry.sha256:
            raise SessionError(
                "digest_mismatch", f"the archived content of {printable(entry.path)!r} is not that of its digest"
            )

    def finish(self) -> None:
        """Do nothing: every file is there already."""

    def _begin(self, index: int) -> None:
        *steps, name = os.fsdecode(self._entries[index].path).split("/")
        with self._home.below(steps, create=True, durable=False) as folder, self._failures(index):
            self._fd = os.open(name, _WRITE_FLAGS, 0o600, dir_fd=folder.fd)
        self._sha256 = hashlib.sha256()

    def _failures(self, index: int) -> AbstractContextManager[None]:
        return host_failures(self._home.host_path / os.fsdecode(self._entries[index].path))

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
