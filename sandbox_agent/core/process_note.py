"""The note that a daemon which runs processes leaves for the next one, should it be killed.

One file for a daemon, not for a process: all its processes have its random number in their mark, so that they are found
by that alone. The living daemon holds a lock on the file.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox_agent.core.process_remains import end_marked

if TYPE_CHECKING:
    from sandbox_agent.core.paths import Directory

PATIENCE_SECONDS = 2.0
"""For what a killed daemon left, from TERM to KILL."""

_NAME = re.compile(rb"processes-([0-9a-f]{32})")


class Note:
    """The note of this daemon.

    Attributes:
        key: Random; the marks of its processes begin with it.
    """

    def __init__(self) -> None:
        self.key = uuid.uuid4().hex
        self._fd = -1
        self._folder: Directory | None = None

    def write(self, folder: Directory) -> None:
        """Leave the note, once.

        Raises:
            OSError: it cannot be left.
        """
        while self._folder is None:
            fd = folder.file(self._name, os.O_CREAT | os.O_RDWR)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                self._fd, self._folder = fd, folder
            else:
                os.close(fd)  # another daemon's sweep met it before it was locked

    def remove(self) -> None:
        """Take it back, if it was left: nothing is running any more."""
        if self._folder is not None:
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder.fd)
            os.close(self._fd)
            self._folder = None

    def close(self) -> None:
        """Leave it for the next daemon: something may still run."""
        if self._folder is not None:
            os.close(self._fd)
            self._folder = None

    @property
    def _name(self) -> bytes:
        return b"processes-" + self.key.encode()


def sweep_processes(folder: Directory) -> list[str]:
    """End what killed daemons left running; return what was done, for the log.

    Raises:
        OSError: the folder cannot be read.
    """
    matches = map(_NAME.fullmatch, folder.names())
    # All at once: whoever can write here could leave so many that one look for each would take hours.
    left = {match[1]: match[0] for match in matches if match is not None and _is_left(folder, match[0])}
    if not left:
        return []
    count = end_marked(left, patience_seconds=PATIENCE_SECONDS)
    for name in left.values():
        with suppress(OSError):
            os.unlink(name, dir_fd=folder.fd)
    return [f"ended {count} processes of a daemon that was killed"]


def _is_left(folder: Directory, name: bytes) -> bool:
    try:
        fd = folder.file(name, os.O_RDWR)
    except OSError:
        return False  # a link or worse
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(fd)
