"""Finish, or remove, what a restore or an undo of files left when its daemon died.

The one rule: before the decision nothing of the home has changed, and what is staged is removed; after it all files are
moved, and what the tree has then goes to recovery. Journal files lie in the sandbox's reach: their paths only lead
below a home, each step of which is opened anew without following links, and what is moved is never removed.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sandbox_agent.core import recovery_entry, syscall
from sandbox_agent.core.copy import holds_files
from sandbox_agent.core.file_set_append import MAX_APPEND_BYTES, append_lines, check_plain
from sandbox_agent.core.file_set_move import inode_at, owner_of, settle
from sandbox_agent.core.file_set_target import reading
from sandbox_agent.core.lock import folder_lock
from sandbox_agent.core.recovery_entry import FOLDER, Sidecar
from sandbox_agent.core.removal import remove_tree
from sandbox_agent.core.rename import NO_EXCHANGE
from sandbox_agent.core.slot import Slot
from sandbox_agent.core.sweep import not_there
from sandbox_api.errors import OutpostError, printable

if TYPE_CHECKING:
    from sandbox_agent.core.file_set_record import FileSetRecord
    from sandbox_agent.core.paths import Directory, Roots


def finish_files(roots: Roots, record: FileSetRecord, staging_name: bytes, *, wait_seconds: float) -> str:
    """Bring one interrupted restore or undo to its end; return what was done, for the log.

    Safe to repeat: what is interrupted again is found again.

    Args:
        roots: Where.
        record: What the journal tells.
        staging_name: Name of the staging directory of a restore.
        wait_seconds: Longest wait for a home that another daemon, or the sandbox, holds.

    Raises:
        OutpostError: `busy`, a path lies in no root, or `not_found`: the files to be placed are nowhere, as before the
            home is mounted; nothing was done.
        OSError: something cannot be moved or removed; the rest is done, that is left to the next sweep.
    """
    try:
        home = roots.directory(record.home)
    except FileNotFoundError:
        if record.is_decided:
            raise not_there(record.home) from None
        return f"nothing is left of {printable(staging_name)}"
    with home, folder_lock(home, wait_seconds=wait_seconds):
        return _finish_undo(home, record) if record.is_undo else _finish_restore(home, record, staging_name)


def close_undo(recovery: Directory, name: str, tree: Directory) -> bool:
    """Make the tree of an undo whose files are moved the entry of what was in place; tell whether anything was.

    Args:
        recovery: The recovery folder.
        name: Name of the entry.
        tree: Its tree.
    """
    if holds_files(tree):
        # It was set aside now: the time at which its status changed says so.
        os.fchmod(tree.fd, os.fstat(tree.fd).st_mode & 0o777)
        os.fsync(tree.fd)
        return True
    # The tree goes last: it is what the sweep looks for.
    recovery_entry.remove_sidecar(recovery, name)
    remove_tree(recovery, name.encode())
    os.fsync(recovery.fd)
    return False


def _finish_undo(home: Directory, record: FileSetRecord) -> str:
    if not record.is_decided:
        return f"an undo of {record.recovery} had not begun"
    with ExitStack() as stack:
        try:
            recovery = stack.enter_context(home.directory(FOLDER))
            tree = stack.enter_context(recovery.directory(record.recovery.encode()))
        except FileNotFoundError:
            _check_placed(home, record)
            return f"an undo of {record.recovery} was finished, or it was removed"
        _settle(home, tree, record)
        close_undo(recovery, record.recovery, tree)
    return f"finished an undo of {record.recovery}"


def _finish_restore(home: Directory, record: FileSetRecord, staging_name: bytes) -> str:
    path = printable(home.join(staging_name))
    if record.is_decided and not inode_at(home, staging_name):
        _check_placed(home, record)
    # The folder is made again when it is gone: old files may still have to go there.
    folder, is_made = recovery_entry.make_folder(home, None)
    slot = Slot(home, record.recovery, folder, is_folder_made=is_made)
    try:
        # A copy into the recovery folder that did not get its name was not whole.
        remove_tree(slot.folder, staging_name)
        if not inode_at(home, staging_name):
            told = f"{path} had been placed or removed"
        elif not record.is_decided:
            remove_tree(home, staging_name)
            told = f"removed {path}: the files are the old ones"
        else:
            with home.directory(staging_name) as tree:
                _settle(home, tree, record)
                _set_aside(home, tree, record, slot, staging_name)
            told = f"placed {path}: the files are the new ones"
        slot.discard()
    finally:
        slot.close()
    return told


def _check_placed(home: Directory, record: FileSetRecord) -> None:
    """Refuse to take for finished what has not left a single file in the home.

    Raises:
        WorkspaceError: `not_found`.
    """
    placed = [move for move in record.moves if move.new_inode]
    if placed and not any(inode_at(home, move.path) == move.new_inode for move in placed):
        raise not_there(record.home)


def _settle(home: Directory, tree: Directory, record: FileSetRecord) -> None:
    """Move all files that are not moved yet, and append what is to be appended.

    Raises:
        OSError, OutpostError: the first failure; the others were tried all the same.
    """
    failures: list[Exception] = []
    for index, move in enumerate(record.moves):
        try:
            settle(home, tree, index, move)
        except (OSError, OutpostError) as error:
            failures.append(error)
    for path in record.appends:
        try:
            _append(home, tree, path)
        except (OSError, OutpostError) as error:
            failures.append(error)
    if failures:
        raise failures[0]
    syscall.syncfs(home.fd)


def _append(home: Directory, tree: Directory, path: bytes) -> None:
    try:
        with reading(tree, path) as fd:
            check_plain(tree, path, fd)
            owner = owner_of(os.fstat(fd))
            data = os.read(fd, MAX_APPEND_BYTES)
    except FileNotFoundError:
        return
    append_lines(home, path, data, owner, durable=True)
    remove_tree(tree, path)


def _set_aside(home: Directory, tree: Directory, record: FileSetRecord, slot: Slot, staging_name: bytes) -> None:
    """Make what is in staging the recovery entry, when that is anything but directories."""
    # An entry under that name is the finished copy of what is still here.
    if holds_files(tree) and not inode_at(slot.folder, slot.tree_name):
        if recovery_entry.read_sidecar(slot.folder, slot.name) is None:
            # Nothing was to be replaced, and something has been since.
            recovery_entry.remove_sidecar(slot.folder, slot.name)
            sidecar = Sidecar(record.format, b"", is_file_set=True)
            paths = [move.path for move in record.moves]
            recovery_entry.write_sidecar(slot.folder, slot.name, sidecar, None, durable=True, files=paths)
        try:
            slot.take(home, staging_name)
        except OSError as error:
            if error.errno not in NO_EXCHANGE:
                raise
            slot.copy(tree, staging_name)
    remove_tree(home, staging_name)
    os.fsync(slot.folder.fd)
    os.fsync(home.fd)
