"""What the operating system reports, as failures of the table: the same in the daemon and on the host."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from host_client.session.failure import host_failure
from sandbox_agent.errors import from_os
from sandbox_api.errors import LimitError, OutpostError, UnavailableError, WorkspaceError

MEANINGS: dict[int, tuple[type[OutpostError], str]] = {
    errno.ENOSPC: (LimitError, "disk_full"),
    errno.EDQUOT: (LimitError, "disk_full"),
    errno.EFBIG: (LimitError, "disk_full"),
    errno.EROFS: (LimitError, "read_only"),
    errno.EMFILE: (LimitError, "descriptors"),
    errno.ENFILE: (LimitError, "descriptors"),
    errno.ENOENT: (WorkspaceError, "not_found"),
    errno.ENOTDIR: (WorkspaceError, "not_found"),
    errno.EISDIR: (WorkspaceError, "not_a_file"),
    errno.ENXIO: (WorkspaceError, "not_a_file"),
    errno.ELOOP: (WorkspaceError, "unsafe_path"),
    errno.ENAMETOOLONG: (WorkspaceError, "unsafe_path"),
    errno.EACCES: (WorkspaceError, "access"),
    errno.EPERM: (WorkspaceError, "access"),
    errno.EIO: (UnavailableError, "io"),
}


@pytest.mark.parametrize("number", MEANINGS, ids=errno.errorcode.get)
def test_a_number_means_one_failure_on_both_sides(number: int) -> None:
    """Class, reason and facts; the path is named escaped, and the system's own words stay out."""
    family, reason = MEANINGS[number]
    text = os.strerror(number)
    for failure in (
        host_failure(OSError(number, text), Path("/a\nb")),
        from_os(OSError(number, text), b"/a\nb"),
        from_os(OSError(number, text, b"/a\nb")),
    ):
        assert (type(failure), failure.reason) == (family, reason)
        assert failure.facts == {"errno": errno.errorcode[number], "path": "/a\\nb"}
        assert "/a\\nb" in failure.message
        assert text not in failure.message
