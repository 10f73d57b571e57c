"""Receive the files of a set into a staging directory below their home, each checked as it ends.

The one rule: nothing of the home changes but that directory.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandbox_agent.core.copy import write_all
from sandbox_agent.core.file_set_append import MAX_APPEND_BYTES, check_lines, check_plain
from sandbox_agent.core.file_set_record import MAX_LINES_BYTES, is_reserved
from sandbox_agent.core.file_set_target import Snapshot, has_one_name, look, reading
from sandbox_agent.core.staging import Staging
from sandbox_api.errors import ConfigurationError, LimitError, Offender, SessionError, printable
from sandbox_api.limits import MAX_FILES_COUNT
from sandbox_api.names import path_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.rename import Identity

_DEFAULT_MODE = 0o600
_PIECE_BYTES = 1 << 20


@dataclass(slots=True)
class Member:
    """One file of the set.

    Attributes:
        path: Its path below the home.
        mode: Permission bits.
        is_lines: Whether its content is lines to append.
        before: What stood at its path when it began to arrive; None: nothing.
        size: Bytes that have arrived.
        staged: What is staged of it; None: nothing any more, since the home has the same.
        is_last: Whether it takes its place behind those that come later.
    """

    path: bytes
    mode: int
    is_lines: bool
    before: Snapshot | None
    size: int = 0
    staged: Identity | None = None
    is_last: bool = False


class FileSetStaging:
    """The files that have arrived.

    Args:
        home: The home; not closed by this object.
        name: Name of the staging directory in it, which must not exist; it is made now.
        owner: User and group id of all that is in it; None: the daemon's own.
    """

    def __init__(self, home: Directory, name: bytes, owner: Owner | None) -> None:
        self._home = home
        self._owner = owner
        self._files: set[bytes] = set()
        self._folders: set[bytes] = set()
        self._names_bytes = 0
        self._digest = hashlib.sha256()
        self._fd = -1
        self.members: list[Member] = []
        self.directory = Staging(home, name, owner)

    def begin(
        self,
        path: bytes,
        mode: int,
        *,
        is_lines: bool,
        from_offset: int = 0,
        go_on: Callable[[Staging], Any] | None = None,
    ) -> None:
        """Begin a file.

        Args:
            path: Its path.
            mode: Its permission bits; 0: 0600.
            is_lines: Whether its content is lines to append.
            from_offset: How much of it is staged already; the rest of it is fed.
            go_on: Puts that into the directory, and returns the SHA-256 object of it; None: nothing is staged.

        Raises:
            SessionError: `unsafe_name`; `protocol`: the path was there already, or is one of a directory.
            ConfigurationError: `invalid_argument` for a mode beyond 0777.
            LimitError: `max_files`; `max_bytes`: all paths together are too long to be held in memory.
            WorkspaceError: `not_a_file`, `mounted`.
            OSError: it cannot be staged; `LinkError` where a link is met.
        """
        self._check(path, mode)
        before = look(self._home, path)
        if go_on is None:
            self._fd = self.directory.create(path)
            self._digest = hashlib.sha256()
        else:
            self._digest = go_on(self.directory)
            self._fd = self.directory.append(path, from_offset)
        self.members.append(Member(path, mode or _DEFAULT_MODE, is_lines, before, from_offset))

    def feed(self, data: bytes) -> None:
        """Add to the content of the file that was begun last.

        Raises:
            LimitError: `max_bytes`: too many lines to append.
            OSError: it cannot be written.
        """
        member = self.members[-1]
        self._digest.update(data)
        write_all(self._fd, data)
        member.size += len(data)
        if member.is_lines and member.size > MAX_APPEND_BYTES:
            check_lines(member.path, data)

    def end(self, sha256: bytes) -> None:
        """End the file that was begun last.

        Raises:
            SessionError: `digest_mismatch`; `protocol`: lines to append are not whole.
            LimitError: `max_bytes`: too many lines to append.
            OSError: the existing file, or the staged one, cannot be read.
        """
        member = self.members[-1]
        if self._digest.digest() != sha256:
            raise SessionError(
                "digest_mismatch", f"the content for '{printable(member.path)}' does not have the promised SHA-256"
            )
        os.fchmod(self._fd, member.mode)
        status = os.fstat(self._fd)
        self.close_file()
        member.staged = (status.st_dev, status.st_ino)
        if member.is_lines:
            check_lines(member.path, self.read(member))
        elif self._is_there(member, sha256):
            self.drop(member)

    def read(self, member: Member) -> bytes:
        """Return the staged lines of a file.

        Raises:
            WorkspaceError: `not_a_file`, `unsafe_path`: something else was put in their place.
            OSError: they cannot be read.
        """
        with reading(self.directory.directory, member.path) as fd:
            check_plain(self.directory.directory, member.path, fd)
            return os.read(fd, member.size)

    def drop(self, member: Member) -> None:
        """Remove what is staged of a file."""
        self.directory.remove_file(member.path)
        member.staged = None

    def close_file(self) -> None:
        """Let go of the file that is arriving."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _check(self, path: bytes, mode: int) -> None:
        problem = path_problem(path) or ("has a name that is this product's own" if is_reserved(path) else None)
        if problem:
            raise SessionError(
                "unsafe_name",
                f"the path '{printable(path)}' of the conversation {problem}",
                offenders=[Offender(printable(path), problem)],
            )
        segments = path.split(b"/")
        above = [b"/".join(segments[:count]) for count in range(1, len(segments))]
        if path in self._files or path in self._folders or not self._files.isdisjoint(above):
            raise SessionError("protocol", f"the path '{printable(path)}' comes twice, or lies below a file")
        if mode & ~0o777:
            raise ConfigurationError("invalid_argument", f"the mode {mode:#o} has more than permission bits")
        if len(self.members) == MAX_FILES_COUNT:
            raise LimitError(
                "max_files",
                f"the conversation has more than {MAX_FILES_COUNT} files",
                facts={"max_files": str(MAX_FILES_COUNT)},
            )
        self._names_bytes += len(path) + sum(len(folder) for folder in above if folder not in self._folders)
        if self._names_bytes > MAX_LINES_BYTES:
            raise LimitError(
                "max_bytes",
                f"the paths of the files and their directories take more than {MAX_LINES_BYTES} bytes",
                hint="restore fewer files at once",
                facts={"max_bytes": str(MAX_LINES_BYTES)},
            )
        self._files.add(path)
        self._folders.update(above)

    def _is_there(self, member: Member, sha256: bytes) -> bool:
        """Tell whether the home has the file already, byte for byte and with the owner that was asked for.

        One that has another name, too, is replaced all the same: its time could not be set without setting the other's.
        """
        before = member.before
        if before is None or before.size != member.size or self._owner not in (None, before.owner):
            return False
        digest = hashlib.sha256()
        try:
            with reading(self._home, member.path) as fd:
                status = os.fstat(fd)
                if Snapshot.of(status) != before or not has_one_name(status):
                    return False
                while piece := os.read(fd, _PIECE_BYTES):
                    digest.update(piece)
        except (FileNotFoundError, PermissionError):
            return False
        return digest.digest() == sha256
