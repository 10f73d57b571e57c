"""See that a file system has room before anything is written to it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandbox_api.errors import LimitError, printable

if TYPE_CHECKING:
    from collections.abc import Collection

    from sandbox_agent.core.paths import Directory


def check_room(directory: Directory, sizes_bytes: Collection[int]) -> None:
    """Refuse to write files of these sizes where they would not fit.

    Raises:
        LimitError: `disk_full`.
    """
    status = os.fstatvfs(directory.fd)
    block = status.f_frsize
    needed = sum(-(-size // block) for size in sizes_bytes)
    # Blocks that are kept for root are free for root.
    free = status.f_bfree if os.geteuid() == 0 else status.f_bavail
    # File systems without a fixed number of blocks or inodes say 0.
    lacks_blocks = status.f_blocks and needed > free
    lacks_inodes = status.f_files and len(sizes_bytes) > status.f_ffree
    if lacks_blocks or lacks_inodes:
        raise LimitError(
            "disk_full",
            f"{len(sizes_bytes)} file(s) of {sum(sizes_bytes)} bytes do not fit below '{printable(directory.path)}'",
            hint="free some space, for example by pruning recovery",
            facts={
                "path": printable(directory.path),
                "needed_bytes": str(needed * block),
                "free_bytes": str(free * block),
            },
        )
