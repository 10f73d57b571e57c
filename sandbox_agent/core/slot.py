"""The recovery entry that the session being replaced is about to become.

The small file that tells its place is written first, so that there is never an entry whose place nobody knows.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox_agent.core import recovery_entry, syscall
from sandbox_agent.core.copy import copy_tree, holds_all
from sandbox_agent.core.recovery_entry import FOLDER, Sidecar
from sandbox_agent.core.removal import remove_tree
from sandbox_agent.core.rename import identity_at, rename_exclusive
from sandbox_agent.core.rollback import Rollback
from sandbox_api.errors import ConflictError, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory


class Slot:
    """A place in the recovery folder, by a name that nothing has yet.

    Args:
        cli_home: Holds the recovery folder; not closed by this object.
        name: Name of the entry.
        folder: The recovery folder, which this object owns.
        is_folder_made: Whether it was made for this entry.
    """

    def __init__(self, cli_home: Directory, name: str, folder: Directory, *, is_folder_made: bool = False) -> None:
        self._cli_home = cli_home
        self._is_folder_made = is_folder_made
        self.folder = folder
        self.name = name
        self.tree_name = name.encode()

    @classmethod
    def prepare(
        cls,
        cli_home: Directory,
        name: str,
        sidecar: Sidecar,
        owner: Owner | None,
        *,
        durable: bool,
        files: Iterable[bytes] = (),
    ) -> Slot:
        """Make the recovery folder when it is missing, and write the file beside the entry."""
        folder, is_made = recovery_entry.make_folder(cli_home, owner)
        slot = cls(cli_home, name, folder, is_folder_made=is_made)
        with Rollback() as back:
            back.add(slot.discard)
            recovery_entry.write_sidecar(folder, name, sidecar, owner, durable=durable, files=files)
            if durable:
                os.fsync(folder.fd)
                os.fsync(cli_home.fd)
        return slot

    def take(self, folder: Directory, name: bytes) -> None:
        """Rename a directory into the slot.

        Raises:
            OSError: `EXDEV`: it lies on another file system, or came with the image; see `copy`.
        """
        rename_exclusive(folder, name, self.folder, self.tree_name)

    def give_back(self, folder: Directory, name: bytes) -> None:
        """Rename what is in the slot to where it came from."""
        rename_exclusive(self.folder, self.tree_name, folder, name)

    def copy(self, original: Directory, scratch_name: bytes) -> None:
        """Copy a directory into the slot; it appears there only when it is whole, verified and on disk.

        Args:
            original: The directory.
            scratch_name: Name in the recovery folder under which the copy grows; removed on failure.

        Raises:
            ConflictError: `target_changed`: the original changed meanwhile.
            SessionError: `special_file`: something in it cannot be copied.
        """
        with Rollback() as back:
            scratch = self.folder.make_directory(scratch_name)
            back.add(lambda: remove_tree(self.folder, scratch_name))
            with scratch:
                copy_tree(original, scratch)
                if not holds_all(scratch, original):
                    raise ConflictError(
                        "target_changed",
                        f"'{printable(original.path)}' changed while it was set aside",
                        hint="try again when the CLI is idle",
                    )
                # The original goes next: from here on the copy is all there is, whatever the durability asked for.
                syscall.syncfs(scratch.fd)
            rename_exclusive(self.folder, scratch_name, self.folder, self.tree_name)
            back.add(lambda: rename_exclusive(self.folder, self.tree_name, self.folder, scratch_name))
            os.fsync(self.folder.fd)

    def discard(self) -> None:
        """Let go of the folder; what was made for the slot goes, unless something was set aside."""
        if identity_at(self.folder, self.tree_name) is None:
            recovery_entry.remove_sidecar(self.folder, self.name)
        if self._is_folder_made:
            # Another restore may have put something there by now, or gone through the same.
            with suppress(OSError):
                os.rmdir(FOLDER, dir_fd=self._cli_home.fd)
        self.folder.close()

    def close(self) -> None:
        """Let go of the folder; what is in the slot stays."""
        self.folder.close()
