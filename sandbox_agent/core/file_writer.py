"""Write one file so that it appears whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from sandbox_agent.core import syscall
from sandbox_agent.core.copy import write_all
from sandbox_agent.core.file import info_of, not_a_file
from sandbox_agent.core.owner import check_owner, give
from sandbox_agent.core.paths import LinkError
from sandbox_agent.core.scratch import create_scratch, remove_stale
from sandbox_api.errors import ConfigurationError, ConflictError, SessionError, printable

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from sandbox_agent.core.file import Info
    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory, Roots

_DEFAULT_MODE = 0o600


class FileWriter:
    """One file being written; a context manager. Blocking.

    The content gathers in a scratch file on the same file system, in the deepest directory of the path that exists.
    Leaving without `commit` removes it: the old file is in place, and no directory was made. What a killed daemon left
    of one goes with the next write into the same directory.

    Args:
        roots: Where the file goes.
        path: Its absolute path.
        mode: Permission bits; 0: 0600.
        make_parents: Create missing directories of the path, 0700.
        must_not_exist: Refuse a path where something is.
        full_durability: Force content and name to the disk before success.
        owner: User and group id; None: the daemon's own.

    Raises:
        WorkspaceError: on entering: `unsafe_path`, `outside_roots`, `not_a_file`.
        ConfigurationError: on entering: `owner`, `invalid_argument` for a mode beyond 0777.
        ConflictError: on entering: `exists`.
        OSError: on entering: the parent is missing or cannot be written.
    """

    def __init__(
        self,
        roots: Roots,
        path: bytes,
        *,
        mode: int,
        make_parents: bool,
        must_not_exist: bool,
        full_durability: bool,
        owner: Owner | None,
    ) -> None:
        self._roots = roots
        self._path = path
        self._mode = mode or _DEFAULT_MODE
        self._make_parents = make_parents
        self._must_not_exist = must_not_exist
        self._full_durability = full_durability
        self._owner = owner
        self._scratch = b""
        self._digest = hashlib.sha256()
        self._parent: Directory | None = None
        self._missing: list[bytes] = []
        self._fd = -1

    def __enter__(self) -> Self:
        if self._mode & ~0o777:
            raise ConfigurationError("invalid_argument", f"the mode {self._mode:#o} has more than permission bits")
        check_owner(self._owner)
        root, relative = self._roots.locate(self._path)
        if not relative:
            raise not_a_file(root.path)
        parents, _, self._name = relative.rpartition(b"/")
        self._absolute = root.join(relative)
        self._parent = self._open_parent(root, parents)
        try:
            if not self._missing:
                self._check_target(self._parent)
            remove_stale(self._parent)
            self._scratch, self._fd = create_scratch(self._parent)
            # The owner first: giving a file away clears bits of its mode.
            give(self._fd, self._owner)
            os.fchmod(self._fd, self._mode)
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandon()

    def feed(self, data: bytes) -> None:
        """Append to the content."""
        self._digest.update(data)
        write_all(self._fd, data)

    def commit(self, sha256: bytes) -> Info:
        """Put the file in its place and return what is there then.

        Args:
            sha256: Digest the content must have.

        Raises:
            SessionError: `digest_mismatch`.
            WorkspaceError: `not_a_file`, `unsafe_path`: something else took the place meanwhile.
            ConflictError: `exists`.
            OSError: the system refuses; the old file is in place. Parent directories that were made stay.
        """
        if self._parent is None:
            raise ValueError("the writer has not been entered")
        if self._digest.digest() != sha256:
            raise SessionError(
                "digest_mismatch", f"the content for '{printable(self._path)}' does not have the promised SHA-256"
            )
        if self._full_durability:
            os.fsync(self._fd)
        with ExitStack() as held:
            path = [held.enter_context(self._parent.directory(b""))]
            for name in self._missing:
                path.append(held.enter_context(self._find_or_make(path[-1], name)))
            self._check_target(path[-1])
            try:
                self._rename(self._parent, path[-1])
            except OSError as error:
                raise OSError(error.errno, error.strerror, self._absolute) from None
            if self._full_durability:
                for directory in reversed(path):
                    os.fsync(directory.fd)
        return info_of(self._absolute, os.fstat(self._fd))

    def _open_parent(self, root: Directory, parents: bytes) -> Directory:
        """Open the directory of the file, or the deepest one above it that exists when they may be made."""
        path = parents
        while True:
            try:
                return root.directory(path)
            except FileNotFoundError:
                if not self._make_parents or not path:
                    raise
            path, _, name = path.rpartition(b"/")
            self._missing.insert(0, name)

    def _find_or_make(self, parent: Directory, name: bytes) -> Directory:
        try:
            return parent.make_directory(name, owner=self._owner)
        except FileExistsError:  # somebody else made it in between
            return parent.directory(name)

    def _check_target(self, parent: Directory) -> None:
        try:
            mode = parent.stat(self._name).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISLNK(mode):
            raise LinkError(parent.join(self._name))
        if not stat.S_ISREG(mode):
            raise not_a_file(parent.join(self._name))
        if self._must_not_exist:
            raise self._exists()

    def _rename(self, source: Directory, target: Directory) -> None:
        if not self._must_not_exist:
            os.rename(self._scratch, self._name, src_dir_fd=source.fd, dst_dir_fd=target.fd)
        else:
            try:
                syscall.renameat2(source.fd, self._scratch, target.fd, self._name, syscall.RENAME_NOREPLACE)
            except FileExistsError:
                raise self._exists() from None
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOSYS):
                    raise
                self._link(source, target)
        self._scratch = b""

    def _link(self, source: Directory, target: Directory) -> None:
        """Do what RENAME_NOREPLACE does, on a file system without it."""
        try:
            os.link(self._scratch, self._name, src_dir_fd=source.fd, dst_dir_fd=target.fd, follow_symlinks=False)
        except FileExistsError:
            raise self._exists() from None
        os.unlink(self._scratch, dir_fd=source.fd)

    def _exists(self) -> ConflictError:
        return ConflictError(
            "exists", f"'{printable(self._path)}' exists already", facts={"path": printable(self._path)}
        )

    def _abandon(self) -> None:
        """Close all, and remove the scratch file unless it has become the file."""
        parent, self._parent = self._parent, None
        fd, self._fd = self._fd, -1
        if parent is None:
            return
        with parent:
            if fd >= 0:
                os.close(fd)
                if self._scratch:
                    # The sandbox may have been faster.
                    with suppress(FileNotFoundError):
                        os.unlink(self._scratch, dir_fd=parent.fd)
