"""What the broken attempts at a restore had staged, moved into the staging directory of the attempt that goes on.

The one rule: nothing is believed. What waited lay in the sandbox's reach: a file is taken only as a regular file of its
own, by descriptor, after its content was hashed again; everything else is removed with the directory it waited in.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import ExitStack, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox_agent.core.intent import Record
from sandbox_agent.core.removal import remove_tree
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sandbox_agent.core.file_set_record import FileSetRecord
    from sandbox_agent.core.journal import Journal
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.staging import Staging
    from sandbox_api.manifest import Entry

_log = logging.getLogger(__name__)

MIN_PART_BYTES = 64 << 10
"""Less of a file is sent again sooner than it is asked about."""


class Part(NamedTuple):
    """The beginning of a file, or all of it, as it is staged now.

    Attributes:
        size: Bytes of it.
        content: SHA-256 of it, to be gone on with.
    """

    size: int
    content: Any


def resume(
    journal: Journal,
    entries: Sequence[Entry],
    staging: Callable[[], Staging],
    *,
    restore_id: str,
    cli_home: Directory,
    parent: bytes,
    conversation_id: str,
) -> dict[bytes, Part]:
    """Move what is good of all that waits for a restore; the rest of it is removed.

    Args:
        journal: Tells what waits.
        entries: What is lacking, in order.
        staging: Gives where to; asked only when there is something.
        restore_id: Names the restore.
        cli_home: The CLI home of its place.
        parent: Folder of the session below that.
        conversation_id: Name of the session.

    Returns:
        What is staged now, by path.

    Raises:
        ConflictError: `busy`: another daemon is at work on it.
    """

    def is_meant(record: Record | FileSetRecord) -> bool:
        where = (cli_home.path, parent, conversation_id)
        return isinstance(record, Record) and (record.cli_home, record.parent, record.conversation_id) == where

    taken: dict[bytes, Part] = {}
    with ExitStack() as stack:
        waiting = [intent for intent, _ in journal.take_kept(restore_id, is_meant)]
        for intent in waiting:
            stack.callback(intent.close)
        for intent in waiting:
            try:
                with cli_home.directory(parent) as folder:
                    # Nothing, a link, a file: there is nothing to go on with.
                    with suppress(OSError), folder.directory(intent.staging_name) as kept:
                        lacking = [entry for entry in entries if entry.path not in taken]
                        taken.update(take_files(kept, lacking, staging))
                    remove_tree(folder, intent.staging_name)
            except FileNotFoundError:
                intent.end()
            except OSError:
                # The sandbox made something of it that cannot be removed now: the sweep will try.
                _log.warning("what a broken restore had staged stays for the sweep")
            else:
                intent.end()
    return taken


def take_files(
    kept: Directory, entries: Iterable[Entry], staging: Callable[[], Staging]
) -> Iterator[tuple[bytes, Part]]:
    """Move what is good of a directory that waited; yield the path of each file and what is there of it.

    Args:
        kept: The directory; whatever else is in it stays.
        entries: What is lacking, in order.
        staging: Gives where to.

    Raises:
        OSError: the directory to move to cannot be written.
    """
    with ExitStack() as stack:
        folder, held = b"", stack.enter_context(kept.directory(b""))
        for entry in entries:
            parent, _, name = entry.path.rpartition(b"/")
            try:
                if parent != folder:
                    held.close()
                    folder, held = parent, stack.enter_context(kept.directory(parent))
                part = _take(held, name, entry, staging)
            except OSError:  # missing, a link, on another file system: nothing to go on with
                continue
            if part is not None:
                yield entry.path, part


def _take(held: Directory, name: bytes, entry: Entry, staging: Callable[[], Staging]) -> Part | None:
    fd = held.file(name)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size > entry.size:
            return None
        if status.st_size < entry.size and status.st_size < MIN_PART_BYTES:
            return None
        part = _read(fd, status.st_size)
        if part is None or (part.size == entry.size and part.content.digest() != entry.sha256):
            return None
        return part if staging().take(held, name, entry.path, fd) else None
    finally:
        os.close(fd)


def _read(fd: int, size: int) -> Part | None:
    """Hash a file of that size; None when it is shorter by now."""
    content = sha256()
    left_bytes = size
    while left_bytes:
        piece = os.pread(fd, min(left_bytes, CHUNK_BYTES), size - left_bytes)
        if not piece:
            return None
        content.update(piece)
        left_bytes -= len(piece)
    return Part(size, content)
