"""The half of a restore that changes the disk: staging, the commit, and taking all of it back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sandbox_agent.core import syscall
from sandbox_agent.core.intent import Record
from sandbox_agent.core.lock import folder_lock
from sandbox_agent.core.recovery_entry import Sidecar, new_entry_name
from sandbox_agent.core.rename import identity_at
from sandbox_agent.core.resume import resume
from sandbox_agent.core.rollback import Rollback
from sandbox_agent.core.session import open_cli_home
from sandbox_agent.core.slot import Slot
from sandbox_agent.core.staging import Staging
from sandbox_agent.core.swap import Swap
from sandbox_agent.core.target import MadeFolders, check_idle
from sandbox_api.errors import ConflictError, UnavailableError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from sandbox_agent.core.existing import Existing
    from sandbox_agent.core.intent import Intent
    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.resume import Part
    from sandbox_agent.core.sandbox import Place, Sandbox
    from sandbox_agent.core.target import Target
    from sandbox_api.manifest import Entry

_log = logging.getLogger(__name__)
_MAX_TRIES_COUNT = 3


class _Staged:
    """Everything that staging opened."""

    def __init__(self, cli_home: Directory, folder: Directory, intent: Intent, staging: Staging) -> None:
        self.cli_home = cli_home
        self.folder = folder
        self.intent = intent
        self.staging = staging


class Placement:
    """Where a restore stages its session and how that gets into place; nothing happens before `stage`.

    A context manager: leaving it without a commit removes what is staged, or with `keep` leaves it to the next attempt;
    where that fails, the error that ended the block gets a note.

    Args:
        sandbox: Where.
        place: Names the CLI home and the format.
        target: The session directory.
        existing: What was there when the restore began; None: nothing.
        full_durability: Whether the result must survive a power loss.
        owner: User and group id of all that is made.
        force: Replace what a running process has open.
        restore_id: Names all attempts at this restore; empty: it is the only one.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        place: Place,
        target: Target,
        existing: Existing | None,
        *,
        full_durability: bool,
        owner: Owner | None,
        force: bool,
        restore_id: str = "",
    ) -> None:
        self._sandbox = sandbox
        self._place = place
        self._target = target
        self._existing = existing
        self._durable = full_durability
        self._owner = owner
        self._force = force
        self._restore_id = restore_id
        self._is_kept = False
        self._back = Rollback()
        self._staged: _Staged | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.discard()
        elif self._is_kept and self._staged is not None:
            self._leave(self._staged, error)
        else:
            self._abandon(error)

    def stage(self) -> Staging:
        """Return the staging directory, made and noted in the journal when this is first asked for."""
        return self._stage().staging

    def keep(self) -> None:
        """Leave what is staged to the next attempt when this one fails; not to be told once a commit has begun."""
        self._is_kept = True

    def resume(self, entries: Sequence[Entry]) -> dict[bytes, Part]:
        """Move here what broken attempts at this restore had staged, as far as it is good; nothing else of it stays.

        Args:
            entries: What is lacking.

        Returns:
            What is there, by path.

        Raises:
            ConflictError: `busy`: another daemon is at work on it.
        """
        cli_home = open_cli_home(self._sandbox, self._place)
        if cli_home is None:
            return {}
        with cli_home:
            return resume(
                self._sandbox.journal,
                entries,
                self.stage,
                restore_id=self._restore_id,
                cli_home=cli_home,
                parent=self._target.parent,
                conversation_id=self._place.conversation_id,
            )

    def target_path(self) -> bytes:
        """Return the absolute path the session will have."""
        return self._stage().cli_home.join(self._target.relative)

    def commit(self) -> tuple[str, bool]:
        """Put what is staged in place; return the recovery entry's name, and whether that was not atomic.

        Raises:
            ConflictError: `target_changed`, `in_use`, `busy`.
            OSError: the file system refused. In both cases leaving the context takes everything back.
        """
        staged = self._stage()
        staged.staging.finish()
        if self._durable:
            # All content, names and modes at once, before the one step that makes them the session. One call for the
            # whole file system is faster by far than one for each of thousands of files.
            syscall.syncfs(staged.staging.directory.fd)
        with folder_lock(staged.folder):
            self._check_existing(staged.folder)
            recovery = new_entry_name(self._place.conversation_id) if self._existing else ""
            old = self._existing.identity if self._existing else None
            # Before anything is made for the recovery entry, so that the sweep knows of it.
            staged.intent.write(
                durable=self._durable,
                recovery=recovery,
                staging_inode=staged.staging.identity[1],
                old_inode=old[1] if old else 0,
            )
            slot = self._prepare_slot(staged.cli_home, recovery) if recovery else None
            not_atomic = Swap(
                folder=staged.folder,
                name=self._target.name,
                staging_name=staged.staging.name,
                new=staged.staging.identity,
                old=old,
                slot=slot,
                intent=staged.intent,
                durable=self._durable,
            ).place()
        self._finish(staged, slot)
        return recovery, not_atomic

    def discard(self) -> None:
        """Remove what is staged and not placed; after a commit or a discard there is nothing.

        Raises:
            UnavailableError: `io`: something of it could not be removed.
        """
        failed = UnavailableError("io", "what the restore had staged could not be removed")
        self._abandon(failed)
        if getattr(failed, "__notes__", None):
            raise failed

    def _abandon(self, error: BaseException) -> None:
        self._back.run(error)
        if self._staged is not None:
            _close(self._staged)

    def _leave(self, staged: _Staged, error: BaseException) -> None:
        self._back = Rollback()
        try:
            self._sandbox.journal.keep(staged.intent)
        except OSError as failure:
            error.add_note(f"while leaving it to the next attempt: {failure}")
        _close(staged)

    def _stage(self) -> _Staged:
        tries_count = 0
        while self._staged is None:
            tries_count += 1
            try:
                self._staged = self._make()
            except FileNotFoundError as error:
                # Another restore that failed may have removed a folder of its own that this one had found.
                self._back.run(error)
                if tries_count == _MAX_TRIES_COUNT:
                    raise
        return self._staged

    def _make(self) -> _Staged:
        folders = MadeFolders(self._sandbox, self._place, self._target)
        self._back.add(folders.remove)
        cli_home, folder = folders.make(self._owner)
        with Rollback() as opened:
            opened.add(cli_home.close)
            opened.add(folder.close)
            record = Record(
                cli_home.path, self._target.parent, self._place.conversation_id, restore_id=self._restore_id
            )
            intent = self._sandbox.journal.begin(record, durable=self._durable)
            opened.add(intent.end)
            staging = Staging(folder, intent.staging_name, self._owner)
        staged = _Staged(cli_home, folder, intent, staging)
        self._back.add(lambda: self._unstage(staged))
        return staged

    def _unstage(self, staged: _Staged) -> None:
        # A commit that failed and could not be taken back has left the new session in place: that is for the sweep to
        # finish, and nothing of it may be removed here.
        if identity_at(staged.folder, self._target.name) == staged.staging.identity:
            return
        staged.staging.remove()
        staged.intent.end()

    def _check_existing(self, folder: Directory) -> None:
        """Refuse to go on when the target is not what it was when the restore began."""
        try:
            status = folder.stat(self._target.name)
        except FileNotFoundError:
            now = None
        else:
            now = (status.st_dev, status.st_ino, status.st_ctime_ns)
        before = (*self._existing.identity, self._existing.changed_ns) if self._existing else None
        if now != before:
            path = printable(folder.join(self._target.name))
            raise ConflictError(
                "target_changed",
                f"{path!r} is not what it was when this restore began",
                hint="another restore or the CLI was faster; look at the session, then restore again",
                facts={"path": path},
            )
        if self._existing:
            check_idle(self._existing.directory, self._place.profile, force=self._force)

    def _prepare_slot(self, cli_home: Directory, name: str) -> Slot:
        slot = Slot.prepare(
            cli_home,
            name,
            Sidecar(self._place.profile.format, self._target.relative),
            self._owner,
            durable=self._durable,
        )
        self._back.add(slot.discard)
        return slot

    def _finish(self, staged: _Staged, slot: Slot | None) -> None:
        """Let go of everything; the restore has succeeded."""
        self._back = Rollback()
        if slot is not None:
            slot.close()
        # Where something is left under the staging name, the note stays for the sweep.
        if identity_at(staged.folder, staged.staging.name) is None:
            try:
                staged.intent.end()
            except OSError:
                _log.warning("a note of a finished restore stays in the journal until the next start")
        _close(staged)


def _close(staged: _Staged) -> None:
    staged.staging.close()
    staged.intent.close()
    staged.folder.close()
    staged.cli_home.close()
