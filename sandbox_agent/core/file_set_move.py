"""Exchange files of a home with those of a tree beside it: steps that can be repeated and taken back.

The one rule: what a name stands for goes somewhere and is never lost, and the journal's inodes alone tell whether a
file was moved. Where the file system cannot exchange two files, the old one first gets a second name in the tree; at
every moment the home has the old file or the new one.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from sandbox_agent.core.copy import copy_file
from sandbox_agent.core.removal import remove_tree
from sandbox_agent.core.rename import NO_EXCHANGE, exchange, rename_exclusive

if TYPE_CHECKING:
    from sandbox_agent.core.file_set_record import Move
    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory

# A file system without links, a file that has as many as it can or is another user's, or another mount.
_NO_LINK = (errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)


def inode_at(folder: Directory, name: bytes) -> int:
    """Return the inode of a name, or 0 when nothing is there.

    Inodes only: device numbers of overlay and network file systems differ after each mount.
    """
    try:
        return folder.stat(name).st_ino
    except FileNotFoundError:
        return 0


def swap(folder: Directory, held: Directory, name: bytes, index: int) -> None:
    """Exchange a file of a directory of the home with the file of the same name in a directory of the tree.

    Args:
        folder: The directory of the home.
        held: The directory of the tree.
        name: The name.
        index: Number of the move; names what is in between, where the file system cannot exchange.

    Raises:
        OSError: it was not done, or `repair` finishes it.
    """
    try:
        exchange(held, name, folder, name)
    except OSError as error:
        if error.errno not in NO_EXCHANGE:
            raise
        scratch = _scratch(index)
        _duplicate(folder, name, held, scratch)
        try:
            _rename(held, name, folder, name)
        except OSError:
            remove_tree(held, scratch)
            raise
        _rename(held, scratch, held, name)


def repair(held: Directory, name: bytes, index: int) -> None:
    """Finish or take back an exchange that was interrupted, where the file system does not do it in one step."""
    scratch = _scratch(index)
    if not inode_at(held, scratch):
        return
    if inode_at(held, name):
        remove_tree(held, scratch)
    else:
        rename_exclusive(held, scratch, held, name)


def settle(home: Directory, tree: Directory, index: int, move: Move) -> None:
    """Bring a file to where a decision wants it, whatever was done of that before; safe to repeat.

    What has come to the file's place meanwhile goes into the tree.

    Raises:
        OSError: it cannot be moved.
    """
    parent, _, name = move.path.rpartition(b"/")
    try:
        if move.new_inode:
            with tree.directory(parent) as held:
                _bring(home, held, index, move)
        else:
            with home.directory(parent) as folder:
                _take_away(folder, tree, name, move)
    except FileNotFoundError:
        # Without its directory the file is not there either: it has been moved.
        if _is_there(tree if move.new_inode else home, parent):
            raise


def _bring(home: Directory, held: Directory, index: int, move: Move) -> None:
    parent, _, name = move.path.rpartition(b"/")
    repair(held, name, index)
    if inode_at(held, name) != move.new_inode:
        return
    with home.make_directories(parent, owner=owner_of(held.stat(name))) as folder:
        try:
            rename_exclusive(held, name, folder, name)
        except FileExistsError:
            swap(folder, held, name, index)


def _take_away(folder: Directory, tree: Directory, name: bytes, move: Move) -> None:
    if inode_at(folder, name) != move.old_inode:
        return
    with tree.make_directories(move.path.rpartition(b"/")[0], owner=owner_of(folder.stat(name))) as held:
        rename_exclusive(folder, name, held, name)


def owner_of(status: os.stat_result) -> Owner | None:
    """Return who owns a file, for what is made on its behalf; None: this process."""
    return None if status.st_uid == os.geteuid() else (status.st_uid, status.st_gid)


def _is_there(top: Directory, path: bytes) -> bool:
    try:
        top.directory(path).close()
    except FileNotFoundError:
        return False
    return True


def _scratch(index: int) -> bytes:
    return b".outpost-old-%d" % index


def _rename(folder: Directory, name: bytes, new_folder: Directory, new_name: bytes) -> None:
    try:
        os.rename(name, new_name, src_dir_fd=folder.fd, dst_dir_fd=new_folder.fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, new_folder.join(new_name)) from None


def _duplicate(folder: Directory, name: bytes, held: Directory, scratch: bytes) -> None:
    """Give a file a second name in a directory of the tree, or a copy where it cannot have one."""
    try:
        os.link(name, scratch, src_dir_fd=folder.fd, dst_dir_fd=held.fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise OSError(error.errno, error.strerror, folder.join(name)) from None
        copy_file(folder, name, held, scratch)
