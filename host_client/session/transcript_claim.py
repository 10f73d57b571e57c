"""The right to go on with the host's copy of a conversation, which one process has at a time.

The one rule: it ends with whoever has it, also when that is killed, and leaves no file behind unless it is.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from host_client.session.failure import host_failures
from sandbox_api.errors import ConflictError, printable

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from host_client.session.folder import Folder

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Claim:
    """A conversation that is followed; a context manager. Methods block.

    Args:
        folder: Has the states of the format's conversations; stays the caller's and must be open at the end.
        conversation_id: The conversation.

    Raises:
        ConflictError: `busy`: it is followed already.
        LimitError: `disk_full`, `read_only`, `descriptors`.
    """

    def __init__(self, folder: Folder, conversation_id: str) -> None:
        self._folder = folder
        self._name = f".{conversation_id}.follow"
        with host_failures(folder.host_path / self._name):
            while not self._take():
                pass  # who had it took the file away between our opening and locking it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with host_failures(self._folder.host_path / self._name):
            try:
                with suppress(FileNotFoundError):  # somebody removed the whole folder
                    os.unlink(self._name, dir_fd=self._folder.fd)
            finally:
                os.close(self._fd)

    def _take(self) -> bool:
        self._fd = os.open(self._name, _FLAGS, 0o600, dir_fd=self._folder.fd)
        is_ours = False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = os.fstat(self._fd).st_nlink > 0
        except BlockingIOError:
            raise ConflictError(
                "busy",
                f"another follow keeps up {printable(str(self._folder.host_path / self._name))}",
                hint="end that one first",
            ) from None
        finally:
            if not is_ours:
                os.close(self._fd)
        return is_ours
