"""Copy a tree that cannot be renamed, and prove that the copy holds all of it.

Only for what a restore sets aside on a file system that cannot rename it, or exchange it. Links are copied as links and
never followed; modes, times and owners are kept.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sandbox_agent.core.file import not_a_file
from sandbox_agent.core.rollback import Rollback
from sandbox_api.errors import ConflictError, Offender, SessionError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox_agent.core.paths import Directory

_PIECE_BYTES = 1 << 20
_CREATE_FLAGS = os.O_CREAT | os.O_EXCL | os.O_WRONLY


def copy_tree(source: Directory, target: Directory, *, only_missing: bool = False) -> None:
    """Copy everything below one held directory into another.

    Args:
        source: What is copied.
        target: Where to; empty, or partly a copy already.
        only_missing: Leave what is in the target as it is, and add what is not.

    Raises:
        SessionError: `special_file`: something is neither file, directory nor link.
        OSError: something cannot be read or written.
    """
    directories = [b""]
    for path, status in _walk(source):
        try:
            _copy_entry(source, target, path, status)
        except FileExistsError:
            if not only_missing:
                raise
        if stat.S_ISDIR(status.st_mode):
            directories.append(path)
    # Last, since a read-only directory could not be filled.
    for path in reversed(directories):
        with source.directory(path) as original, target.directory(path) as copied:
            _keep_status(os.fstat(original.fd), copied.fd)


def holds_all(copy: Directory, original: Directory) -> bool:
    """Tell whether a copy has everything that is in a tree, byte for byte; it may have more."""
    for path, status in _walk(original):
        try:
            if not _is_same(copy, original, path, status):
                return False
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


def copy_file(folder: Directory, name: bytes, target: Directory, new_name: bytes) -> None:
    """Copy one regular file under a name that must not exist, and see that it did not change meanwhile.

    Raises:
        ConflictError: `target_changed`: it did.
        WorkspaceError: `not_a_file`.
        OSError: it cannot be read or written. In all cases nothing is left of the copy.
    """
    with ExitStack() as stack, Rollback() as back:
        opened = folder.file(name)
        stack.callback(os.close, opened)
        before = os.fstat(opened)
        if not stat.S_ISREG(before.st_mode):
            raise not_a_file(folder.join(name))
        copied = target.file(new_name, _CREATE_FLAGS)
        back.add(lambda: os.unlink(new_name, dir_fd=target.fd))
        stack.callback(os.close, copied)
        _copy_content(opened, copied)
        after = os.fstat(opened)
        if (after.st_size, after.st_ctime_ns) != (before.st_size, before.st_ctime_ns):
            path = printable(folder.join(name))
            raise ConflictError("target_changed", f"'{path}' changed while it was copied", facts={"path": path})
        os.fsync(copied)


def holds_files(top: Directory) -> bool:
    """Tell whether anything but directories is below a directory."""
    return any(not stat.S_ISDIR(status.st_mode) for _, status in _walk(top))


def _walk(top: Directory) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yield every entry below a directory, each directory before what is in it."""
    pending = [b""]
    while pending:
        folder = pending.pop()
        with top.directory(folder) as held:
            for name in held.names():
                path = os.path.join(folder, name)
                status = held.stat(name)
                yield path, status
                if stat.S_ISDIR(status.st_mode):
                    pending.append(path)


def _copy_entry(source: Directory, target: Directory, path: bytes, status: os.stat_result) -> None:
    parent, _, name = path.rpartition(b"/")
    with ExitStack() as stack:
        folder = stack.enter_context(target.directory(parent))
        if stat.S_ISDIR(status.st_mode):
            folder.make_directory(name).close()
        elif stat.S_ISLNK(status.st_mode):
            original = stack.enter_context(source.directory(parent))
            os.symlink(os.readlink(name, dir_fd=original.fd), name, dir_fd=folder.fd)
            if _keeps_owners():
                os.chown(name, status.st_uid, status.st_gid, dir_fd=folder.fd, follow_symlinks=False)
        elif stat.S_ISREG(status.st_mode):
            # The copy is created first: where it exists already, nothing is read.
            copied = folder.file(name, _CREATE_FLAGS)
            stack.callback(os.close, copied)
            opened = source.file(path)
            stack.callback(os.close, opened)
            _copy_content(opened, copied)
        else:
            where = printable(source.join(path))
            raise SessionError(
                "special_file",
                "the existing session cannot be set aside by copying it",
                hint="remove the entry",
                offenders=[Offender(where, "is neither a file, a directory nor a link")],
            )


def _copy_content(opened: int, copied: int) -> None:
    while piece := os.read(opened, _PIECE_BYTES):
        write_all(copied, piece)
    _keep_status(os.fstat(opened), copied)


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of the data."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def _keep_status(status: os.stat_result, fd: int) -> None:
    if _keeps_owners():
        os.fchown(fd, status.st_uid, status.st_gid)
    os.fchmod(fd, stat.S_IMODE(status.st_mode))
    os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))


def _keeps_owners() -> bool:
    return os.geteuid() == 0


def _is_same(copy: Directory, original: Directory, path: bytes, status: os.stat_result) -> bool:
    kind = stat.S_IFMT(status.st_mode)
    if stat.S_IFMT(copy.stat(path).st_mode) != kind:
        return False
    if kind == stat.S_IFLNK:
        return _link_text(copy, path) == _link_text(original, path)
    return kind == stat.S_IFDIR or (kind == stat.S_IFREG and _is_same_content(copy, original, path))


def _link_text(top: Directory, path: bytes) -> bytes:
    parent, _, name = path.rpartition(b"/")
    with top.directory(parent) as folder:
        return os.readlink(name, dir_fd=folder.fd)


def _is_same_content(copy: Directory, original: Directory, path: bytes) -> bool:
    with ExitStack() as stack:
        files = []
        for top in (copy, original):
            files.append(top.file(path))
            stack.callback(os.close, files[-1])
        if os.fstat(files[0]).st_size != os.fstat(files[1]).st_size:
            return False
        while piece := os.read(files[0], _PIECE_BYTES):
            # A file that shrinks meanwhile gives short reads, which differ as well.
            if os.read(files[1], len(piece)) != piece:
                return False
        return not os.read(files[1], 1)
