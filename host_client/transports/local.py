"""Objects in a directory of this host: `LocalTransport`.

The one rule: what has an object's name is a whole object, forced to the disk; names change under the store's lock.

Paths are those of `path.py`. Names that begin with `.` are the transport's own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from host_client.errors import ConfigurationError, WorkspaceError, printable
from host_client.session.failure import host_failure
from host_client.session.folder import Folder
from host_client.session.task import in_thread
from host_client.transports.contract import MAX_OBJECT_BYTES, ObjectInfo, StoredObject, check_key, stale_revision
from host_client.transports.frame import HEADER_BYTES, check_frame, check_size, make_header, revision_of
from host_client.transports.local_draft import Draft, sweep
from host_client.transports.path import folders_of, key_of, path_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    _Found = tuple[list[ObjectInfo], list[tuple[str, ...]]]

_LOCK: Final = ".lock"
_DRAFTS: Final = ".drafts"
_SHORTEST: Final = path_of("a")[0]
"""An object's file in a folder that can have one."""

_TOGETHER_COUNT: Final = 1000
_TOGETHER_DEPTH_COUNT: Final = 3
"""How much of a listing is one step: objects, or folders, empty ones too; and how deep below one another."""

_LATEST_SECONDS: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalTransport:
    """Keep objects in a directory, for all processes of this host that may write there.

    The directory must be there: a typing mistake must not become a store. It may be reached through links; below it
    none is followed (`workspace`/`unsafe_path`). Files are 0600 and folders 0700; folders that have become empty stay.
    What a killed writer left is never listed, and goes when the next process writes.

    Args:
        directory: Where.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(os.path.abspath(directory))  # noqa: PTH100 - the same place later on; links stay
        self._is_swept = False

    @property
    def name(self) -> str:
        """Return the directory as a URL."""
        return f"file://{printable(str(self._directory))}"

    async def read(self, key: str, *, max_bytes: int = MAX_OBJECT_BYTES) -> StoredObject | None:
        """Read an object; see `Transport.read`."""
        return await in_thread(self._read, check_key(key), max_bytes)

    async def stat(self, key: str) -> ObjectInfo | None:
        """Look at an object; see `Transport.stat`."""
        return await in_thread(self._stat, check_key(key))

    async def write(self, key: str, data: bytes, *, if_revision: str | None) -> str:
        """Write an object; see `Transport.write`. A cancel waits for its end."""
        return await in_thread(self._write, check_key(key), data, if_revision)

    async def remove(self, key: str, *, if_revision: str | None = None) -> None:
        """Remove an object; see `Transport.remove`. The revision is compared under the lock."""
        await in_thread(self._remove, check_key(key), if_revision)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Yield what is below a prefix; see `Transport.list`."""
        waiting = [folders_of(check_key(prefix, "prefix") if prefix else "")]
        while waiting:
            objects, folders = await in_thread(self._look, waiting.pop())
            waiting += folders
            for found in objects:
                yield found

    def _read(self, key: str, max_bytes: int) -> StoredObject | None:
        with self._opened(key) as fd:
            if fd is None:
                return None
            size = os.fstat(fd).st_size
            check_size(key, size, max_bytes)
            with os.fdopen(os.dup(fd), "rb") as file:
                header = file.read(HEADER_BYTES)
                data = file.read(max(0, size - HEADER_BYTES) + 1)  # and no more, of one that grows meanwhile
        check_frame(key, header, data)
        return StoredObject(data, revision_of(header))

    def _stat(self, key: str) -> ObjectInfo | None:
        with self._opened(key) as fd:
            return None if fd is None else _info(key, os.fstat(fd))

    def _write(self, key: str, data: bytes, if_revision: str | None) -> str:
        header = make_header(data)
        *steps, name = path_of(key)
        with self._root() as root, ExitStack() as stack:
            parent = _below(root, steps, create=if_revision is None)
            if parent is None:
                raise stale_revision(key)
            stack.enter_context(parent)
            # Compared once before the work, and once when it counts.
            _compare(key, parent, name, if_revision)
            drafts = stack.enter_context(root.below((_DRAFTS,), create=True))
            if not self._is_swept:
                sweep(drafts)
                self._is_swept = True
            with Draft(drafts, header, data) as draft:
                with _locked(root):
                    _compare(key, parent, name, if_revision)
                    draft.place(parent, name)
                os.fsync(parent.fd)
        return revision_of(header)

    def _remove(self, key: str, if_revision: str | None) -> None:
        *steps, name = path_of(key)
        with self._root() as root:
            parent = _below(root, steps)
            if parent is None:
                return
            with parent, _locked(root):
                revision = _revision(parent, name)
                if revision is None:
                    return
                if if_revision is not None and revision != if_revision:
                    raise stale_revision(key)
                os.unlink(name, dir_fd=parent.fd)
                os.fsync(parent.fd)

    def _look(self, names: tuple[str, ...]) -> _Found:
        """Return the objects in one folder and in a few below it, and the folders that were left out."""
        found: _Found = ([], [])
        with self._root() as root:
            folder = _below(root, names)
            if folder is not None:
                with folder:
                    _look_in(folder, names, found, len(names) + _TOGETHER_DEPTH_COUNT, iter(range(_TOGETHER_COUNT)))
        return found

    @contextmanager
    def _opened(self, key: str) -> Iterator[int | None]:
        *steps, name = path_of(key)
        with self._root() as root:
            parent = _below(root, steps)
            if parent is None:
                yield None
                return
            with parent:
                fd = _open(parent, name)
            try:
                yield fd
            finally:
                if fd is not None:
                    os.close(fd)

    @contextmanager
    def _root(self) -> Iterator[Folder]:
        """Hold the directory, and turn what goes wrong with it into failures of a store."""
        try:
            with Folder.open(self._directory, (), create=False) as root:
                yield root
        except OSError as error:
            raise self._failure(host_failure(error, self._directory)) from None
        except WorkspaceError as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> Exception:
        if not isinstance(error, WorkspaceError) or error.reason not in ("access", "not_found"):
            return error
        if error.reason == "access":
            return ConfigurationError(
                "store_access", f"the system refuses the access to {self.name}", facts=error.facts
            )
        return ConfigurationError(
            "no_such_store",
            f"no directory is at {self.name}",
            hint="create it with `mkdir`; it is not created by itself, so that a typing mistake makes no store",
            facts=error.facts,
        )


def _below(root: Folder, names: tuple[str, ...] | list[str], *, create: bool = False) -> Folder | None:
    try:
        return root.below(names, create=create)
    except WorkspaceError as error:
        if create or error.reason != "not_found":
            raise
        return None


def _look_in(folder: Folder, names: tuple[str, ...], found: _Found, max_depth_count: int, room: Iterator[int]) -> None:
    """Look at a held folder, and at those below it while there is room: each step in a thread has its price."""
    objects, left = found
    below: list[tuple[str, ...]] = []
    with os.scandir(folder.fd) as entries:
        for entry in entries:
            path = (*names, entry.name)
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if key_of((*path, _SHORTEST)):  # else no key is so long, or leads there
                    below.append(path)
            elif (key := key_of(path)) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # removed meanwhile
                    objects.append(_info(key, entry.stat(follow_symlinks=False)))
    for path in below:
        if len(path) > max_depth_count or len(objects) >= _TOGETHER_COUNT or next(room, None) is None:
            left.append(path)
        elif (inner := _below(folder, path[-1:])) is not None:
            with inner:
                _look_in(inner, path, found, max_depth_count, room)


def _open(parent: Folder, name: str) -> int | None:
    """Open an object's file; None when there is none."""
    try:
        fd = os.open(name, _READ_FLAGS, dir_fd=parent.fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise host_failure(error, parent.host_path / name) from None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise host_failure(OSError(errno.EISDIR, ""), parent.host_path / name)


def _revision(parent: Folder, name: str) -> str | None:
    """Return the revision of what is there now, empty when its header is damaged; None when nothing is."""
    fd = _open(parent, name)
    if fd is None:
        return None
    try:
        return revision_of(os.read(fd, HEADER_BYTES))
    finally:
        os.close(fd)


def _compare(key: str, parent: Folder, name: str, if_revision: str | None) -> None:
    if _revision(parent, name) != if_revision:
        raise stale_revision(key)


@contextmanager
def _locked(root: Folder) -> Iterator[None]:
    fd = os.open(_LOCK, _LOCK_FLAGS, 0o600, dir_fd=root.fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Not left to the close: a process forked meanwhile has the descriptor as well.
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _info(key: str, found: os.stat_result) -> ObjectInfo:
    # Some file systems keep times that are no dates.
    seconds = min(max(found.st_mtime, 0), _LATEST_SECONDS)
    return ObjectInfo(key, found.st_size, datetime.fromtimestamp(seconds, UTC))
