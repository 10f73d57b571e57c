"""The file in which content gathers before it takes its name.

A writer holds a lock on its own for as long as it lives. One that nobody holds was left by a daemon that was killed:
the next writer in the same directory removes it.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from sandbox_agent.core.paths import Directory

PREFIX = ".outpost-file-"
_NAME = re.compile(rb"\.outpost-file-[0-9a-f]{32}")
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def create_scratch(folder: Directory) -> tuple[bytes, int]:
    """Create a file under a name that nobody knows, 0600 and locked; return the name and the descriptor.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        name = f"{PREFIX}{uuid4().hex}".encode()
        fd = folder.file(name, _CREATE_FLAGS)
        # Where the file system has no locks, nobody gets one, and what is left stays.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return name, fd
        os.close(fd)  # another writer met it before it was locked


def remove_stale(folder: Directory) -> None:
    """Remove the scratch files in a directory that nobody writes any more.

    What cannot be opened or removed stays: it is in nobody's way.
    """
    with folder.directory(b"") as listed, os.scandir(listed.fd) as entries:
        names = [name for entry in entries if _NAME.fullmatch(name := os.fsencode(entry.name))]
    for name in names:
        with suppress(OSError):
            _remove_if_stale(folder, name)


def _remove_if_stale(folder: Directory, name: bytes) -> None:
    fd = folder.file(name)
    try:
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=folder.fd)
    finally:
        os.close(fd)
