"""Recognise SQLite files whose last changes are not in their main file.

The rule: the main file alone is never taken for the database. Source: SQLite's file format, "The Rollback Journal" and
"The Write-Ahead Log".
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from sandbox_agent.core.paths import LinkError

if TYPE_CHECKING:
    from sandbox_agent.core.paths import Directory

_WAL, _JOURNAL = _SUFFIXES = b"-wal", b"-journal"
_JOURNAL_MAGIC_BYTES = 8


def is_sidecar(name: bytes) -> bool:
    """Tell whether a file of that name would be the log or journal of a database."""
    return name.endswith(_SUFFIXES)


def main_file(name: bytes) -> bytes:
    """Return the name of the database whose log or journal a file of that name would be."""
    return name.removesuffix(_WAL if name.endswith(_WAL) else _JOURNAL)


def is_live(folder: Directory, name: bytes) -> bool:
    """Tell whether a log or journal holds changes; it is read for its first bytes at most.

    A write-ahead log does while it has any byte. A journal does unless it is empty or its header is zeroed, which is
    how a finished transaction leaves it in the modes TRUNCATE and PERSIST. A link counts: where it leads to is not
    looked at.

    Raises:
        OSError: it cannot be read.
    """
    try:
        status = folder.stat(name)
        if stat.S_ISLNK(status.st_mode):
            return True
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return False
        if name.endswith(_WAL):
            return True
        fd = folder.file(name)
    except FileNotFoundError:
        return False
    except LinkError:  # swapped for one since
        return True
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and any(os.read(fd, _JOURNAL_MAGIC_BYTES))
    finally:
        os.close(fd)
