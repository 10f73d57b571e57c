"""Put a staged session in its place.

The one rule: at every moment the place has the whole old session or the whole new one. Where the file system cannot
exchange two directories there is, for a moment, none; then the journal says so first, and the sweep goes on from there.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox_agent.core.copy import copy_tree, holds_all
from sandbox_agent.core.removal import empty_directory, remove_tree
from sandbox_agent.core.rename import NO_EXCHANGE, exchange, identity_at, rename_exclusive
from sandbox_agent.core.rollback import Rollback
from sandbox_api.errors import ConflictError, printable

if TYPE_CHECKING:
    from sandbox_agent.core.intent import Intent
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.rename import Identity
    from sandbox_agent.core.slot import Slot

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Swap:
    """What is put where. The caller holds the lock of the folder.

    Attributes:
        folder: Folder of the session.
        name: Name of the session in it.
        staging_name: Name of the new session in the same folder.
        new: What the staging name must stand for.
        old: What the session's name must stand for; None: nothing.
        slot: Where the old session goes; None when there is none.
        intent: The journal's file of this restore.
        durable: Whether the result must survive a power loss.
    """

    folder: Directory
    name: bytes
    staging_name: bytes
    new: Identity
    old: Identity | None
    slot: Slot | None
    intent: Intent
    durable: bool

    def place(self) -> bool:
        """Put the new session in place and the old one into its slot; return whether that was not atomic.

        On any failure the old session is in its place and the new one under its staging name.

        Raises:
            ConflictError: `target_changed`: the session's name did not stand for what it should.
            OSError: the file system refused.
        """
        if identity_at(self.folder, self.staging_name) != self.new:
            raise self._changed()
        with Rollback() as back:
            if self.slot is None:
                self._place_first(back)
                return False
            try:
                exchange(self.folder, self.staging_name, self.folder, self.name)
            except FileNotFoundError:
                raise self._changed() from None
            except OSError as error:
                if error.errno not in NO_EXCHANGE:
                    raise
                self._replace(self.slot, back)
                return True
            back.add(lambda: exchange(self.folder, self.staging_name, self.folder, self.name))
            self._set_aside(self.slot, back)
            return False

    def _place_first(self, back: Rollback) -> None:
        try:
            rename_exclusive(self.folder, self.staging_name, self.folder, self.name)
        except FileExistsError:
            raise self._changed() from None
        back.add(lambda: rename_exclusive(self.folder, self.name, self.folder, self.staging_name))
        self._expect(self.folder, self.name, self.new)
        self._sync(self.folder)

    def _set_aside(self, slot: Slot, back: Rollback) -> None:
        """Move the old session, which the exchange put under the staging name, into the slot."""
        self._expect(self.folder, self.name, self.new)
        self._expect(self.folder, self.staging_name, self.old)
        # The exchange reaches the disk before the move does: after a power loss in between, the old session is still
        # under the staging name, where the sweep looks for it.
        self._sync(self.folder)
        if self._take(slot, self.staging_name, back):
            # The new name before the old one's end: a power loss may show both, never neither.
            self._sync(slot.folder)
            self._sync(self.folder)
            return
        with self.folder.directory(self.staging_name) as original:
            slot.copy(original, self.staging_name)
        # From here on the restore has succeeded, whatever becomes of the original of the copy.
        try:
            remove_tree(self.folder, self.staging_name)
        except OSError:
            _log.warning("the sweep at the next start removes %s", printable(self.folder.join(self.staging_name)))

    def _replace(self, slot: Slot, back: Rollback) -> None:
        """Set the old session aside, then put the new one in its place."""
        self.intent.write(durable=self.durable, phase="replace")
        if self._take(slot, self.name, back):
            self._expect(slot.folder, slot.tree_name, self.old)
        else:
            self._copy_old(slot, back)
        rename_exclusive(self.folder, self.staging_name, self.folder, self.name)
        back.add(lambda: rename_exclusive(self.folder, self.name, self.folder, self.staging_name))
        self._expect(self.folder, self.name, self.new)
        self._sync(slot.folder)
        self._sync(self.folder)

    def _take(self, slot: Slot, name: bytes, back: Rollback) -> bool:
        """Rename a directory into the slot; False when it can only be copied."""
        try:
            slot.take(self.folder, name)
        except OSError as error:
            if error.errno in NO_EXCHANGE:
                return False
            raise
        back.add(lambda: slot.give_back(self.folder, name))
        return True

    def _copy_old(self, slot: Slot, back: Rollback) -> None:
        """Copy the old session into the slot, then remove it from its place."""
        self._expect(self.folder, self.name, self.old)
        with self.folder.directory(self.name) as original:
            slot.copy(original, self.staging_name)
            with slot.folder.directory(slot.tree_name) as copied, Rollback() as refill:
                refill.add(lambda: remove_tree(slot.folder, slot.tree_name))
                refill.add(lambda: copy_tree(copied, original, only_missing=True))
                # Once more, since the copy took a while and this cannot be undone without it.
                if not holds_all(copied, original):
                    raise self._changed()
                empty_directory(original)
                os.rmdir(self.name, dir_fd=self.folder.fd)
        back.add(lambda: slot.give_back(self.folder, self.name))

    def _sync(self, folder: Directory) -> None:
        if self.durable:
            os.fsync(folder.fd)

    def _expect(self, folder: Directory, name: bytes, identity: Identity | None) -> None:
        if identity_at(folder, name) != identity:
            raise self._changed()

    def _changed(self) -> ConflictError:
        path = printable(self.folder.join(self.name))
        return ConflictError(
            "target_changed",
            f"{path!r} is not what it was when this restore began",
            hint="another restore or the CLI was faster; look at the session, then restore again",
            facts={"path": path},
        )
