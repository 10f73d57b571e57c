"""Finish or remove what a restore left when its daemon died.

The one rule: only a `.outpost-session-*` directory below a root and the recovery folder of its CLI home are touched,
and a session's place only to move a staged session into it while it is empty, or to empty it of what the recovery
folder holds byte for byte. Journal files lie in the sandbox's reach; each path of theirs is opened anew beneath the
roots.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sandbox_agent.core import recovery_entry
from sandbox_agent.core.copy import holds_all
from sandbox_agent.core.lock import folder_lock
from sandbox_agent.core.removal import empty_directory, remove_tree
from sandbox_agent.core.rename import NO_EXCHANGE, rename_exclusive
from sandbox_agent.core.slot import Slot
from sandbox_api.errors import WorkspaceError, printable

if TYPE_CHECKING:
    from sandbox_agent.core.intent import Record
    from sandbox_agent.core.paths import Directory, Roots


def finish(roots: Roots, record: Record, staging_name: bytes, *, wait_seconds: float) -> str:
    """Bring one interrupted restore to its end; return what was done, for the log.

    Safe to repeat: what is interrupted again is found again.

    Args:
        roots: Where.
        record: What the journal tells of the restore.
        staging_name: Name of its staging directory.
        wait_seconds: Longest wait for a folder that another daemon, or the sandbox, holds.

    Raises:
        OutpostError: `busy`, a path lies in no root, or `not_found`: the home, in which an old session may wait to be
            set aside, is nowhere, as before it is mounted; nothing was done.
        OSError: something cannot be moved or removed; the rest is left to the next sweep.
    """
    with ExitStack() as stack:
        try:
            cli_home = stack.enter_context(roots.directory(record.cli_home))
            folder = stack.enter_context(cli_home.directory(record.parent))
        except FileNotFoundError:
            if record.old_inode:  # the staging name may stand for the old session by now
                raise not_there(record.cli_home) from None
            return f"nothing is left of {printable(staging_name)}"
        stack.enter_context(folder_lock(folder, wait_seconds=wait_seconds))
        slot = _slot(cli_home, record)
        if slot is not None:
            stack.callback(slot.close)
        told = _Finish(record, folder, staging_name, slot).run()
        if slot is not None:
            slot.discard()
        return told


def not_there(home: bytes) -> WorkspaceError:
    """Return the failure for a home that a note needs and that is nowhere."""
    path = printable(home)
    return WorkspaceError(
        "not_found",
        f"what is to be finished in '{path}' is not there",
        hint="mount the home before the daemon starts; if it was removed on purpose, remove the daemon's note as well",
        facts={"path": path},
    )


def _slot(cli_home: Directory, record: Record) -> Slot | None:
    if not record.recovery:
        return None
    # The folder is made again when it is gone: the old session may still have to go there.
    folder, is_made = recovery_entry.make_folder(cli_home, None)
    return Slot(cli_home, record.recovery, folder, is_folder_made=is_made)


class _Finish:
    def __init__(self, record: Record, folder: Directory, staging_name: bytes, slot: Slot | None) -> None:
        self._record = record
        self._folder = folder
        self._staging_name = staging_name
        self._slot = slot
        self._session_name = record.conversation_id.encode()
        self._path = printable(folder.join(staging_name))

    def run(self) -> str:
        # A copy into the recovery folder that did not get its name was not whole.
        if self._slot is not None:
            remove_tree(self._slot.folder, self._staging_name)
        staged_inode = _inode(self._folder, self._staging_name)
        if not staged_inode:
            return f"{self._path} had been placed or removed"
        if self._slot is None or not self._record.old_inode:
            return self._remove()
        if self._record.is_replacing:
            return self._replace(self._slot)
        return self._set_aside(self._slot) if self._was_exchanged(staged_inode) else self._remove()

    def _was_exchanged(self, staged_inode: int) -> bool:
        """Tell whether the staging name stands for the old session.

        Inodes only: device numbers of overlay and network file systems differ after each mount. Where the inodes differ
        too, the directory goes to recovery, from where nothing is lost.
        """
        return staged_inode != self._record.staging_inode

    def _remove(self) -> str:
        remove_tree(self._folder, self._staging_name)
        return f"removed {self._path}: the session is the old one"

    def _set_aside(self, slot: Slot) -> str:
        # An entry under that name is the finished copy of what is still here.
        if not _inode(slot.folder, slot.tree_name):
            try:
                slot.take(self._folder, self._staging_name)
            except OSError as error:
                if error.errno not in NO_EXCHANGE:
                    raise
                with self._folder.directory(self._staging_name) as original:
                    slot.copy(original, self._staging_name)
        remove_tree(self._folder, self._staging_name)
        self._sync(slot)
        return f"moved {self._path} to recovery {slot.name}: the session is the new one"

    def _replace(self, slot: Slot) -> str:
        if not _inode(slot.folder, slot.tree_name):
            if _inode(self._folder, self._session_name):
                return self._remove()
        elif _inode(self._folder, self._session_name) and not self._remove_copied(slot):
            remove_tree(self._folder, self._staging_name)
            return f"removed {self._path}: the session has changed, what it was is in recovery {slot.name}"
        rename_exclusive(self._folder, self._staging_name, self._folder, self._session_name)
        self._sync(slot)
        return f"placed {self._path}: the session is the new one"

    def _remove_copied(self, slot: Slot) -> bool:
        """Remove what is left of the old session when recovery has all of it; tell whether it had."""
        with (
            self._folder.directory(self._session_name) as original,
            slot.folder.directory(slot.tree_name) as copied,
        ):
            if not holds_all(copied, original):
                return False
            empty_directory(original)
        os.rmdir(self._session_name, dir_fd=self._folder.fd)
        return True

    def _sync(self, slot: Slot) -> None:
        os.fsync(slot.folder.fd)
        os.fsync(self._folder.fd)


def _inode(folder: Directory, name: bytes) -> int:
    """Return the inode of a name, or 0 when nothing is there."""
    try:
        return folder.stat(name).st_ino
    except FileNotFoundError:
        return 0
