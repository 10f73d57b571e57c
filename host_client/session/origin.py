"""The working directory that a transcript was recorded in, and the lines that wait until it is known.

The one rule: the origin is the first `cwd` or `payload.cwd` met, line by line; a line that is not JSON names none.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from host_client.session.failure import host_failures
from host_client.session.line import find_directories
from host_client.session.line_block import LineBlocks, part
from host_client.session.line_header import read_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_MEMORY_BYTES = 4 << 20
_READ_BYTES = 256 << 10


def find_origin(block: bytes | bytearray) -> str | None:
    """Return the working directory that the first of these lines that names one names, or None."""
    end = 0
    for found in find_directories(block):
        if found.start < end:
            continue  # the line of the one before, which names none
        start = block.rfind(b"\n", 0, found.start) + 1
        end = block.find(b"\n", found.end) + 1 or len(block)
        for header in read_headers(part(block, start, end)):
            if header.directory is not None:
                return header.directory
    return None


class Held:
    """Whole lines that wait: in memory, or in an unnamed file of the system's temporary folder when they are many."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES)  # noqa: SIM115 - lives as long as this object

    def __del__(self) -> None:
        with suppress(AttributeError):
            self._file.close()

    def add(self, block: bytes | bytearray) -> None:
        """Let lines wait.

        Raises:
            LimitError: `disk_full`.
        """
        with host_failures(Path(tempfile.gettempdir())):
            if len(block) > _MAX_MEMORY_BYTES:
                self._file.rollover()  # or else a very long line would be in memory twice before it goes to the file
            self._file.write(block)

    def take(self) -> Iterator[bytes | bytearray]:
        """Yield what waits, in blocks of whole lines, and let go of it; a second call has none."""
        if self._file.closed:
            return
        with self._file as file, host_failures(Path(tempfile.gettempdir())):
            file.seek(0)
            blocks = LineBlocks()
            while data := file.read(_READ_BYTES):
                yield from blocks.feed(data)
