"""Put the files of one conversation in place as one step: where they are received, and the steps of the commit.

The one rule: the home has all old files or all new ones, or the journal says which ones it will have.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sandbox_agent.core import syscall
from sandbox_agent.core.file_set_append import append_lines, check_plain, missing_lines
from sandbox_agent.core.file_set_commit import Commit, Planned
from sandbox_agent.core.file_set_record import FileSetRecord
from sandbox_agent.core.file_set_resume import KeptFiles
from sandbox_agent.core.file_set_staging import FileSetStaging
from sandbox_agent.core.file_set_target import changed, check_idle, check_unchanged, reading, touch
from sandbox_agent.core.lock import folder_lock
from sandbox_agent.core.missing import Missing
from sandbox_agent.core.owner import check_owner
from sandbox_agent.core.recovery_entry import Sidecar, new_entry_name
from sandbox_agent.core.removal import remove_tree
from sandbox_agent.core.rename import NO_EXCHANGE, identity_at
from sandbox_agent.core.rollback import Rollback
from sandbox_agent.core.room import make_room
from sandbox_agent.core.slot import Slot
from sandbox_api.errors import SessionError, UnavailableError, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from sandbox_agent.core.file_set_staging import Member
    from sandbox_agent.core.intent import Intent
    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.sandbox import Sandbox
    from sandbox_api.lock import LockSign

_log = logging.getLogger(__name__)
_MAX_TRIES_COUNT = 3


@dataclass(frozen=True, slots=True)
class FileSetPlace:
    """What a call names.

    Attributes:
        home: Absolute path of the home.
        format: Name of the format; checked.
        conversation_id: Checked; empty where the call is about all of the format.
        signs: What shows that the conversation is open.
        force: Whether that does not matter.
    """

    home: bytes
    format: str
    conversation_id: str
    signs: Sequence[LockSign] = ()
    force: bool = False


@dataclass(frozen=True, slots=True)
class FileSetResult:
    """What a restore did.

    Attributes:
        recovery: Name of the recovery entry of what was replaced; empty: nothing was.
        replaced: Paths of files that replaced others.
        added: Paths of files where nothing was.
        is_unchanged: Whether all was there already.
    """

    recovery: str = ""
    replaced: list[bytes] = field(default_factory=list)
    added: list[bytes] = field(default_factory=list)
    is_unchanged: bool = False


class FileSet:
    """One restore of files; a context manager. Blocking.

    Leaving it without a commit removes what is staged, and the home when it was made for this; or with `keep` leaves
    both to the next attempt.

    Args:
        sandbox: Where.
        place: What is restored.
        full_durability: Whether the result must survive a power loss.
        owner: User and group id of all that is made; None: the daemon's own.
        expected_bytes: About how much will come; 0: not known.
        restore_id: Names all attempts at this restore; empty: it is the only one.

    Raises:
        ConfigurationError: on entering: `owner`.
        WorkspaceError: on entering: `outside_roots`, `unsafe_path`.
        ConflictError: on entering: `in_use`; `busy`: another attempt is at work.
        LimitError: on entering: `disk_full`.
        OSError: on entering: the home cannot be made or written.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        place: FileSetPlace,
        *,
        full_durability: bool,
        owner: Owner | None,
        expected_bytes: int,
        restore_id: str = "",
    ) -> None:
        self._sandbox = sandbox
        self._place = place
        self._durable = full_durability
        self._owner = owner
        self._expected_bytes = expected_bytes
        self._restore_id = restore_id
        self._kept: KeptFiles | None = None
        self._is_kept = False
        self._recovery = new_entry_name(place.conversation_id)
        self._held = ExitStack()
        self._back = Rollback()

    def __enter__(self) -> Self:
        check_owner(self._owner)
        root, relative = self._sandbox.roots.locate(self._place.home)
        tries_count = 0
        while True:
            tries_count += 1
            try:
                self._open(root, relative)
            except BaseException as error:
                self._back.run(error)
                self._held.close()
                # Another restore that failed may have removed the home that it had made and this one had found.
                if not isinstance(error, FileNotFoundError) or tries_count == _MAX_TRIES_COUNT:
                    raise
            else:
                return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_kept and self._kept is not None:
            self._leave(self._kept)
        failed = error or UnavailableError("io", "what the restore had staged could not be removed")
        self._back.run(failed)
        self._held.close()
        if error is None and getattr(failed, "__notes__", None):
            raise failed

    def keep(self) -> None:
        """From now on a failure leaves what is staged to the next attempt; not to be told once a commit has begun."""
        self._is_kept = True

    def begin_file(
        self,
        path: bytes,
        mode: int,
        *,
        append_lines: bool,
        from_offset: int = 0,
        prefix_sha256: bytes = b"",
        placed_last: bool = False,
    ) -> None:
        """Begin a file; see `FileSetStaging.begin`.

        Args:
            path: Its path.
            mode: Its permission bits.
            append_lines: Whether its content is lines to append.
            from_offset: Behind how much of what an earlier attempt has staged it goes on.
            prefix_sha256: SHA-256 of that; empty: it does not go on.
            placed_last: Whether it takes its place behind those that come later.

        Raises:
            ConflictError: `target_changed`: that is not staged any more.
            SessionError: `protocol`: it cannot go on; those of `FileSetStaging.begin`.
            OutpostError: others of `FileSetStaging.begin`.
        """
        kept, go_on = self._kept, None
        if from_offset or prefix_sha256:
            if kept is None or append_lines:
                raise SessionError("protocol", f"'{printable(path)}' cannot go on: nothing of it may wait")
            go_on = partial(kept.take, path, from_offset, prefix_sha256)
        self._staging.begin(path, mode, is_lines=append_lines, from_offset=from_offset, go_on=go_on)
        self._staging.members[-1].is_last = placed_last

    def feed(self, data: bytes) -> None:
        """Add to the content of the file that was begun last."""
        self._staging.feed(data)

    def end_file(self, sha256: bytes) -> None:
        """End the file that was begun last; see `FileSetStaging.end`."""
        self._staging.end(sha256)

    def commit(self, files_count: int, bytes_count: int) -> FileSetResult:
        """Put all files in place.

        On any failure the old files are in place; lines that were appended stay. A failure that could not be taken
        back has a note, and the next start of a daemon puts the rest of the new files in place.

        Args:
            files_count: Number of files that were sent.
            bytes_count: Size of all together.

        Raises:
            SessionError: `empty`, `incomplete`.
            ConflictError: `target_changed`, `in_use`, `busy`.
            WorkspaceError: `not_a_file`, `mounted`.
            OSError: the system refuses.
        """
        members = self._staging.members
        if not members:
            raise SessionError("empty", "the conversation has no file")
        if (files_count, bytes_count) != (len(members), sum(member.size for member in members)):
            raise SessionError("incomplete", f"not all of {files_count} files and {bytes_count} bytes have arrived")
        staging = self._staging.directory
        staging.finish()
        if self._durable:
            # All content, names and modes at once, and before the lock is taken.
            syscall.syncfs(staging.directory.fd)
        with folder_lock(self._home):
            for member in members:
                if not member.is_lines:
                    check_unchanged(self._home, member.path, member.before)
            check_idle(self._home, self._place.signs, force=self._place.force)
            in_order = sorted(members, key=lambda member: member.is_last)
            result = self._place_all([member for member in in_order if member.staged])
        touch(self._home, (member.path for member in members if not member.staged and not member.is_lines))
        return result

    def _open(self, root: Directory, relative: bytes) -> None:
        missing = Missing(root, [relative] if relative else [])
        self._back.add(missing.remove)
        self._home = self._held.enter_context(root.make_directories(relative, owner=self._owner))
        check_idle(self._home, self._place.signs, force=self._place.force)
        record = FileSetRecord(
            self._home.path,
            self._place.format,
            self._place.conversation_id,
            self._recovery,
            restore_id=self._restore_id,
        )
        lacking_bytes = self._expected_bytes
        if self._restore_id:
            self._kept = self._held.enter_context(KeptFiles(self._sandbox.journal, self._home, record))
            self._back.add(self._kept.discard)
            lacking_bytes -= self._kept.size_bytes
        if lacking_bytes > 0:
            make_room(self._sandbox, self._home, [lacking_bytes])
        # Else a later sweep would place what an earlier restore has decided among the files of this one.
        for told in self._sandbox.journal.sweep(self._sandbox.roots, self._home.path):
            _log.warning("an earlier restore: %s", told)
        self._intent: Intent = self._sandbox.journal.begin(record, durable=self._durable)
        self._held.callback(self._intent.close)
        self._back.add(self._intent.end)
        self._staging = FileSetStaging(self._home, self._intent.staging_name, self._owner)
        self._held.callback(self._staging.directory.close)
        self._back.add(self._staging.directory.remove)
        self._held.callback(self._staging.close_file)

    def _leave(self, kept: KeptFiles) -> None:
        """Leave what is staged to the next attempt; where that cannot be noted it is the sweep's."""
        self._back = Rollback()
        try:
            self._sandbox.journal.keep(self._intent)
            kept.keep()
        except OSError as failure:
            _log.warning("what a broken restore had staged stays for the sweep: %s", failure.strerror)

    def _place_all(self, members: Sequence[Member]) -> FileSetResult:
        """Place what is staged; from its return on the restore has succeeded."""
        lines = [member for member in members if member.is_lines and self._lacks(member)]
        plan = [Planned(member.path, member.staged, member.before) for member in members if not member.is_lines]
        if not plan and not lines:
            self._finish()
            return FileSetResult(is_unchanged=True)
        replaced = [planned.path for planned in plan if planned.old]
        added = [planned.path for planned in plan if not planned.old]
        slot = self._prepare_slot([planned.path for planned in plan]) if replaced else None
        commit = Commit(
            self._home, self._staging.directory.directory, plan, self._intent, owner=self._owner, durable=self._durable
        )
        try:
            with commit.decided([member.path for member in lines]):
                added += [member.path for member in lines if self._append(member)]
                if self._durable:
                    # The moves reach the disk before the old files go to recovery with the staging directory: after a
                    # power loss the sweep looks for them there.
                    syscall.syncfs(self._home.fd)
                if slot is not None:
                    self._set_aside(slot)
        except BaseException:
            if commit.is_stuck:
                self._back = Rollback()
            raise
        self._finish(slot)
        return FileSetResult(self._recovery if slot else "", replaced, added)

    def _lacks(self, member: Member) -> bool:
        """Tell whether a file lacks lines; those of one that does not are not needed any more."""
        data = self._staging.read(member)
        try:
            with reading(self._home, member.path) as fd:
                check_plain(self._home, member.path, fd)
                if missing_lines(fd, data):
                    return True
        except FileNotFoundError:
            if data:
                return True
        self._staging.drop(member)
        return False

    def _append(self, member: Member) -> bool:
        data = self._staging.read(member)
        is_made = append_lines(self._home, member.path, data, self._owner, durable=self._durable)
        self._staging.drop(member)
        return is_made

    def _prepare_slot(self, files: Iterable[bytes]) -> Slot:
        sidecar = Sidecar(self._place.format, b"", is_file_set=True)
        slot = Slot.prepare(self._home, self._recovery, sidecar, self._owner, durable=self._durable, files=files)
        self._held.callback(slot.close)
        self._back.add(slot.discard)
        return slot

    def _set_aside(self, slot: Slot) -> None:
        """Make the staging directory, which has nothing but the old files by now, the recovery entry."""
        staging = self._staging.directory
        if identity_at(self._home, staging.name) != staging.identity:
            raise changed(self._home, staging.name)
        with Rollback() as back:
            try:
                slot.take(self._home, staging.name)
                back.add(lambda: slot.give_back(self._home, staging.name))
            except OSError as error:
                if error.errno not in NO_EXCHANGE:
                    raise
                slot.copy(staging.directory, staging.name)
                back.add(lambda: remove_tree(slot.folder, slot.tree_name))
            if self._durable:
                os.fsync(slot.folder.fd)
                os.fsync(self._home.fd)

    def _finish(self, slot: Slot | None = None) -> None:
        """Let go of the journal's file and of what is left in staging."""
        self._back = Rollback()
        staging = self._staging.directory
        try:
            if slot is None or identity_at(self._home, staging.name) == staging.identity:
                staging.remove()
            self._intent.end()
            if self._kept is not None:
                self._kept.discard()
        except OSError:
            _log.warning("the next start removes %s", printable(self._home.join(staging.name)))
