"""What broken attempts at a restore of files had staged: told to the client, and moved to the attempt that goes on.

The one rule: nothing is believed. A file is gone on with only as a regular file of its own, by descriptor, behind a
beginning that was hashed again and is the one that the client named.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox_agent.core.file_set_record import FileSetRecord, is_reserved
from sandbox_agent.core.removal import remove_tree
from sandbox_api.errors import ConflictError, printable
from sandbox_api.limits import CHUNK_BYTES, MAX_DEPTH_COUNT, MAX_FILES_COUNT
from sandbox_api.names import path_problem

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Self

    from sandbox_agent.core.intent import Intent, Record
    from sandbox_agent.core.journal import Journal
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.sandbox import Sandbox
    from sandbox_agent.core.staging import Staging

_log = logging.getLogger(__name__)

_BLOCK_BYTES = 512
_MAX_COMPRESSION = 128
"""How much larger a file may be than its room, on a file system that compresses."""

_MIN_HOLE_BYTES = 64 << 20
"""Whatever its room is, a file of this size is hashed soon; some file systems give room late."""


class StagedFile(NamedTuple):
    """A file, or the beginning of one, that waits: its path below the home, its size, and the SHA-256 of that."""

    path: bytes
    size: int
    sha256: bytes


class KeptFiles:
    """What waits for one restore, held for one attempt; a context manager, which lets go of it. Blocking.

    Args:
        journal: Tells what waits.
        home: The home of the restore; stays the caller's.
        record: Of the restore, with its id.

    Raises:
        ConflictError: on entering: `busy`: another attempt is at work.
    """

    def __init__(self, journal: Journal, home: Directory, record: FileSetRecord) -> None:
        self._journal = journal
        self._home = home
        self._record = record
        self._intents: list[Intent] = []
        self._trees: list[Directory] = []
        self._held = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            place = (self._record.home, self._record.format, self._record.conversation_id)
            stack.enter_context(self._journal.kept.claimed(self._record.restore_id, place))
            for intent, _ in self._journal.take_kept(self._record.restore_id, self._is_meant):
                stack.callback(intent.close)
                self._intents.append(intent)
                # Nothing, a link, a file: there is nothing to go on with.
                with suppress(OSError):
                    self._trees.append(stack.enter_context(self._home.directory(intent.staging_name)))
            self._held = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    @property
    def size_bytes(self) -> int:
        """Size of all that waits."""
        return sum(size for tree in self._trees for _, size in _files(tree))

    def files(self) -> Iterator[StagedFile]:
        """Yield what waits, each path once, with the most that waits of it.

        Raises:
            OSError: it cannot be read.
        """
        largest: dict[bytes, tuple[int, Directory]] = {}
        for tree in self._trees:
            for path, size in _files(tree):
                if path not in largest or largest[path][0] < size:
                    largest[path] = (size, tree)
        for path, (size, tree) in sorted(largest.items(), key=lambda item: item[0]):
            content = _beginning(tree, path, size)
            if content is not None:
                yield StagedFile(path, size, content.digest())

    def take(self, path: bytes, size: int, sha256: bytes, staging: Staging) -> Any:
        """Move a file that begins so to a staging directory; return the SHA-256 object of that beginning.

        Args:
            path: The file.
            size: Size of the beginning; the rest of the file is to be cut off.
            sha256: Its SHA-256.
            staging: Where to; it has nothing at the path.

        Raises:
            ConflictError: `target_changed`: no such file waits any more.
            OSError: it cannot be moved.
        """
        for tree in self._trees:
            parent, _, name = path.rpartition(b"/")
            try:
                with tree.directory(parent) as folder:
                    fd = folder.file(name)
                    try:
                        content = _hashed(fd, size)
                        is_it = content is not None and content.digest() == sha256
                        if is_it and staging.take(folder, name, path, fd):
                            return content
                    finally:
                        os.close(fd)
            except FileNotFoundError:
                continue
        raise ConflictError(
            "target_changed",
            f"what an earlier attempt had staged of '{printable(path)}' is not there any more",
            hint="try again",
            facts={"path": printable(path)},
        )

    def keep(self) -> None:
        """Let it wait on, for the whole time again."""
        for intent in self._intents:
            self._journal.keep(intent)

    def discard(self) -> None:
        """Remove what is left of it."""
        for intent in self._intents:
            try:
                remove_tree(self._home, intent.staging_name)
                intent.end()
            except OSError:
                # The sandbox made something of it that cannot be removed now: the sweep will try.
                _log.warning("what a broken restore had staged stays for the sweep")

    def _is_meant(self, record: Record | FileSetRecord) -> bool:
        ours = self._record
        return isinstance(record, FileSetRecord) and (record.home, record.format, record.conversation_id) == (
            ours.home,
            ours.format,
            ours.conversation_id,
        )


def list_staged(sandbox: Sandbox, record: FileSetRecord) -> Generator[StagedFile, None, None]:
    """Yield what waits for a restore; all of it waits on, for the whole time again. Blocking.

    Args:
        sandbox: Where.
        record: Of the restore, with its id.

    Raises:
        ConflictError: `busy`: an attempt is at work.
        WorkspaceError: `outside_roots`, `unsafe_path`.
        OSError: it cannot be read.
    """
    root, relative = sandbox.roots.locate(record.home)
    try:
        home = root.directory(relative)
    except FileNotFoundError:
        return
    with home, KeptFiles(sandbox.journal, home, replace(record, home=home.path)) as kept:
        try:
            yield from kept.files()
        finally:
            kept.keep()


def _files(tree: Directory) -> Iterator[tuple[bytes, int]]:
    """Yield the regular files of a tree with their sizes, no more than a conversation may have."""
    left_count = MAX_FILES_COUNT
    folders = [b""]
    while folders:
        folder = folders.pop()
        prefix = folder + b"/" if folder else b""
        with suppress(OSError), tree.directory(folder) as held:
            for name in held.names():
                status = held.stat(name)
                path = prefix + name
                left_count -= 1
                if left_count < 0:
                    return
                if stat.S_ISDIR(status.st_mode) and path.count(b"/") < MAX_DEPTH_COUNT:
                    folders.append(path)
                elif _is_backed(status) and not path_problem(path) and not is_reserved(path):
                    yield path, status.st_size


def _is_backed(status: os.stat_result) -> bool:
    """Tell whether a file is one, and takes about the room on the disk that it says: to hash a hole may take years."""
    most_bytes = status.st_blocks * _BLOCK_BYTES * _MAX_COMPRESSION + _MIN_HOLE_BYTES
    return stat.S_ISREG(status.st_mode) and status.st_size <= most_bytes


def _beginning(tree: Directory, path: bytes, size: int) -> Any:
    try:
        fd = tree.file(path)
    except OSError:
        return None
    try:
        return _hashed(fd, size)
    finally:
        os.close(fd)


def _hashed(fd: int, size: int) -> Any:
    """Return the SHA-256 object of a file's beginning; None when there is no such one, or the file is another's too."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return None
    content, at = hashlib.sha256(), 0
    while at < size:
        piece = os.pread(fd, min(CHUNK_BYTES, size - at), at)
        if not piece:
            return None
        content.update(piece)
        at += len(piece)
    return content
