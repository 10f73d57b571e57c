"""Add lines to a file that other conversations share.

The one rule: nothing that is in the file changes, and what is added is added by one write, so that lines of others stay
whole.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from sandbox_agent.core.file import not_a_file
from sandbox_agent.core.owner import give
from sandbox_agent.core.rollback import Rollback
from sandbox_api.errors import LimitError, SessionError, UnavailableError, WorkspaceError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory

MAX_APPEND_BYTES = 16 << 20
"""Lines for one file: they are held in memory."""

MAX_APPEND_COUNT = 65_536
"""The same, in lines."""

MAX_SHARED_BYTES = 1 << 30
"""Largest file that lines are added to: it is read as a whole while its home is locked, and may go on growing."""

_PIECE_BYTES = 1 << 20


def check_lines(path: bytes, data: bytes) -> None:
    """Refuse content that is no sequence of whole lines, or too many.

    Raises:
        SessionError: `protocol`.
        LimitError: `max_bytes`.
    """
    if data and not data.endswith(b"\n"):
        raise SessionError("protocol", f"the last line for '{printable(path)}' has no end")
    if len(data) > MAX_APPEND_BYTES or data.count(b"\n") > MAX_APPEND_COUNT:
        raise LimitError(
            "max_bytes",
            f"the lines for '{printable(path)}' are more than {MAX_APPEND_BYTES} bytes or {MAX_APPEND_COUNT} lines",
            hint="append fewer lines at once",
            facts={"max_bytes": str(MAX_APPEND_BYTES)},
        )


def missing_lines(fd: int, data: bytes) -> bytes:
    """Return what has to be added to an open file so that it has all these lines, each once.

    A last line of the file that has no newline gets one first. Memory is bounded by the lines looked for.

    Args:
        fd: Descriptor of the file; its offset is not used.
        data: Whole lines.

    Raises:
        LimitError: `max_bytes`: the file is too large to be looked through.
        OSError: it cannot be read.
    """
    wanted = dict.fromkeys(line + b"\n" for line in data.split(b"\n")[:-1])
    longest = max(map(len, wanted), default=0)
    is_whole = True
    for line in _read_lines(fd, longest):
        is_whole = line.endswith(b"\n")
        wanted.pop(line if is_whole else line + b"\n", None)
    return b"".join((b"" if is_whole or not wanted else b"\n", *wanted))


def append_lines(home: Directory, path: bytes, data: bytes, owner: Owner | None, *, durable: bool) -> bool:
    """Add the lines that a file lacks; return whether it was made.

    Args:
        home: The home.
        path: Path of the file below it; made 0600 when it is missing, its directories 0700.
        data: Whole lines.
        owner: User and group id of what is made.
        durable: Whether they must survive a power loss.

    Raises:
        WorkspaceError: `not_a_file`; `unsafe_path`: the file has another name that may lie outside the home.
        LimitError: `max_bytes`: the file is too large to be looked through.
        OSError: the system refuses; nothing was added.
        UnavailableError: `io`: only a part could be added, and could not be taken back.
    """
    parent, _, name = path.rpartition(b"/")
    with home.make_directories(parent, owner=owner) as folder:
        fd, is_made = _open(folder, name)
        try:
            with Rollback() as back:
                if is_made:
                    back.add(lambda: os.unlink(name, dir_fd=folder.fd))
                    give(fd, owner)
                    os.fchmod(fd, 0o600)
                check_plain(home, path, fd)
                lacking = missing_lines(fd, data)
                if lacking:
                    _write_once(fd, lacking, folder.join(name))
                if durable:
                    os.fsync(fd)
                    os.fsync(folder.fd)
        finally:
            os.close(fd)
    return is_made


def _open(folder: Directory, name: bytes) -> tuple[int, bool]:
    while True:
        try:
            return folder.file(name, os.O_RDWR | os.O_APPEND), False
        except FileNotFoundError:
            pass
        try:
            return folder.file(name, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL), True
        except FileExistsError:
            pass  # somebody else made it in between


def check_plain(home: Directory, path: bytes, fd: int) -> None:
    """Refuse to write into, or to pass on, what is no regular file, or also a file by another name.

    Raises:
        WorkspaceError: `not_a_file`, `unsafe_path`.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise not_a_file(home.join(path))
    if status.st_nlink > 1:
        # It is written into, not replaced: what its other names lead to would change as well.
        where = printable(home.join(path))
        raise WorkspaceError("unsafe_path", f"'{where}' has several names", facts={"path": where})


def _write_once(fd: int, data: bytes, path: bytes) -> None:
    written = os.write(fd, data)
    if written == len(data):
        return
    end = os.lseek(fd, 0, os.SEEK_CUR)
    if os.fstat(fd).st_size != end:
        raise UnavailableError("io", f"only a part of the lines could be added to '{printable(path)}'")
    os.ftruncate(fd, end - written)
    # A file takes less than it is given when no more has room.
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def _read_lines(fd: int, longest: int) -> Iterator[bytes]:
    """Yield the lines of a file; of one that is longer than that, only an end, which no line looked for is like."""
    rest = b""
    offset = 0
    while piece := os.pread(fd, _PIECE_BYTES, offset):
        offset += len(piece)
        if offset > MAX_SHARED_BYTES:
            raise LimitError(
                "max_bytes",
                f"a file of more than {MAX_SHARED_BYTES} bytes is too large to be looked through for lines it has",
                hint="move older lines out of the file that is shared",
                facts={"max_bytes": str(MAX_SHARED_BYTES)},
            )
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) > longest:
            rest = rest[: longest + 1]
    if rest:
        yield rest
