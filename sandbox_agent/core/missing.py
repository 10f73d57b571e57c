"""The directories on the way to some paths that are missing, so that what is made of them can go again."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox_agent.core.paths import Directory


class Missing:
    """Which directories were missing when this was made.

    Args:
        top: A held directory that all of them lie below; not closed by this object.
        paths: Relative paths of directories; those above them count, too. Empty: the top itself.
    """

    def __init__(self, top: Directory, paths: Iterable[bytes]) -> None:
        self._top = top
        self._paths: dict[bytes, None] = {}
        known: set[bytes] = {b""}
        for path in paths:
            segments = path.split(b"/")
            for count in range(1, len(segments) + 1):
                above = b"/".join(segments[:count])
                if above not in known:
                    known.add(above)
                    self._look(above)

    def remove(self) -> None:
        """Remove again what was missing before, where nothing is in it by now."""
        for path in reversed(self._paths):
            parent, _, name = path.rpartition(b"/")
            # Somebody else uses it by now, or removed it: either way it is not ours any more.
            with suppress(OSError), self._top.directory(parent) as folder:
                os.rmdir(name, dir_fd=folder.fd)

    def _look(self, path: bytes) -> None:
        if path.rpartition(b"/")[0] in self._paths:
            self._paths[path] = None
            return
        try:
            self._top.stat(path)
        except FileNotFoundError:
            self._paths[path] = None
