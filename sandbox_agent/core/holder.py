"""Tell which processes show that they have a conversation open, by the files that their CLI keeps.

The one rule: a lock is looked at, and taken only where looking cannot tell, since a CLI that asks for it in that very
moment takes the conversation for one that is open elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import struct
from typing import TYPE_CHECKING, NamedTuple

from sandbox_agent.core.file import read_head
from sandbox_agent.core.liveness import live_pid
from sandbox_agent.core.paths import LinkError
from sandbox_api.lock import HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sandbox_agent.core.paths import Directory, Roots
    from sandbox_api.lock import LockSign

MAX_HOLDERS_COUNT = 100
"""Holders that are told at most: one is enough to know."""

LISTING = "/proc/locks"

_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid: struct flock of every 64-bit Linux
_LOCK_FIELDS_COUNT = 8  # of a line of the listing; a lock that is waited for has one more


class Holder(NamedTuple):
    """A file that shows that a conversation is open: its absolute path, and the process; 0: that cannot be told."""

    path: bytes
    pid: int


def find_holders_in(roots: Roots, home: bytes, signs: Sequence[LockSign]) -> list[Holder]:
    """Find the processes that hold any of these signs below the CLI home at a path; a missing one has none.

    Raises:
        WorkspaceError: `unsafe_path`, `outside_roots`.
        OSError: as of `find_holders`.
    """
    try:
        held = roots.directory(home)
    except (FileNotFoundError, NotADirectoryError):
        return []
    with held:
        return find_holders(held, signs)


def find_holders(home: Directory, signs: Sequence[LockSign]) -> list[Holder]:
    """Find the processes that hold any of these signs below a CLI home, at most `MAX_HOLDERS_COUNT`.

    A sign with a process number counts while that process runs and ran when the file was written; any other while
    some process holds an exclusive lock on it. What goes away meanwhile is passed over.

    Raises:
        OSError: a folder or a file that counts cannot be read; `LinkError` where a link leads to the folder.
    """
    locks = _Locks()
    holders: list[Holder] = []
    for sign in signs:
        for holder in _holders(home, sign, locks):
            if holder not in holders:
                holders.append(holder)
            if len(holders) == MAX_HOLDERS_COUNT:
                return holders
    return holders


def _holders(home: Directory, sign: LockSign, locks: _Locks) -> Iterator[Holder]:
    pattern = re.compile(sign.pattern)
    try:
        folder = home.directory(os.fsencode(sign.directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    with folder:
        for name in folder.names():
            matched = pattern.search(os.fsdecode(name))
            if not matched:
                continue
            if "pid" in pattern.groupindex:
                pid = live_pid(folder, name, matched.group("pid"))
                if pid and _has(folder, name, sign):
                    yield Holder(folder.join(name), pid)
            elif _has(folder, name, sign) and (owner := locks.owner(folder, name)) is not None:
                yield Holder(folder.join(name), owner)


def _has(folder: Directory, name: bytes, sign: LockSign) -> bool:
    return not sign.contains or sign.contains in read_head(folder, name, HEAD_BYTES)


class _Locks:
    """Who has an exclusive lock on a file, of flock(2) or of fcntl(2). What the system lists is read once."""

    def __init__(self) -> None:
        self._listed: Mapping[tuple[int, int, int], int] | None = None

    def owner(self, folder: Directory, name: bytes) -> int | None:
        """Return the process that has one; 0: one that cannot be told; None: nobody has, or it is no regular file.

        Raises:
            OSError: it cannot be opened.
        """
        try:
            if not stat.S_ISREG(folder.stat(name).st_mode):
                return None
            fd = folder.file(name)
        except (FileNotFoundError, LinkError):
            return None
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return None
            owner = _fcntl_owner(fd)
            return self._flock_owner(fd, status) if owner is None else owner
        finally:
            os.close(fd)

    def _flock_owner(self, fd: int, status: os.stat_result) -> int | None:
        if self._listed is None:
            self._listed = _listed_locks()
        owner = self._listed.get((os.major(status.st_dev), os.minor(status.st_dev), status.st_ino))
        if owner is not None:
            return owner
        # A lock is not listed when its process has no number here (another container), and under another device by
        # file systems that invent devices, such as Btrfs. A shared one is not in the way of others that look.
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        fcntl.flock(fd, fcntl.LOCK_UN)  # the descriptor may be in a child by now, on its way to be closed
        return None


def _fcntl_owner(fd: int) -> int | None:
    """Ask, without taking it, who has the lock of fcntl(2)."""
    asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else max(pid, 0)  # -1: the lock is of an open file, not of a process


def _listed_locks() -> Mapping[tuple[int, int, int], int]:
    """Return the process that has an exclusive flock(2), by device (major, minor) and inode, of all that are listed."""
    owners: dict[tuple[int, int, int], int] = {}
    try:
        with open(LISTING, encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError:  # a kernel, or what stands in for one, without it
        return owners
    for line in lines:
        fields = line.split()
        if len(fields) == _LOCK_FIELDS_COUNT and fields[1] == "FLOCK" and fields[3] == "WRITE":
            major, minor, inode = fields[5].split(":")
            owners[int(major, 16), int(minor, 16), int(inode)] = max(int(fields[4]), 0)
    return owners
