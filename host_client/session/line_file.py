"""A transcript in a file of the host, held open for reading.

The one rule: a regular file or nothing: no link is followed, and what is neither is refused without waiting for it.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from host_client.session.bundle_memory import file_identity
from host_client.session.compression import decompressed, is_compressed
from host_client.session.failure import host_failures
from host_client.session.line_block import BLOCK_BYTES
from sandbox_api.errors import WorkspaceError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

# O_NONBLOCK: opening a FIFO must not wait for its other end.
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class LineFile:
    """A transcript file. Use it as a context manager, or call `close`.

    Raises:
        WorkspaceError: `not_found`; `not_a_file`; `unsafe_path`: it is a link; `access`.
        LimitError: `descriptors`.
    """

    def __init__(self, host_path: Path) -> None:
        self.host_path = host_path
        with host_failures(host_path):
            self._fd = os.open(host_path, _OPEN_FLAGS)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self.close()
            name = printable(str(host_path))
            raise WorkspaceError("not_a_file", f"no regular file is at {name}", facts={"path": name})
        self._identity = file_identity(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def pieces(self) -> Iterator[bytes]:
        """Yield the content; that of a file whose name ends in `.zst` decompressed.

        Raises:
            SessionError: `corrupt`: it is not made of whole Zstandard frames.
            WorkspaceError: `access`.
            UnavailableError: `io`.
        """
        return decompressed(self._read()) if is_compressed(self.host_path) else self._read()

    def check_unchanged(self) -> None:
        """Make sure that nobody wrote into the file since it was opened.

        Raises:
            WorkspaceError: `changed`.
        """
        if file_identity(self._fd) != self._identity:
            name = printable(str(self.host_path))
            raise WorkspaceError("changed", f"{name} changed while it was read", facts={"path": name})

    def _read(self) -> Iterator[bytes]:
        while True:
            with host_failures(self.host_path):
                data = os.read(self._fd, BLOCK_BYTES)
            if not data:
                return
            yield data
