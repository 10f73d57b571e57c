"""Put back what a restore has set aside, so that this can be undone as well."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sandbox_agent.core import recovery_entry
from sandbox_agent.core.copy import copy_tree, holds_all
from sandbox_agent.core.existing import Existing
from sandbox_agent.core.lock import folder_lock
from sandbox_agent.core.placement import Placement
from sandbox_agent.core.recovery_entry import FOLDER, Sidecar, entry_id, is_place
from sandbox_agent.core.removal import remove_tree
from sandbox_agent.core.rename import NO_EXCHANGE, exchange, identity_at, rename_exclusive
from sandbox_agent.core.rollback import Rollback
from sandbox_agent.core.session import only_session
from sandbox_agent.core.target import MadeFolders, Target, check_alone, check_idle, open_session
from sandbox_api.errors import ConflictError, printable

if TYPE_CHECKING:
    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.rename import Identity
    from sandbox_agent.core.sandbox import Place, Sandbox

_log = logging.getLogger(__name__)


class Undo:
    """One undo.

    Args:
        sandbox: Where.
        place: Names the CLI home and the format.
        cli_home: The CLI home; not closed by this object.
        name: Name of the recovery entry.
        force: Replace what a running process has open.
    """

    def __init__(self, sandbox: Sandbox, place: Place, cli_home: Directory, name: str, *, force: bool) -> None:
        self._sandbox = sandbox
        self._place = place
        self._cli_home = cli_home
        self._name = name
        self._force = force

    def run(self) -> tuple[bytes, str]:
        """Do it; return the session's path, and the entry that holds what was in place before."""
        with self._cli_home.directory(FOLDER) as recovery:
            target = self._find_target(recovery)
            check_alone(self._cli_home, self._place, target)
            try:
                kept = self._move(recovery, target)
            except OSError as error:
                if error.errno not in NO_EXCHANGE:
                    raise
                kept = self._copy(recovery, target)
        return self._cli_home.join(target.relative), kept

    def _find_target(self, recovery: Directory) -> Target:
        profile, conversation_id = self._place.profile, entry_id(self._name) or ""
        sidecar = recovery_entry.read_sidecar(recovery, self._name)
        if sidecar is not None and is_place(sidecar.session, profile, conversation_id):
            relative = sidecar.session
        elif profile.buckets:
            # Nothing tells the bucket of an entry that another implementation made, but the session that replaced it.
            relative = only_session(self._cli_home, profile, conversation_id).relative
        else:
            relative = f"{profile.sessions}/{conversation_id}".encode()
        parent, _, name = relative.rpartition(b"/")
        return Target(parent, name)

    def _move(self, recovery: Directory, target: Target) -> str:
        """Exchange the entry and the session, or put the entry where nothing is."""
        entry_name = self._name.encode()
        with ExitStack() as stack, Rollback() as back:
            folders = MadeFolders(self._sandbox, self._place, target)
            back.add(folders.remove)
            cli_home, folder = folders.make(self._owner(recovery))
            stack.enter_context(cli_home)
            stack.enter_context(folder)
            stack.enter_context(folder_lock(folder))
            entry = identity_at(recovery, entry_name)
            session = open_session(self._cli_home, target)
            if session is None:
                rename_exclusive(recovery, entry_name, folder, target.name)
                back.add(lambda: rename_exclusive(folder, target.name, recovery, entry_name))
                self._expect(folder, target.name, entry)
                _sync(folder, recovery)
                recovery_entry.remove_sidecar(recovery, self._name)
                return ""
            stack.enter_context(session)
            check_idle(session, self._place.profile, force=self._force)
            status = os.fstat(session.fd)
            self._make_undoable(recovery, target, back)
            exchange(recovery, entry_name, folder, target.name)
            back.add(lambda: exchange(recovery, entry_name, folder, target.name))
            self._expect(folder, target.name, entry)
            self._expect(recovery, entry_name, (status.st_dev, status.st_ino))
            _sync(folder, recovery)
            return self._name

    def _owner(self, recovery: Directory) -> Owner | None:
        """Return who owns the entry, for what is made on its behalf; None: this process."""
        status = recovery.stat(self._name.encode())
        return None if status.st_uid == os.geteuid() else (status.st_uid, status.st_gid)

    def _make_undoable(self, recovery: Directory, target: Target, back: Rollback) -> None:
        """See that the entry tells its place also when another implementation made it."""
        if recovery_entry.read_sidecar(recovery, self._name) is None:
            recovery_entry.remove_sidecar(recovery, self._name)
            back.add(lambda: recovery_entry.remove_sidecar(recovery, self._name))
            sidecar = Sidecar(self._place.profile.format, target.relative)
            recovery_entry.write_sidecar(recovery, self._name, sidecar, self._owner(recovery), durable=True)

    def _copy(self, recovery: Directory, target: Target) -> str:
        """Restore a copy of the entry, where it cannot be renamed to its place, and remove the entry after that."""
        with ExitStack() as stack:
            directory = open_session(self._cli_home, target)
            existing = Existing(directory, self._place.profile, self._sandbox.limits) if directory else None
            if existing is not None:
                stack.callback(existing.close)
            placement = Placement(
                self._sandbox,
                self._place,
                target,
                existing,
                full_durability=True,
                owner=self._owner(recovery),
                force=self._force,
            )
            with placement, recovery.directory(self._name.encode()) as entry:
                staging = placement.stage()
                copy_tree(entry, staging.directory)
                if not holds_all(staging.directory, entry):
                    raise self._changed(entry.path)
                kept, _ = placement.commit()
        # From here on the undo has succeeded, whatever becomes of the original of the copy.
        try:
            remove_tree(recovery, self._name.encode())
            recovery_entry.remove_sidecar(recovery, self._name)
        except OSError:
            _log.warning("%s was put back and stays in recovery as well", printable(self._name))
        return kept

    def _expect(self, folder: Directory, name: bytes, identity: Identity | None) -> None:
        if identity_at(folder, name) != identity:
            raise self._changed(folder.join(name))

    def _changed(self, path: bytes) -> ConflictError:
        return ConflictError(
            "target_changed",
            f"'{printable(path)}' was replaced while the undo was under way",
            hint="look at the session and at recovery, then try again",
            facts={"path": printable(path)},
        )


def _sync(folder: Directory, recovery: Directory) -> None:
    os.fsync(folder.fd)
    os.fsync(recovery.fd)
