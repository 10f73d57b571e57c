"""Serialize what several restores, and several daemons, do to one folder of sessions."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox_api.errors import ConflictError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox_agent.core.paths import Directory

WAIT_SECONDS = 10.0
_RETRY_SECONDS = 0.02

_held: set[tuple[int, int]] = set()
_freed = threading.Condition()


@contextmanager
def folder_lock(folder: Directory, *, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold a folder alone among all daemons that use this lock; the folder itself is not changed.

    Raises:
        ConflictError: `busy`: somebody else held it for all of the wait.
    """
    deadline = time.monotonic() + wait_seconds
    status = os.fstat(folder.fd)
    key = (status.st_dev, status.st_ino)
    with _freed:
        if not _freed.wait_for(lambda: key not in _held, timeout=wait_seconds):
            raise _busy(folder)
        _held.add(key)
    try:
        # A lock belongs to an open file: a second handle keeps the caller's own free of it.
        with folder.directory(b"") as handle:
            while not _try_lock(handle.fd):
                if time.monotonic() >= deadline:
                    raise _busy(folder)
                # Only another process is waited for here, and the system has no such wait with a limit.
                time.sleep(_RETRY_SECONDS)
            yield
    finally:
        with _freed:
            _held.discard(key)
            _freed.notify_all()


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _busy(folder: Directory) -> ConflictError:
    return ConflictError(
        "busy",
        f"another operation holds '{printable(folder.path)}'",
        hint="try again",
        facts={"path": printable(folder.path)},
    )
