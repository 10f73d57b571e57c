"""Copies of archived conversations on this host, so that what was read or captured once need not be fetched again.

The one rule: a copy is only ever added whole and taken away whole, and by nobody while somebody else reads it; what is
in it is verified by whoever uses it.

The copies are plain text, also of encrypted archives: files of this user alone, in folders that nobody else may enter.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import uuid
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from host_client.errors import WorkspaceError, printable
from host_client.session.failure import host_failures
from host_client.session.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

DEFAULT_MAX_BYTES = 4 << 30
_COPIES, _PRIVATE = "copies", "private"
_HOME, _NOTE = "home", "note.json"
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def default_directory() -> Path:
    """Return `outpost/archive` in the user's folder for caches."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "outpost" / "archive"


@dataclass(frozen=True, slots=True)
class _Note:
    """What is written beside a copy.

    Attributes:
        path: The record's file, below the copy's home.
        bytes_count: Sum of the sizes of its files.
    """

    path: str
    bytes_count: int


class ArchiveCache:
    """The copies in one directory, for all processes of a user. Methods block.

    A copy is a conversation home. A lock on its folder tells whether it is in use: readers share it, a capture that
    goes on with a copy has it alone, and so has whoever removes it. Locks end with their process; what a killed one was
    working on is removed by the next that begins something.

    Args:
        directory: Where they lie; created when it is missing.
        max_bytes: When they are more, those go that were not used for longest; what was just added stays.
    """

    def __init__(self, directory: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.directory = directory.absolute()
        self.max_bytes = max_bytes

    def lease(self, name: str) -> Copy | None:
        """Open a copy for reading; None when there is none, or somebody is about to take it away."""
        return self._held(name, fcntl.LOCK_SH)

    def claim(self, name: str) -> PrivateHome | None:
        """Take a copy away, to go on with it; None when there is none or it is being read."""
        copy = self._held(name, fcntl.LOCK_EX)
        if copy is None:
            return None
        with ExitStack() as failed, host_failures(self.directory):
            failed.enter_context(copy)
            taken = self._folder(_PRIVATE) / uuid.uuid4().hex
            try:
                (self._folder(_COPIES) / name).rename(taken)
            except FileNotFoundError:
                return None  # dropped meanwhile
            if not os.path.samestat(os.fstat(copy.fd), taken.stat()):
                _remove(taken)  # dropped and made again meanwhile: the lock is not that of what was taken
                return None
            failed.pop_all()
        return PrivateHome(self, taken, copy.fd, name)

    def begin(self) -> PrivateHome:
        """Make a folder of nobody else, and remove what killed processes left of theirs.

        Raises:
            WorkspaceError: `access`: the directory belongs to somebody else, or refuses.
            LimitError: `disk_full`, `read_only`, `descriptors`.
        """
        with host_failures(self.directory):
            folder = self._folder(_PRIVATE)
            for left in list(folder.iterdir()):
                _remove_unless_locked(left)
            while True:
                made = folder / uuid.uuid4().hex
                made.mkdir(mode=0o700)
                if (fd := _locked(made, fcntl.LOCK_EX)) is not None:
                    break  # else another one took it for one that was left, before it had its lock
            try:
                (made / _HOME).mkdir(mode=0o700)
            except BaseException:
                os.close(fd)
                raise
        return PrivateHome(self, made, fd, "")

    def drop(self, name: str) -> None:
        """Remove a copy that is not what it should be, also from under its readers, who find that out as well."""
        with host_failures(self.directory):
            doomed = self._folder(_PRIVATE) / uuid.uuid4().hex
            with suppress(FileNotFoundError):
                (self._folder(_COPIES) / name).rename(doomed)
                _remove(doomed)

    def _held(self, name: str, lock: int) -> Copy | None:
        with host_failures(self.directory):
            folder = self._folder(_COPIES) / name
            fd = _locked(folder, lock)
            if fd is None:
                return None
            with ExitStack() as failed:
                failed.callback(os.close, fd)
                note = _read_note(folder)
                if note is None:
                    return None
                os.utime(fd)
                failed.pop_all()
        return Copy(folder / _HOME, folder / _HOME / note.path, fd)

    def place(self, private: Path, name: str) -> bool:
        """Make a private folder the copy of that name; False when another one is there already and in use."""
        with host_failures(self.directory):
            target = self._folder(_COPIES) / name
            while True:
                try:
                    private.rename(target)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                else:
                    break
                if not _remove_unless_locked(target, self._folder(_PRIVATE) / uuid.uuid4().hex):
                    return False
            self._evict(name)
        return True

    def _evict(self, kept_name: str) -> None:
        found: list[tuple[int, Path, int]] = []
        for folder in self._folder(_COPIES).iterdir():
            with suppress(FileNotFoundError):
                note = _read_note(folder)
                found.append((folder.stat().st_mtime_ns, folder, note.bytes_count if note else 0))
        total_bytes = sum(size for _, _, size in found)
        for _, folder, size in sorted(found):
            if total_bytes <= self.max_bytes:
                return
            doomed = self._folder(_PRIVATE) / uuid.uuid4().hex
            if folder.name != kept_name and _remove_unless_locked(folder, doomed):
                total_bytes -= size

    def _folder(self, name: str) -> Path:
        """Return one of our two folders, which nobody else may enter."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Folder.open(self.directory, (), create=False) as parent:
            found = os.fstat(parent.fd)
            is_shared = found.st_mode & 0o002 and not found.st_mode & stat.S_ISVTX
            if found.st_uid not in (os.geteuid(), 0) or is_shared:
                # Whoever may rename our folders can put their own in the place of one, after any look at it.
                raise _not_ours(self.directory)
        with Folder.open(self.directory, (name,), create=True, durable=False) as folder:
            found = os.fstat(folder.fd)
            if found.st_uid != os.geteuid():
                raise _not_ours(folder.host_path)
            if stat.S_IMODE(found.st_mode) & 0o077:
                os.fchmod(folder.fd, 0o700)
        return self.directory / name


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that stays as long as this is open. Use it as a context manager.

    Attributes:
        home: The conversation home.
        path: The record's file in it.
        fd: Holds the lock.
    """

    home: Path
    path: Path
    fd: int

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.fd)


class PrivateHome:
    """A conversation home of one capture or one read alone. Use it as a context manager: what is not kept is removed.

    Args:
        cache: Where it may become a copy.
        folder: Its folder.
        fd: Holds the lock; owned from now on.
        name: Of the copy that it was; empty: it is new.

    Attributes:
        home: The conversation home.
        is_claimed: Whether it was a copy.
    """

    def __init__(self, cache: ArchiveCache, folder: Path, fd: int, name: str) -> None:
        self.home = folder / _HOME
        self.is_claimed = bool(name)
        self._cache = cache
        self._folder = folder
        self._fd = fd
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd >= 0:
            self._close(remove=True)

    def keep(self, name: str, path: Path) -> Path:
        """Make it the copy of that name, and return where the record's file lies from now on.

        Args:
            name: Of the copy; one that is there already is replaced, unless it is being read: then that one stays.
            path: The record's file, below the home.
        """
        below = path.relative_to(self.home)
        with host_failures(self._folder):
            note = {"path": str(below), "bytes": _bytes_below(self.home)}
            (self._folder / _NOTE).write_text(json.dumps(note))
        self._close(remove=not self._cache.place(self._folder, name))
        return self._cache.directory / _COPIES / name / _HOME / below

    def put_back(self) -> None:
        """Make a claimed copy that was not changed a copy again."""
        self._close(remove=not self._cache.place(self._folder, self._name))

    def _close(self, *, remove: bool) -> None:
        try:
            if remove:
                _remove(self._folder)
        finally:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _not_ours(folder: Path) -> WorkspaceError:
    return WorkspaceError(
        "access",
        f"the folder of archived copies {printable(str(folder))} belongs to another user, or others may write there",
        hint="give a directory of your own (cache=), such as a new one below it",
    )


def _locked(folder: Path, lock: int) -> int | None:
    """Open a folder and lock it; None when it is gone or locked."""
    try:
        fd = os.open(folder, _DIRECTORY_FLAGS)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, lock | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), folder.stat()):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass  # in use, or moved away before it had the lock
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _remove_unless_locked(folder: Path, moved: Path | None = None) -> bool:
    """Remove a folder that nobody uses; moved away first, so that at no moment a part of it is to be seen."""
    fd = _locked(folder, fcntl.LOCK_EX)
    if fd is None:
        return not folder.exists()
    try:
        if moved is not None:
            folder.rename(moved)
        _remove(moved or folder)
    finally:
        os.close(fd)
    return True


def _remove(folder: Path) -> None:
    with suppress(FileNotFoundError):  # another one sweeps it, too
        shutil.rmtree(folder)


def _read_note(folder: Path) -> _Note | None:
    try:
        told = json.loads((folder / _NOTE).read_bytes())
        return _Note(str(told["path"]), int(told["bytes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files_below(folder))


def _files_below(folder: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(folder):
        yield from (Path(directory) / name for name in names)
