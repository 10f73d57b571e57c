"""What a bundle holds: entries in order, their checks and the bundle digest. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from sandbox_api.errors import MAX_OFFENDERS_COUNT, Offender, SessionError, printable
from sandbox_api.names import order_problem, path_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sandbox_api.limits import Limits

DIGEST_BYTES = hashlib.sha256().digest_size


class Entry(NamedTuple):
    """One file of a bundle. A tuple, since thousands are made at once.

    Attributes:
        path: Session-relative path, UTF-8 bytes.
        size: Bytes of the content.
        sha256: SHA-256 of the content, 32 bytes; empty while it is not known yet (a capture in progress).
        from_offset: Where the payload's part of the content starts; `size` when the payload has none of it.
    """

    path: bytes
    size: int
    sha256: bytes = b""
    from_offset: int = 0

    @property
    def sent_bytes(self) -> int:
        """Number of content bytes in the payload."""
        return self.size - self.from_offset


def bundle_digest(entries: Iterable[Entry]) -> bytes:
    """Return the SHA-256 that names a bundle's whole content: paths, sizes and contents, in order.

    For each entry: decimal length of the path, space, path, space, decimal size, space, 64 hex digits, newline.
    """
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(b"%d %b %d %b\n" % (len(entry.path), entry.path, entry.size, entry.sha256.hex().encode()))
    return digest.digest()


def check_entries(entries: Sequence[Entry], limits: Limits, *, complete: bool) -> None:
    """Refuse a manifest that must not reach the disk.

    Args:
        entries: The manifest as received.
        limits: Limits that hold for this bundle.
        complete: Whether every entry must carry its digest and be sent whole (a restore).

    Raises:
        SessionError: `unsafe_name` with all offenders, `protocol` for order, duplicates and numbers, `empty`.
        LimitError: `max_files`, `max_bytes`.
    """
    limits.check(bytes_count=0, files_count=len(entries))
    if not entries:
        raise SessionError("empty", "the bundle has no file")
    unsafe = [(entry.path, problem) for entry in entries if (problem := path_problem(entry.path))]
    if unsafe:
        raise SessionError(
            "unsafe_name",
            f"{len(unsafe)} path(s) of the bundle are not usable",
            offenders=(Offender(printable(path), problem) for path, problem in unsafe[:MAX_OFFENDERS_COUNT]),
            offender_count=len(unsafe),
        )
    if found := order_problem(entry.path for entry in entries):
        path, problem = found
        raise SessionError("protocol", f"the path '{printable(path)}' of the bundle {problem}")
    for entry in entries:
        if (
            entry.from_offset > entry.size
            or (complete and entry.from_offset)
            or len(entry.sha256) not in (0, DIGEST_BYTES)
        ):
            raise SessionError("protocol", f"the manifest's numbers for '{printable(entry.path)}' are not possible")
        if not entry.sha256 and (complete or entry.from_offset == entry.size > 0):
            raise SessionError("protocol", f"the manifest has no digest for '{printable(entry.path)}'")
    limits.check(bytes_count=sum(entry.size for entry in entries), files_count=len(entries))
