"""What stands where a file of a set belongs: told before anything is changed, and again right before it is."""

from __future__ import annotations

import logging
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from sandbox_agent.core.file import not_a_file
from sandbox_agent.core.holder import find_holders
from sandbox_agent.core.mount import mount_id
from sandbox_agent.core.paths import LinkError
from sandbox_api.errors import ConflictError, WorkspaceError, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.rename import Identity
    from sandbox_api.lock import LockSign

_log = logging.getLogger(__name__)
_PIN_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Snapshot(NamedTuple):
    """A regular file as it was at some moment."""

    identity: Identity
    size: int
    changed_ns: int
    owner: tuple[int, int]

    @classmethod
    def of(cls, status: os.stat_result) -> Snapshot:
        """Return the snapshot of a status."""
        return cls((status.st_dev, status.st_ino), status.st_size, status.st_ctime_ns, (status.st_uid, status.st_gid))


@contextmanager
def pinned(folder: Directory, name: bytes) -> Iterator[int]:
    """Hold what is at a name, whatever it is and without any access to it, by a descriptor.

    Raises:
        OSError: nothing is there.
    """
    try:
        fd = os.open(name, _PIN_FLAGS, dir_fd=folder.fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder.join(name)) from None
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def reading(top: Directory, path: bytes) -> Iterator[int]:
    """Open a file below a directory for reading.

    Raises:
        OSError: nothing is there, or it cannot be opened; `LinkError` where a link is met.
    """
    fd = top.file(path)
    try:
        yield fd
    finally:
        os.close(fd)


def look(home: Directory, path: bytes) -> Snapshot | None:
    """Tell what is at a path below a home; None when nothing is there, or a directory of the path is missing.

    Raises:
        WorkspaceError: `not_a_file`: something else than a regular file is there, or on the way; `mounted`: it, or the
            directory it belongs into, is a mount point or lies on another mount than the home.
        OSError: `LinkError` where a link is met; it cannot be reached.
    """
    parent, _, name = path.rpartition(b"/")
    try:
        with home.directory(parent) as folder, pinned(folder, name) as fd:
            status = os.fstat(fd)
            if stat.S_ISLNK(status.st_mode):
                raise LinkError(home.join(path))
            if not stat.S_ISREG(status.st_mode):
                raise not_a_file(home.join(path))
            _check_mount(home, fd, path)
            return Snapshot.of(status)
    except FileNotFoundError:
        _check_way(home, parent)
    except NotADirectoryError:
        raise not_a_file(home.join(path)) from None
    return None


def check_unchanged(home: Directory, path: bytes, before: Snapshot | None) -> None:
    """Refuse to go on when a file is not what it was.

    Raises:
        ConflictError: `target_changed`.
        WorkspaceError, OSError: as `look`.
    """
    if look(home, path) != before:
        raise changed(home, path)


def changed(home: Directory, path: bytes) -> ConflictError:
    """Return the failure that says that a file is not what it was."""
    where = printable(home.join(path))
    return ConflictError(
        "target_changed",
        f"'{where}' is not what it was when this began",
        hint="another restore or the CLI was faster; look at the conversation, then try again",
        facts={"path": where},
    )


def check_idle(home: Directory, signs: Sequence[LockSign], *, force: bool) -> None:
    """Refuse to touch a conversation that a running process has open, unless forced.

    Raises:
        ConflictError: `in_use`.
    """
    for holder in () if force else find_holders(home, signs):
        path = printable(holder.path)
        raise ConflictError(
            "in_use",
            f"process {holder.pid or 'unknown'} has the conversation open, as '{path}' shows",
            hint="end that process, or force it",
            facts={"pid": str(holder.pid), "path": path},
        )


def is_other_mount(home: Directory, fd: int) -> bool:
    """Tell whether an open descriptor lies on another mount than the home; where that cannot be told, a rename will."""
    return 0 not in (ids := {mount_id(fd), mount_id(home.fd)}) and len(ids) > 1


def mounted(path: bytes) -> WorkspaceError:
    """Return the failure that says that files cannot be exchanged with a place on another mount."""
    where = printable(path)
    return WorkspaceError(
        "mounted",
        f"'{where}' is not on the mount of its home",
        hint="mount the whole home, not a part of it",
        facts={"path": where},
    )


def touch(home: Directory, paths: Iterable[bytes]) -> None:
    """Give files the present time as their modification time: CLIs remove what has not changed for long.

    What cannot be touched, or is there no longer, stays as it is; so does what has another name, which may lie outside
    the home.
    """
    for path in paths:
        try:
            with reading(home, path) as fd:
                if has_one_name(os.fstat(fd)):
                    os.utime(fd)
        except OSError:
            _log.warning("the time of %s cannot be set", printable(home.join(path)))


def has_one_name(status: os.stat_result) -> bool:
    """Tell whether a status is one of a regular file that has no other name, in the home or outside."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _check_way(home: Directory, folder: bytes) -> None:
    """Check the deepest directory of a path that is there."""
    while True:
        try:
            with home.directory(folder) as held:
                _check_mount(home, held.fd, folder)
                return
        except FileNotFoundError:
            if not folder:
                raise
            folder = folder.rpartition(b"/")[0]


def _check_mount(home: Directory, fd: int, path: bytes) -> None:
    if is_other_mount(home, fd):
        raise mounted(home.join(path))
