"""Turn errors of the operating system about the host's own files into failures of the table."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox_api.errors import LimitError, OutpostError, SessionError, UnavailableError, WorkspaceError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path, PurePath

_FAMILIES: dict[int, tuple[type[OutpostError], str, str]] = {
    errno.ENOSPC: (LimitError, "disk_full", "no space is left for"),
    errno.EDQUOT: (LimitError, "disk_full", "no quota is left for"),
    errno.EFBIG: (LimitError, "disk_full", "the file system cannot hold"),
    errno.EROFS: (LimitError, "read_only", "the file system is read-only at"),
    errno.EMFILE: (LimitError, "descriptors", "no file descriptor is left to open"),
    errno.ENFILE: (LimitError, "descriptors", "no file descriptor is left to open"),
    errno.ENOENT: (WorkspaceError, "not_found", "nothing is at"),
    errno.ENOTDIR: (WorkspaceError, "not_found", "no directory is at"),
    errno.EISDIR: (WorkspaceError, "not_a_file", "no regular file is at"),
    errno.ENXIO: (WorkspaceError, "not_a_file", "no regular file is at"),
    errno.ELOOP: (WorkspaceError, "unsafe_path", "a symbolic link is at"),
    errno.ENAMETOOLONG: (WorkspaceError, "unsafe_path", "a name is too long in"),
    errno.EACCES: (WorkspaceError, "access", "the system refuses access to"),
    errno.EPERM: (WorkspaceError, "access", "the system refuses access to"),
}

_HINTS = {
    errno.ENOSPC: "make room there, or name another place",
    errno.EDQUOT: "make room there, raise the quota, or name another place",
    errno.EFBIG: "name a place on a file system that can hold larger files",
    errno.EROFS: "name a place that can be written to",
}


def host_failure(error: OSError, host_path: Path) -> OutpostError:
    """Return the failure that an `OSError` about a path of the host means; the system's own text stays out of it."""
    code = error.errno or 0
    name = printable(str(host_path))
    facts = {"errno": errno.errorcode.get(code, str(code)), "path": name}
    if code not in _FAMILIES:
        return UnavailableError("io", f"the system reported {facts['errno']} for {name}", facts=facts)
    family, reason, meaning = _FAMILIES[code]
    return family(reason, f"{meaning} {name}", hint=_HINTS.get(code, ""), facts=facts)


@contextmanager
def host_failures(host_path: Path) -> Iterator[None]:
    """Turn errors of the operating system within the block into failures about that path."""
    try:
        yield
    except OSError as error:
        raise host_failure(error, host_path) from None


@contextmanager
def named_failures(path: PurePath) -> Iterator[None]:
    """Name the file in failures within the block that are about its content: damaged, or more than may be."""
    try:
        yield
    except (SessionError, LimitError) as error:
        if error.reason not in ("corrupt", "max_bytes") or "path" in error.facts:
            raise
        name = printable(str(path))
        raise type(error)(
            error.reason, f"{name}: {error.message}", hint=error.hint, facts={**error.facts, "path": name}
        ) from None
