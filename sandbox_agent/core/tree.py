"""A session directory's selected files, pinned by identity, and how they are read.

The one rule: what was pinned is what is read. A name that leads to anything else, before, while or after it is read, is
a `changed` failure and never other bytes.
"""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sandbox_agent.core.paths import FILE_FLAGS
from sandbox_agent.core.refusal import Refusal
from sandbox_agent.errors import from_os
from sandbox_api.errors import Offender, SessionError, printable
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from sandbox_agent.core.paths import Directory
    from sandbox_api.profile import Profile

MAX_LEFT_OUT_COUNT = 100
"""Entries left out on purpose that are named; the rest are counted."""

ENCODING = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
"""Of names listed through a descriptor, which Python decodes; what `os.fsencode` looks up at each call."""

# What opening a pinned name reports when something else is there by now, or nothing.
_CHANGED = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.EAGAIN))
_PROBLEM = "changed while it was read"


class Pin(NamedTuple):
    """One selected file. A tuple, since thousands are made at once.

    Attributes:
        path: Session-relative path.
        size: Bytes of its content.
        identity: Device, inode, size, modification and change time in nanoseconds.
    """

    path: bytes
    size: int
    identity: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Folder:
    """One selected directory: its path, its device and inode, and the identities of its selected entries.

    An entry has None where it is no file: a directory is a folder of its own, a link is never looked through.
    """

    path: bytes
    identity: tuple[int, int]
    entries: dict[bytes, tuple[int, ...] | None]

    def join(self, name: bytes) -> bytes:
        """Return the session-relative path of an entry."""
        return self.path + b"/" + name if self.path else name


def file_identity(status: os.stat_result) -> tuple[int, ...]:
    """Return what tells a file and this state of its content from any other."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Tree:
    """The pinned files of one session directory; a context manager. Made by `walk`. Used by one thread at a time.

    It holds two descriptors at most: the session directory and the folder of the file that was opened last.

    Attributes:
        pins: All selected files, by path.
        left_out: Entries left out on purpose with the reason, `not_selected` or `symlink`; at most
            `MAX_LEFT_OUT_COUNT`.
        left_out_count: Number of all entries left out.
    """

    def __init__(
        self,
        session: Directory,
        profile: Profile,
        *,
        pins: list[Pin],
        folders: Sequence[Folder],
        left_out: list[tuple[bytes, str]],
        left_out_count: int,
    ) -> None:
        self.pins = pins
        self.left_out = left_out
        self.left_out_count = left_out_count
        self._profile = profile
        self._folders = folders
        self._session = session.directory(b"")
        self._held: Directory | None = None
        self._held_path = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all descriptors; a second call does nothing."""
        if self._held is not None:
            self._held.close()
        self._session.close()

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the session directory."""
        return self._folders[0].identity

    def open(self, pin: Pin) -> int:
        """Open a pinned file for reading; the caller closes the descriptor.

        Raises:
            SessionError: `changed`.
            WorkspaceError: `access`.
        """
        folder, _, name = pin.path.rpartition(b"/")
        try:
            # A pinned name is one plain segment: the checks of Directory.file would cost as much as the open itself.
            fd = os.open(name, FILE_FLAGS, dir_fd=self._hold(folder))
        except OSError as error:
            raise self._failure(pin, error) from None
        if file_identity(os.fstat(fd)) != pin.identity:
            os.close(fd)
            raise self._changed(pin)
        return fd

    def read(
        self, pin: Pin, room: Callable[[], int] = lambda: CHUNK_BYTES, *, start: int = 0, end: int | None = None
    ) -> Iterator[bytes]:
        """Yield the content of a pinned file, in pieces of at most `room()` bytes.

        When the file changed meanwhile, the iteration ends with the failure: never early, and never with more than was
        asked for. What was yielded by then is to be thrown away.

        Args:
            pin: The file.
            room: Tells how many bytes the next piece may have; at least 1.
            start: Offset of the first byte.
            end: Offset after the last byte; None: the pinned size.

        Raises:
            SessionError: `changed`.
            WorkspaceError: `access`.
        """
        fd = self.open(pin)
        try:
            left = (pin.size if end is None else end) - start
            if start:
                os.lseek(fd, start, os.SEEK_SET)
            while left:
                piece = os.read(fd, min(left, room()))
                if not piece:
                    raise self._changed(pin)
                left -= len(piece)
                if not left and file_identity(os.fstat(fd)) != pin.identity:
                    raise self._changed(pin)
                yield piece
        except OSError as error:
            raise self._failure(pin, error) from None
        finally:
            os.close(fd)

    def read_whole(self, pin: Pin) -> bytes:
        """Return the whole content of a pinned file; for small ones, of which there are many.

        It is looked at before it is read, and once more by `check_unchanged`, not in between: a change meanwhile
        leaves other times or another inode behind, which that will find.

        Raises:
            SessionError: `changed`.
            WorkspaceError: `access`.
        """
        fd = self.open(pin)
        try:
            content = os.read(fd, pin.size + 1)
            if len(content) == pin.size:
                return content
        except OSError as error:
            raise self._failure(pin, error) from None
        finally:
            os.close(fd)
        return b"".join(self.read(pin))  # read in part only, or changed, which this will tell

    def check_unchanged(self) -> None:
        """List all directories again and compare every selected entry with what was pinned.

        What the profile does not select may come and go.

        Raises:
            SessionError: `changed`, with all entries that changed, vanished or appeared.
            WorkspaceError: `access`.
        """
        refusal = Refusal()
        for folder in self._folders:
            try:
                with self._session.directory(folder.path) as held:
                    status = os.fstat(held.fd)
                    if (status.st_dev, status.st_ino) == folder.identity:
                        self._compare(folder, held, refusal)
                    else:
                        refusal.add("changed", folder.path, "is another directory now")
            except OSError as error:
                if error.errno not in _CHANGED:
                    raise from_os(error, self._session.join(folder.path)) from None
                refusal.add("changed", folder.path, "is no directory any more")
        refusal.check()

    def _compare(self, folder: Folder, held: Directory, refusal: Refusal) -> None:
        missing = folder.entries.copy()
        with os.scandir(held.fd) as items:
            for item in items:
                name = item.name.encode(*ENCODING)
                if name not in missing:
                    path = folder.join(name)
                    if self._profile.selects(path.decode("utf-8", "surrogateescape")):
                        refusal.add("changed", path, "appeared while the session was read")
                elif (identity := missing.pop(name)) is not None:
                    try:
                        now = file_identity(item.stat(follow_symlinks=False))
                    except FileNotFoundError:
                        now = ()
                    if now != identity:
                        refusal.add("changed", folder.join(name), _PROBLEM)
        for name in missing:
            refusal.add("changed", folder.join(name), "vanished while it was read")

    def _hold(self, folder: bytes) -> int:
        """Return the descriptor of a folder, which stays open until another one is asked for."""
        if self._held is None or folder != self._held_path:
            opened = self._session.directory(folder)
            if self._held is not None:
                self._held.close()
            self._held, self._held_path = opened, folder
        return self._held.fd

    def _failure(self, pin: Pin, error: OSError) -> Exception:
        return self._changed(pin) if error.errno in _CHANGED else from_os(error, self._session.join(pin.path))

    def _changed(self, pin: Pin) -> SessionError:
        return SessionError(
            "changed",
            f"{printable(pin.path)} changed while it was read",
            hint="try again when the CLI is idle",
            facts={"path": printable(pin.path)},
            offenders=[Offender(printable(pin.path), _PROBLEM)],
        )
