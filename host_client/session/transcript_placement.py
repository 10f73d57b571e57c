"""The step that makes a capture visible: its files get their names, or go on where those end that have them.

The one rule: every file was complete and verified before the first is placed, and what a failure interrupts is undone.
What was there and came from somewhere else is set aside first, never lost.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from host_client.session.bundle_memory import SETTLED_NS, file_identity
from host_client.session.failure import host_failures
from host_client.session.placed_file import duplicate, is_known, move, opened_file
from sandbox_api.errors import OutpostError, SessionError, printable
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path, PurePosixPath
    from typing import Self

    from host_client.session.folder import Folder
    from host_client.session.placed_file import KnownFile
    from host_client.session.transcript_writer import Staging

    OpenFolder = Callable[[Sequence[str]], Folder]

Relation = Literal["equal", "beginning", "other"]

APPEND_FLAGS = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_STALE_NS = 24 * 3600 * 10**9
"""A file that was not written to for so long gets a new time when a capture meets it."""


@dataclass(frozen=True, slots=True)
class Placing:
    """A file to place.

    Attributes:
        path: Where it goes, below the home.
        staged: Its name in the staging folder; empty: the file that is there is right.
        keep_bytes: How much of the file that is there stays in front of what was staged; None: it is replaced.
        known: What the last capture left there, which may go; None: nothing is known.
    """

    path: PurePosixPath
    staged: str
    keep_bytes: int | None = None
    known: KnownFile | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """A file that is in place: its identity, whether it was changed, and where what it replaced was set aside."""

    identity: tuple[int, ...]
    is_changed: bool
    set_aside: Path | None = None


class Placement:
    """Places the files of one capture. Methods block.

    Use it as a context manager; leaving it without `keep` puts the old files back.

    Args:
        open_home: Opens a folder below the home, made where it is missing.
        open_recovery: Opens a folder below the one for what is set aside, made where it is missing.
        staging: Has the new files.
        durable: Force everything to the disk.
    """

    def __init__(self, open_home: OpenFolder, open_recovery: OpenFolder, staging: Staging, *, durable: bool) -> None:
        self._open_home = open_home
        self._open_recovery = open_recovery
        self._staging = staging
        self._durable = durable
        self._undoing = ExitStack()
        self._touched: set[tuple[str, ...]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OutpostError, OSError):  # the failure that led here is the one to report
            self._undoing.close()

    def keep(self) -> None:
        """Let everything stay as it is now.

        Raises:
            UnavailableError: `io`.
        """
        if self._durable:
            for steps in sorted(self._touched):
                with self._open_home(steps) as folder, host_failures(folder.host_path):
                    os.fsync(folder.fd)
        self._undoing.pop_all()

    def place(self, placing: Placing) -> Placed:
        """Place one file.

        Raises:
            WorkspaceError: `unsafe_path`: a link is there or on the way; `not_a_file`; `access`.
            SessionError: `changed`: the host's file is not what it was when it was looked at.
            LimitError: `disk_full`, `read_only`, `descriptors`.
        """
        with self._open_home(placing.path.parent.parts) as folder:
            host_path = folder.host_path / placing.path.name
            with host_failures(host_path):
                if placing.staged and placing.keep_bytes is None:
                    return self._replace(folder, placing)
                try:
                    if not placing.staged:
                        return self._left(folder, placing)
                    return self._append(folder, placing, placing.keep_bytes or 0)
                except FileNotFoundError:
                    raise changed(host_path) from None

    def set_aside(self, path: PurePosixPath, known: KnownFile) -> Path | None:
        """Move a file out of the home: what a capture left, before the same comes to another place.

        Args:
            path: The file, below the home.
            known: What the capture left there.

        Returns:
            Where it is now; None: there was none any more.

        Raises:
            SessionError: `changed`: it is not what the capture left.
            WorkspaceError, LimitError: as `place`.
        """
        name = path.name
        with self._open_home(path.parent.parts) as folder, host_failures(folder.host_path / name):
            try:
                with opened_file(folder, name) as fd:
                    if not is_known(fd, known):
                        raise changed(folder.host_path / name)
            except FileNotFoundError:
                return None
            with self._open_recovery(path.parent.parts) as recovery:
                self._undoing.callback(self._take_back, path)
                move(folder, name, recovery, name, self._scratch(name))
                if self._durable:
                    os.fsync(recovery.fd)
                    os.fsync(folder.fd)  # now: no power loss may bring it back beside the new one
                return recovery.host_path / name

    def add_lines(self, path: PurePosixPath, lines: Sequence[bytes]) -> bool:
        """Add lines to a file that other conversations share, where it lacks them, in one write.

        Args:
            path: The file, below the home; created when it is missing, 0600.
            lines: Each with its newline.

        Returns:
            Whether any was missing.

        Raises:
            WorkspaceError, LimitError: as `place`.
        """
        with (
            self._open_home(path.parent.parts) as folder,
            host_failures(folder.host_path / path.name),
            opened_file(folder, path.name, APPEND_FLAGS | os.O_CREAT) as fd,
        ):
            missing = dict.fromkeys(lines)
            last = b"\n"
            with open(fd, "rb", closefd=False) as file:
                for last in file:
                    missing.pop(last.removesuffix(b"\n") + b"\n", None)
            if not missing:
                return False
            data = b"".join((b"" if last.endswith(b"\n") else b"\n", *missing))
            self._note_growth(path, fd, len(data))
            if os.write(fd, data) < len(data):
                raise OSError(errno.ENOSPC, "a write of lines was cut")
            if self._durable:
                os.fsync(fd)
        self._touched.add(path.parent.parts)
        return True

    def _left(self, folder: Folder, placing: Placing) -> Placed:
        with opened_file(folder, placing.path.name) as fd:
            return _as_it_was(fd)

    def _replace(self, folder: Folder, placing: Placing) -> Placed:
        name, staging, aside = placing.path.name, self._staging.folder, None
        try:
            with opened_file(folder, name) as old, opened_file(staging, placing.staged) as new:
                is_ours = placing.known is not None and is_known(old, placing.known)
                relation = relation_of(old, new)
                if relation == "equal":
                    return _as_it_was(old)
                if relation == "other" and not is_ours:
                    aside = self._set_aside(folder, placing.path)
            kept = self._staging.new_name()
            duplicate(folder, name, staging, kept)
            self._undoing.callback(self._put_back, placing.path, kept)
        except FileNotFoundError:
            self._undoing.callback(self._take_away, placing.path)
        with opened_file(staging, placing.staged) as new:
            _make_recent(new)
        self._rename(placing.staged, folder, name)
        self._touched.add(placing.path.parent.parts)
        with opened_file(folder, name) as fd:
            return Placed(file_identity(fd), is_changed=True, set_aside=aside)

    def _append(self, folder: Folder, placing: Placing, keep_bytes: int) -> Placed:
        name = placing.path.name
        with (
            opened_file(folder, name, APPEND_FLAGS) as fd,
            opened_file(self._staging.folder, placing.staged) as new,
        ):
            before_write = partial(self._note_growth, placing.path, fd)
            extend(fd, new, keep_bytes, folder.host_path / name, before_write=before_write)
            if self._durable:
                os.fsync(fd)
            return Placed(file_identity(fd), is_changed=True)

    def _set_aside(self, folder: Folder, path: PurePosixPath) -> Path:
        with self._open_recovery(path.parent.parts) as recovery:
            duplicate(folder, path.name, recovery, path.name)
            if self._durable:
                os.fsync(recovery.fd)
            return recovery.host_path / path.name

    def _rename(self, staged: str, folder: Folder, name: str) -> None:
        move(self._staging.folder, staged, folder, name, self._scratch(name))

    def _scratch(self, name: str) -> str:
        return f".{name}.{self._staging.folder.host_path.name}.tmp"

    def _put_back(self, path: PurePosixPath, kept: str) -> None:
        with self._open_home(path.parent.parts) as folder:
            self._rename(kept, folder, path.name)

    def _take_back(self, path: PurePosixPath) -> None:
        with self._open_home(path.parent.parts) as folder, self._open_recovery(path.parent.parts) as recovery:
            if folder.identity(path.name) is None:
                move(recovery, path.name, folder, path.name, self._scratch(path.name))

    def _take_away(self, path: PurePosixPath) -> None:
        with self._open_home(path.parent.parts) as folder, suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=folder.fd)

    def _note_growth(self, path: PurePosixPath, fd: int, growth_bytes: int) -> None:
        """Remember to cut off again what is about to be appended."""
        before = os.fstat(fd)
        reach = range(before.st_size + 1, before.st_size + growth_bytes + 1)

        def cut_off() -> None:
            with self._open_home(path.parent.parts) as folder, opened_file(folder, path.name, APPEND_FLAGS) as now_fd:
                now = os.fstat(now_fd)
                if os.path.samestat(before, now) and now.st_size in reach:
                    os.ftruncate(now_fd, before.st_size)

        self._undoing.callback(cut_off)


def _as_it_was(fd: int) -> Placed:
    """Leave a file as it is, but for its time: Claude Code 2.1.197 and 2.1.332 delete files, each by its own age."""
    if time.time_ns() - os.fstat(fd).st_mtime_ns > _STALE_NS:
        with suppress(OSError):  # it is right all the same where it is another user's, or on a read-only disk
            _make_recent(fd)
    return Placed(file_identity(fd), is_changed=False)


def _make_recent(fd: int) -> None:
    """Give a file a modification time that no later write can give it, see `bundle_memory`."""
    now_ns = time.time_ns()
    os.utime(fd, ns=(now_ns, now_ns - SETTLED_NS))


def extend(fd: int, new: int, keep_bytes: int, host_path: Path, *, before_write: Callable[[int], object]) -> None:
    """Write the content of one open file behind the first bytes of another, as far as it is not there yet.

    What a kill leaves of it is taken up by the next one that is asked to write the same there.

    Args:
        fd: What is written to, opened for appending.
        new: What comes there.
        keep_bytes: Behind how much.
        host_path: Names the file in messages.
        before_write: Told by how much it will grow.

    Raises:
        SessionError: `changed`: something else is there, or came there meanwhile.
        OSError: it cannot be written; a part of it may have been.
    """
    if relation_of(fd, new, keep_bytes) == "other":
        raise changed(host_path)
    start, end = os.fstat(fd).st_size - keep_bytes, os.fstat(new).st_size
    before_write(end - start)
    while start < end:
        start += os.write(fd, os.pread(new, min(CHUNK_BYTES, end - start), start))
    if os.fstat(fd).st_size != keep_bytes + end:
        raise changed(host_path)
    now_ns = time.time_ns()
    # A modification time that no later write can give it, see `bundle_memory`.
    os.utime(fd, ns=(now_ns, now_ns - SETTLED_NS))


def relation_of(old: int, new: int, start: int = 0) -> Relation:
    """Tell what one open file, from an offset on, is to another: equal, a beginning of it, or something else."""
    old_bytes, new_bytes = os.fstat(old).st_size - start, os.fstat(new).st_size
    if not 0 <= old_bytes <= new_bytes:
        return "other"
    at = 0
    while at < old_bytes:
        size = min(CHUNK_BYTES, old_bytes - at)
        part = os.pread(old, size, start + at)
        if len(part) < size or part != os.pread(new, size, at):
            return "other"
        at += size
    return "equal" if old_bytes == new_bytes else "beginning"


def changed(host_path: Path) -> SessionError:
    """Say that a file of the host is not what it was a moment ago."""
    return SessionError(
        "changed",
        f"the host's file {printable(str(host_path))} changed while the capture was running",
        hint="capture again once nothing writes to it",
        facts={"path": printable(str(host_path))},
    )
