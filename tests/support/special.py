"""Entries of a directory that are no regular files."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def make_special(path: Path, kind: str) -> Path:
    """Make a `fifo`, a `socket` or a `directory` at a path, and return the path."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    else:
        path.mkdir()
    return path
