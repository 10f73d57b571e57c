"""The list of files beside a recovery entry that is a file set.

The tree itself says which of them had been there when it was set aside: the others are missing in it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sandbox_agent.core import recovery_entry
from sandbox_agent.core.file_set_record import MAX_LINES_BYTES, is_reserved
from sandbox_api.errors import SessionError, printable
from sandbox_api.limits import MAX_FILES_COUNT
from sandbox_api.names import order_problem, path_problem

if TYPE_CHECKING:
    from sandbox_agent.core.paths import Directory


def read_files(folder: Directory, name: str) -> list[bytes]:
    """Return the paths of the files of an entry, in the order in which they were put in place.

    Raises:
        SessionError: `not_found`: the file beside the entry names none, or one that no restore would put in place.
        OSError: it cannot be read.
    """
    try:
        # What comes after is an end at most; with more of it there are too many.
        lines = recovery_entry.read_beside(folder, name, MAX_LINES_BYTES).split(b"\n", MAX_FILES_COUNT + 1)
        paths = [] if b"\n" in lines[-1] else [str(json.loads(line)["file"]).encode() for line in lines[1:-1]]
    except (KeyError, TypeError, ValueError, RecursionError):
        paths = []
    # Twice the same path, or one below another, would be moved onto itself.
    is_odd = any(path_problem(path) or is_reserved(path) for path in paths) or order_problem(sorted(paths))
    if is_odd or not 0 < len(paths) <= MAX_FILES_COUNT:
        raise SessionError(
            "not_found",
            f"nothing tells which files the recovery entry {printable(name)} has",
            hint="they are below the recovery folder of the home; copy them by hand",
            facts={"name": printable(name)},
        )
    return paths
