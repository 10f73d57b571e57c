"""Files of a download on the host: written aside, then renamed, below a directory that is held by its descriptor.

Names that came from a sandbox are used one segment at a time and no link is followed below the base directory.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from host_client.session.failure import host_failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Placement:
    """One file that takes its place below `base` when it is complete. Methods block.

    Until `commit` what was there stays; `close` removes what was not committed.

    Args:
        base: An existing directory.
        segments: Directories below it, and the name of the file.
    """

    def __init__(self, base: Path, segments: Sequence[str]) -> None:
        self._base = base
        self._directories = segments[:-1]
        self._name = segments[-1]
        self._host_path = base.joinpath(*segments)
        self._scratch = f".outpost-download-{secrets.token_hex(8)}"
        self._directory = -1
        self._file = -1

    def open(self) -> None:
        """Make missing directories, 0700, and the scratch file.

        Raises:
            WorkspaceError: `unsafe_path`: a directory below the base is a link; `access`.
            LimitError: `disk_full`, `descriptors`, `read_only`.
        """
        with self._failures():
            self._directory = os.open(self._base, _DIRECTORY_FLAGS)
            for segment in self._directories:
                with suppress(FileExistsError):  # another file of the directory was first
                    os.mkdir(segment, 0o700, dir_fd=self._directory)
                held = self._directory
                self._directory = os.open(segment, _DIRECTORY_FLAGS | os.O_NOFOLLOW, dir_fd=held)
                os.close(held)
            self._file = os.open(self._scratch, _FILE_FLAGS, 0o600, dir_fd=self._directory)

    def write(self, data: bytes) -> None:
        """Append to the file.

        Raises:
            LimitError: `disk_full`.
        """
        with self._failures():
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]

    def commit(self, mode: int) -> None:
        """Force the file to disk and put it in its place.

        Raises:
            WorkspaceError: `not_a_file`: a directory is in its place.
        """
        with self._failures():
            os.fchmod(self._file, mode)
            os.fsync(self._file)
            os.rename(self._scratch, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
            os.close(self._file)
            self._file = -1

    def close(self) -> None:
        """Let go of the directory, and of the file unless it was committed."""
        if self._file >= 0:
            os.close(self._file)
            os.unlink(self._scratch, dir_fd=self._directory)
        if self._directory >= 0:
            os.close(self._directory)
        self._file = self._directory = -1

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise host_failure(error, self._host_path) from error
