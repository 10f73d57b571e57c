"""Note what is staged where, so that the next start finishes or removes it after a crash.

The one rule: nothing is staged that is not noted, and a note goes only when nothing of it is left.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from sandbox_agent.core.file_set_record import FileSetRecord
from sandbox_agent.core.file_set_sweep import finish_files
from sandbox_agent.core.intent import FILE_NAME, Intent
from sandbox_agent.core.lock import WAIT_SECONDS
from sandbox_agent.core.process_note import sweep_processes
from sandbox_agent.core.rollback import Rollback
from sandbox_agent.core.sweep import finish
from sandbox_api.errors import OutpostError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox_agent.core.intent import Record
    from sandbox_agent.core.paths import Directory, Roots


class Journal:
    """A held private directory with one file for each restore in progress.

    Several daemons may share it: a file whose daemon lives is locked, and left alone by the others.

    Args:
        directory: The daemon's state directory; not closed by this object.
    """

    def __init__(self, directory: Directory) -> None:
        self.directory = directory

    def check(self) -> None:
        """See that the folder can be used, where it is there; nothing is made.

        Raises:
            WorkspaceError: `access`: others may write to it.
            OSError: it cannot be opened.
        """

    def begin(self, record: Record | FileSetRecord, *, durable: bool) -> Intent:
        """Note that a restore is about to stage; the caller ends or closes the intent.

        Args:
            record: Where; what is not known yet is left empty, and added with `Intent.write`.
            durable: Whether the note must survive a power loss.
        """
        intent = Intent.create(self.directory)
        with Rollback() as back:
            back.add(intent.end)
            intent.write_lines([record.opening()], durable=durable)
        return intent

    def sweep(self, roots: Roots, home: bytes | None = None) -> list[str]:
        """Finish or remove what dead daemons left; return what was done, for the log.

        What cannot be finished now is told and left for the next sweep. For folders that others hold, all entries
        together wait `WAIT_SECONDS`.

        Args:
            roots: Where.
            home: Only what was left in the home at this path; None: in all.
        """
        told: list[str] = []
        deadline = time.monotonic() + WAIT_SECONDS
        for intent in self._dead():
            record = intent.read()
            if record is None:
                intent.end()
                continue
            if home not in (None, record.home):
                intent.close()
                continue
            try:
                wait_seconds = max(0.0, deadline - time.monotonic())
                if isinstance(record, FileSetRecord):
                    told.append(finish_files(roots, record, intent.staging_name, wait_seconds=wait_seconds))
                else:
                    told.append(finish(roots, record, intent.staging_name, wait_seconds=wait_seconds))
            except (OSError, OutpostError) as error:
                intent.close()
                told.append(f"left {printable(intent.staging_name)} in {printable(record.home)}: {error}")
            else:
                intent.end()
        return told

    def sweep_processes(self) -> list[str]:
        """End what dead daemons left running; return what was done, for the log."""
        return sweep_processes(self.directory)

    def _dead(self) -> Iterator[Intent]:
        for name in self.directory.names():
            if FILE_NAME.fullmatch(os.fsdecode(name)) and (intent := Intent.take_over(self.directory, name)):
                yield intent
