"""Walk a session directory: pin what its profile selects, and name everything in it that a bundle cannot hold.

The one rule: nothing is followed and nothing but directories is opened, whatever the sandbox puts in their place. One
descriptor is held at a time, however many directories there are.
"""

from __future__ import annotations

import errno
import heapq
import os
import re
import stat
from typing import TYPE_CHECKING

from sandbox_agent.core import database
from sandbox_agent.core.refusal import Refusal
from sandbox_agent.core.tree import ENCODING, MAX_LEFT_OUT_COUNT, Folder, Pin, Tree, file_identity
from sandbox_agent.errors import from_os
from sandbox_api.errors import LimitError, Offender, printable
from sandbox_api.limits import MAX_DEPTH_COUNT, MAX_PATH_BYTES
from sandbox_api.names import name_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox_agent.core.paths import Directory
    from sandbox_api.limits import Limits
    from sandbox_api.profile import Profile

_MAX_ENTRIES_PER_FILE = 8
"""Selected entries of any kind that are remembered, for each file the limits allow."""

_MAX_LARGEST_COUNT = 8
"""Files named when a session is too large."""

_PLAIN = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")
"""Most names; `name_problem` has none with them, and asking it would take a tenth of the walk."""

_KINDS = {
    stat.S_IFIFO: "is a FIFO",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
}


def walk(session: Directory, profile: Profile, limits: Limits, *, skip_links: bool) -> Tree:
    """Pin the selected files of a session directory; the caller closes the tree, and `session` in its own time.

    What the profile does not select is passed over whatever it is; of a directory, nothing below it is looked at.

    Args:
        session: The held session directory.
        profile: Selects. A directory is tested by its path without a slash at its end.
        limits: Most bytes and files.
        skip_links: Leave selected links out, instead of refusing them. None is followed either way.

    Raises:
        SessionError: `symlink`, `special_file`, `unsafe_name`, `live_database`, `changed`: the first of these, in this
            order, that is met; every entry at fault is named, of whatever kind.
        LimitError: `max_files` at once; `max_depth` and `max_bytes` when nothing of the above is met.
        WorkspaceError: `access`.
    """
    running = _Walk(session, profile, limits, skip_links=skip_links)
    try:
        return running.run()
    except OSError as error:
        raise from_os(error, session.path) from None


class _Walk:
    def __init__(self, session: Directory, profile: Profile, limits: Limits, *, skip_links: bool) -> None:
        self._session = session
        self._profile = profile
        self._limits = limits
        self._skip_links = skip_links
        self._refusal = Refusal()
        self._pins: list[Pin] = []
        self._folders: list[Folder] = []
        self._pending: list[tuple[bytes, tuple[int, int]]] = []
        self._left_out: list[tuple[bytes, str]] = []
        self._left_out_count = 0
        # Directories and links are no files, and alone would fill the memory.
        self._entries_left_count = limits.max_files * _MAX_ENTRIES_PER_FILE + MAX_DEPTH_COUNT

    def run(self) -> Tree:
        status = os.fstat(self._session.fd)
        self._pending.append((b"", (status.st_dev, status.st_ino)))
        while self._pending:
            self._visit(*self._pending.pop())
        self._refusal.check()
        self._check_bytes()
        return Tree(
            self._session,
            self._profile,
            pins=sorted(self._pins, key=lambda pin: pin.path),
            folders=self._folders,
            left_out=sorted(self._left_out),
            left_out_count=self._left_out_count,
        )

    def _visit(self, path: bytes, identity: tuple[int, int]) -> None:
        try:
            held = self._session.directory(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            self._refusal.add("changed", path, "is no directory any more")
            return
        with held:
            status = os.fstat(held.fd)
            if (status.st_dev, status.st_ino) != identity:
                self._refusal.add("changed", path, "is another directory now")
                return
            folder = Folder(path, identity, {})
            self._folders.append(folder)
            self._check_databases(folder, held, self._list(folder, held))

    def _list(self, folder: Folder, held: Directory) -> list[bytes]:
        """Take in the entries of one directory; return the names that databases' logs and journals would have."""
        sidecars: list[bytes] = []
        entries, selects = folder.entries, self._profile.selects
        prefix = folder.join(b"").decode(*ENCODING)
        is_deep = prefix.count("/") >= MAX_DEPTH_COUNT
        pending_count = len(self._pending)
        with os.scandir(held.fd) as items:
            for item in items:
                if len(entries) + len(sidecars) > self._entries_left_count:
                    raise self._too_many()
                text: str = item.name
                name = text.encode(*ENCODING)
                if database.is_sidecar(name):
                    sidecars.append(name)
                if not selects(prefix + text):
                    self._leave_out(folder.join(name), "not_selected")
                    continue
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    self._refusal.add("changed", folder.join(name), "vanished while it was read")
                    continue
                except OSError as error:
                    raise OSError(error.errno, error.strerror, held.join(name)) from None
                entries[name] = self._take(folder.join(name), name, status, is_deep=is_deep)
        self._entries_left_count -= len(entries) + len(sidecars)
        self._pending[pending_count:] = sorted(self._pending[pending_count:], reverse=True)
        return sidecars

    def _take(self, path: bytes, name: bytes, status: os.stat_result, *, is_deep: bool) -> tuple[int, ...] | None:
        """Judge one selected entry; return its identity when it is a file that was pinned."""
        is_file = stat.S_ISREG(status.st_mode)
        if not is_file and not stat.S_ISDIR(status.st_mode):
            self._take_other(path, status.st_mode)
        elif not _PLAIN.fullmatch(name) and (problem := name_problem(name)):
            self._refusal.add("unsafe_name", path, problem)
        elif len(path) + (not is_file) > MAX_PATH_BYTES:  # a directory's path must be left room to be opened by
            self._refusal.add("unsafe_name", path, f"is longer than {MAX_PATH_BYTES} bytes")
        elif is_deep:
            self._refusal.add("max_depth", path, f"is nested deeper than {MAX_DEPTH_COUNT}")
        elif is_file:
            identity = file_identity(status)
            self._pins.append(Pin(path, status.st_size, identity))
            if len(self._pins) > self._limits.max_files:
                self._limits.check(bytes_count=0, files_count=len(self._pins))
            return identity
        else:
            self._pending.append((path, (status.st_dev, status.st_ino)))
        return None

    def _take_other(self, path: bytes, mode: int) -> None:
        if not stat.S_ISLNK(mode):
            self._refusal.add("special_file", path, _KINDS.get(stat.S_IFMT(mode), "is neither a file nor a directory"))
        elif self._skip_links:
            self._leave_out(path, "symlink")
        else:
            self._refusal.add("symlink", path, "is a symbolic link")

    def _check_databases(self, folder: Folder, held: Directory, sidecars: Iterable[bytes]) -> None:
        for name in sidecars:
            main = database.main_file(name)
            if folder.entries.get(main) and database.is_live(held, name):
                self._refusal.add("live_database", folder.join(main), f"has changes in {printable(name)}")

    def _check_bytes(self) -> None:
        try:
            self._limits.check(bytes_count=sum(pin.size for pin in self._pins), files_count=len(self._pins))
        except LimitError as error:
            largest = heapq.nlargest(_MAX_LARGEST_COUNT, self._pins, key=lambda pin: pin.size)
            raise LimitError(
                error.reason,
                error.message,
                hint=error.hint,
                facts=error.facts,
                offenders=(Offender(printable(pin.path), f"has {pin.size} bytes") for pin in largest),
            ) from None

    def _leave_out(self, path: bytes, why: str) -> None:
        self._left_out_count += 1
        if len(self._left_out) < MAX_LEFT_OUT_COUNT:
            self._left_out.append((path, why))

    def _too_many(self) -> LimitError:
        return LimitError(
            "max_files",
            f"the session has too many entries for {self._limits.max_files} files",
            hint="raise max_files on both sides, or narrow the profile",
            facts={"max_files": str(self._limits.max_files)},
        )
