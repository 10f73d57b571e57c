"""Room on the disk for a restore, also where others' broken attempts have taken it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox_agent.core.disk import check_room
from sandbox_api.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Collection

    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.sandbox import Sandbox


def make_room(sandbox: Sandbox, directory: Directory, sizes_bytes: Collection[int]) -> None:
    """Refuse to write files of these sizes where they would not fit, even without what waits to be gone on with.

    Where they fit only without that, all of it is removed.

    Raises:
        LimitError: `disk_full`.
    """
    try:
        check_room(directory, sizes_bytes)
    except LimitError:
        # What waits for another attempt, somewhere, must not keep this restore from its room.
        if not sandbox.journal.kept.give_up():
            raise
        sandbox.journal.sweep(sandbox.roots)
        check_room(directory, sizes_bytes)
