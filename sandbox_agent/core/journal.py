"""Note what is staged where, so that the next start finishes or removes it after a crash.

The one rule: nothing is staged that is not noted, and a note goes only when nothing of it is left. What a broken
restore with an id staged waits for its next attempt (`kept.py`): its note is there and nobody's.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from sandbox_agent.core.file_set_record import FileSetRecord
from sandbox_agent.core.file_set_sweep import finish_files
from sandbox_agent.core.intent import FILE_NAME, Intent
from sandbox_agent.core.kept import Kept, busy
from sandbox_agent.core.lock import WAIT_SECONDS
from sandbox_agent.core.process_note import sweep_processes
from sandbox_agent.core.rollback import Rollback
from sandbox_agent.core.sweep import finish
from sandbox_api.errors import OutpostError, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox_agent.core.intent import Record
    from sandbox_agent.core.paths import Directory, Roots


class Journal:
    """A held private directory with one file for each restore in progress.

    Several daemons may share it: a file whose daemon lives is locked, and left alone by the others.

    Args:
        directory: The daemon's state directory; not closed by this object.
        kept: What waits in it to be gone on with.
    """

    def __init__(self, directory: Directory, kept: Kept | None = None) -> None:
        self.directory = directory
        self.kept = kept or Kept()

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

    def keep(self, intent: Intent) -> None:
        """Let go of a restore whose stream broke: what it staged waits for the next one of its id."""
        with self.kept.changed:
            changed_ns = intent.touch()
            intent.close()
            self.kept.is_waiting(intent.file_name, changed_ns)

    def take_kept(
        self, restore_id: str, is_meant: Callable[[Record | FileSetRecord], bool]
    ) -> list[tuple[Intent, Record | FileSetRecord]]:
        """Return what waits for a restore, locked; the caller ends or closes each.

        Args:
            restore_id: Names the restore.
            is_meant: Tells whether a record is of its place.

        Raises:
            ConflictError: `busy`: another daemon is at work on one of them.
        """
        taken: list[tuple[Intent, Record | FileSetRecord]] = []
        with self.kept.changed, Rollback() as back:
            for name in self.directory.names():
                seen = self._record_of(name)
                if seen is None or seen.restore_id != restore_id or not is_meant(seen):
                    continue
                intent = Intent.take_over(self.directory, name)
                if intent is None:
                    raise busy(restore_id)
                record = intent.read()
                if record is None or not record.may_go_on:
                    intent.close()  # the sweep's to finish
                    continue
                back.add(intent.close)
                self.kept.forget(name)
                taken.append((intent, record))
        return taken

    def sweep(self, roots: Roots, home: bytes | None = None) -> list[str]:
        """Finish or remove what dead daemons left; return what was done, for the log.

        What cannot be finished now is told and left for the next sweep. For folders that others hold, all entries
        together wait `WAIT_SECONDS`. What waits to be gone on with is left alone while its time lasts.

        Args:
            roots: Where.
            home: Only what was left in the home at this path; None: in all.
        """
        told: list[str] = []
        deadline = time.monotonic() + WAIT_SECONDS
        for intent in self._dead(home):
            record = intent.read()
            if record is None:
                intent.end()
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

    def _dead(self, home: bytes | None) -> Iterator[Intent]:
        with self.kept.changed:  # what begins to wait meanwhile is not forgotten again
            names = [name for name in self.directory.names() if FILE_NAME.fullmatch(os.fsdecode(name))]
            self.kept.forget_all_but(set(names))
        for name in names:
            record = self._record_of(name)
            if record is not None and home not in (None, record.home):
                continue
            with self.kept.changed:
                intent = Intent.take_over(self.directory, name)
                if intent is None:
                    self.kept.forget(name)
                    continue
                if record is not None and record.may_go_on and self.kept.is_waiting(name, intent.changed_ns):
                    intent.close()
                    continue
            yield intent

    def _record_of(self, name: bytes) -> Record | FileSetRecord | None:
        intent = Intent.look_at(self.directory, name)
        if intent is None:
            return None
        try:
            return intent.read()
        finally:
            intent.close()
