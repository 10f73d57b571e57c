"""Turn errors of the operating system into failures of the table."""

from __future__ import annotations

import errno
import os

from sandbox_api.errors import LimitError, OutpostError, UnavailableError, WorkspaceError, printable

_LIMITS = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EFBIG: "disk_full",
    errno.EROFS: "read_only",
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
}
_WORKSPACE = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EISDIR: "not_a_file",
    errno.ENXIO: "not_a_file",
    errno.ELOOP: "unsafe_path",
    errno.ENAMETOOLONG: "unsafe_path",
    errno.EACCES: "access",
    errno.EPERM: "access",
    errno.EBUSY: "mounted",
}
_MEANINGS = {
    "disk_full": "no space is left for",
    "read_only": "the file system is read-only at",
    "descriptors": "no file descriptor is left to open",
    "not_found": "nothing is at",
    "not_a_file": "no regular file is at",
    "unsafe_path": "a symbolic link or an unusable name is at",
    "access": "the system refuses access to",
    "mounted": "a file system is mounted at",
}
_HINTS = {"mounted": "unmount it, or mount what it lies in instead"}


def from_os(error: OSError, path: bytes | None = None) -> OutpostError:
    """Return the failure that an `OSError` means.

    Args:
        error: What the system reported. Its text never reaches the message, its number's name does.
        path: The path concerned, when the error does not know it.
    """
    where = error.filename if isinstance(error.filename, bytes | str) else path
    name = printable(os.fsencode(where)) if where is not None else "a file"
    code = error.errno or 0
    facts = {"errno": errno.errorcode.get(code, str(code))}
    if where is not None:
        facts["path"] = name
    if code in _LIMITS:
        return LimitError(_LIMITS[code], f"{_MEANINGS[_LIMITS[code]]} {name}", facts=facts)
    if code in _WORKSPACE:
        reason = _WORKSPACE[code]
        return WorkspaceError(reason, f"{_MEANINGS[reason]} {name}", hint=_HINTS.get(reason, ""), facts=facts)
    return UnavailableError("io", f"the system reported {facts['errno']} for {name}", facts=facts)
