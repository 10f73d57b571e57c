"""The files of a capture before they have their names.

The one rule: they lie in a folder of their own, locked for as long as its writer lives. What a killed writer left has
no lock and goes when the next one starts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import threading
from contextlib import suppress
from itertools import count
from queue import Queue
from typing import TYPE_CHECKING

from host_client.session.failure import host_failures
from host_client.session.folder import Folder
from host_client.session.output import Output
from sandbox_api.names import STAGING_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable
    from hashlib import _Hash
    from types import TracebackType
    from typing import Self

_PREFIX = f"{STAGING_PREFIX}capture-"
_MAX_PIECES_COUNT = 4
"""Pieces that wait to be written; the largest have 1 MiB."""
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LineDigest:
    """SHA-256 of a stream, and of its beginning up to its last newline.

    Args:
        start: Of what came before; it stays the caller's.
        size_bytes: How much that was; it ends with a newline unless it is nothing.

    Attributes:
        size_bytes: Size of the stream so far.
        line_bytes: Size of its beginning up to the last newline.
    """

    def __init__(self, start: _Hash | None = None, size_bytes: int = 0) -> None:
        self._whole = start.copy() if start else hashlib.sha256()
        self._lines = self._whole.copy()
        self.size_bytes = size_bytes
        self.line_bytes = size_bytes

    def update(self, data: bytes, /) -> None:
        """Take the next bytes."""
        cut = data.rfind(b"\n") + 1
        if cut == len(data):
            self._whole.update(data)
        else:
            view = memoryview(data)
            self._whole.update(view[:cut])
        if cut:
            self._lines = self._whole.copy()
            self.line_bytes = self.size_bytes + cut
        if cut < len(data):
            self._whole.update(view[cut:])
        self.size_bytes += len(data)

    def digest(self) -> bytes:
        """Return the digest of the stream."""
        return self._whole.digest()

    def lines(self) -> _Hash:
        """Return a copy of the object that its whole lines were hashed with."""
        return self._lines.copy()

    def line_digest(self) -> bytes:
        """Return the digest of its whole lines."""
        return self._lines.digest()


class HashMemory:
    """SHA-256 objects of this process by their digests, so that what follows a content can be hashed without it.

    Bounded; the oldest go first. For all captures of a process, from any thread.
    """

    def __init__(self, max_count: int = 4096) -> None:
        self._max_count = max_count
        self._lock = threading.Lock()
        self._known: dict[bytes, _Hash] = {}

    def get(self, sha256: bytes) -> _Hash | None:
        """Return an object that has that digest, to be copied; None when none is known."""
        return self._known.get(sha256)

    def note(self, digest: LineDigest) -> None:
        """Remember the whole lines of a stream."""
        with self._lock:
            self._known.pop(digest.line_digest(), None)
            self._known[digest.line_digest()] = digest.lines()
            if len(self._known) > self._max_count:
                del self._known[next(iter(self._known))]


MEMORY = HashMemory()
"""That of this process."""


class Staging:
    """A folder for the files of one capture. Use it as a context manager: leaving it removes the folder.

    Methods block; `new` may be called from several threads.

    Args:
        home: Where the folder lies; stays the caller's.
    """

    def __init__(self, home: Folder) -> None:
        self._home = home
        self._names = map(str, count())
        with host_failures(home.host_path):
            self._sweep()
            self._create()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def new(self) -> StagedFile:
        """Begin a file.

        Raises:
            LimitError: `disk_full`, `descriptors`.
        """
        return StagedFile(self.folder, next(self._names))

    def new_name(self) -> str:
        """Return a name in the folder that nothing has."""
        return next(self._names)

    def close(self) -> None:
        """Remove the folder and what is in it; a second call does nothing."""
        if self.folder.fd >= 0:
            with suppress(OSError):  # the first failure is the one to report, and the next sweep tries again
                _remove(self.folder.fd, self._home.fd, self._name)
            self.folder.close()

    def _create(self) -> None:
        while True:
            self._name = _PREFIX + secrets.token_hex(16)
            os.mkdir(self._name, 0o700, dir_fd=self._home.fd)
            try:
                fd = os.open(self._name, _DIRECTORY_FLAGS, dir_fd=self._home.fd)
            except FileNotFoundError:
                continue  # a sweep took it for a dead one
            self.folder = Folder(fd, self._home.host_path / self._name)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                return
            self.folder.close()

    def _sweep(self) -> None:
        for name in self._home.names():
            if not name.startswith(_PREFIX):
                continue
            try:
                fd = os.open(name, _DIRECTORY_FLAGS, dir_fd=self._home.fd)
            except OSError:
                continue  # gone, or no folder of ours
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(fd, self._home.fd, name)
            except OSError:
                continue  # its writer lives, another sweep was faster, or it is not as we make them
            finally:
                os.close(fd)


class StagedFile:
    """A file that is being written into a `Staging`. Methods block.

    Attributes:
        name: In the folder.
        digest: Of what was written.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self.digest = LineDigest()
        self._host_path = folder.host_path / name
        with host_failures(self._host_path):
            self._fd = os.open(name, _FILE_FLAGS, 0o600, dir_fd=folder.fd)
        self._output = Output(self._fd, self._host_path)

    @property
    def size_bytes(self) -> int:
        """Size of what was written."""
        return self.digest.size_bytes

    @property
    def written_bytes(self) -> int:
        """What can be read of it by now."""
        return self._output.written_bytes

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            LimitError: `disk_full`.
        """
        self.digest.update(data)
        self._output.add(data)

    def finish(self, *, durable: bool) -> None:
        """Write the rest and close the file.

        Args:
            durable: Force it to the disk.

        Raises:
            LimitError: `disk_full`.
        """
        self._output.flush()
        if durable:
            with host_failures(self._host_path):
                os.fsync(self._fd)
        self.close()
        MEMORY.note(self.digest)

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def close_all(*files: StagedFile | None) -> None:
    """Let go of files, of those that there are."""
    for file in files:
        if file is not None:
            file.close()


def teed(file: StagedFile | None, write: Callable[[bytes], object]) -> Callable[[bytes], None]:
    """Return what hands pieces on, and keeps them as they came in a file where there is one."""

    def take(data: bytes) -> None:
        if file is not None:
            file.write(data)
        write(data)

    return take


class WriteBehind:
    """Writes in a thread of its own, so that who makes the next piece need not wait. Methods block.

    Use it as a context manager: leaving it ends the thread; what `finish` has not waited for may be lost then.

    Args:
        write: Takes each piece; runs in that thread.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._pieces: Queue[bytes | None] = Queue(_MAX_PIECES_COUNT)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._failure is None:
            self._failure = error  # what waits is of no use any more
        self._end()
        self._failure = None  # it knows this object by its trace: what the steps hold is let go at once

    def write(self, data: bytes) -> None:
        """Hand over the next piece; waits while many are not written yet.

        Raises:
            OutpostError: what writing an earlier piece raised.
        """
        if self._failure is not None:
            raise self._failure
        self._pieces.put(data)

    def finish(self) -> None:
        """Wait until everything is written.

        Raises:
            OutpostError: what writing raised.
        """
        self._end()
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        if self._thread.is_alive():
            self._pieces.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (data := self._pieces.get()) is not None:
            if self._failure is None:
                try:
                    self._write(data)
                except BaseException as error:  # noqa: BLE001 - raised where the next piece is handed over
                    self._failure = error


def _remove(fd: int, parent_fd: int, name: str) -> None:
    """Remove a folder that holds nothing but files."""
    for entry in os.listdir(fd):
        os.unlink(entry, dir_fd=fd)
    os.rmdir(name, dir_fd=parent_fd)
