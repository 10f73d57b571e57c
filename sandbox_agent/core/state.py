"""The daemon's own folder, made when it is first needed.

A sandbox that is only captured from keeps no trace of the daemon, and a read-only home does not stop it from serving.
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox_agent.core.journal import Journal
from sandbox_agent.core.kept import Kept
from sandbox_agent.core.paths import Directory
from sandbox_api.errors import WorkspaceError, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_agent.core.file_set_record import FileSetRecord
    from sandbox_agent.core.intent import Intent, Record
    from sandbox_agent.core.paths import Roots


class StateJournal(Journal):
    """The journal in a folder that may not exist yet.

    Args:
        path: Absolute path of the folder, named by the operator.
        kept: What waits in it to be gone on with.
    """

    def __init__(self, path: bytes, kept: Kept | None = None) -> None:
        self.kept = kept or Kept()
        self._path = path
        self._opened: Directory | None = None
        self._lock = threading.Lock()

    @property
    def directory(self) -> Directory:  # type: ignore[override]  # nobody sets it on a journal
        """The folder, which is created, 0700, when it is missing.

        Raises:
            WorkspaceError: `access`: others may write to the folder.
            OSError: it cannot be made or opened, for example in a read-only home.
        """
        with self._lock:
            if self._opened is None:
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
                with suppress(FileExistsError):
                    os.mkdir(self._path, 0o700)
                self._opened = self._open()
            return self._opened

    def take_kept(
        self, restore_id: str, is_meant: Callable[[Record | FileSetRecord], bool]
    ) -> list[tuple[Intent, Record | FileSetRecord]]:
        """Return what waits for a restore, as `Journal.take_kept`. No folder: nothing does.

        Raises:
            ConflictError: `busy`: another daemon is at work on one of them.
            WorkspaceError: `access`: others may write to the folder.
            OSError: it is there and cannot be opened.
        """
        return super().take_kept(restore_id, is_meant) if os.path.lexists(self._path) else []

    def sweep(self, roots: Roots, home: bytes | None = None) -> list[str]:
        """Finish or remove what dead daemons left; return what was done, for the log. No folder: nothing was left.

        Raises:
            WorkspaceError: `access`: others may write to the folder.
            OSError: it is there and cannot be opened.
        """
        return super().sweep(roots, home) if os.path.lexists(self._path) else []

    def sweep_processes(self) -> list[str]:
        """End what killed daemons left running; return what was done, for the log. No folder: nothing was left.

        Raises:
            WorkspaceError: `access`: others may write to the folder.
            OSError: it is there and cannot be opened.
        """
        return super().sweep_processes() if os.path.lexists(self._path) else []

    def check(self) -> None:
        """See that the folder can be used, where it is there; nothing is made.

        Raises:
            WorkspaceError: `access`: others may write to the folder.
            OSError: it is there and cannot be opened.
        """
        if os.path.lexists(self._path):
            self._open().close()

    def close(self) -> None:
        """Let go of the folder."""
        if self._opened is not None:
            self._opened.close()

    def _open(self) -> Directory:
        fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            os.close(fd)
            raise WorkspaceError(
                "access",
                f"the state folder '{printable(self._path)}' is not the daemon's alone",
                hint="remove it, or name another with --state",
            )
        return Directory(fd, self._path)
