"""One restore in progress, as its journal file tells it.

The file is named by a random number and so is the staging directory. Its lines are JSON objects, added as the restore
goes on; a last line that a crash tore does not count, and what it would have said had not been relied on yet. The
living daemon holds a lock on the file.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from sandbox_agent.core.copy import write_all
from sandbox_agent.core.file_set_record import MAX_LINES_BYTES, FileSetReader
from sandbox_agent.core.file_set_record import VERSION as FILE_SET_VERSION
from sandbox_agent.core.recovery_entry import is_entry_name
from sandbox_agent.core.rollback import Rollback
from sandbox_api.errors import LimitError
from sandbox_api.names import CONVERSATION_ID, RESTORE_ID, STAGING_PREFIX, path_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sandbox_agent.core.file_set_record import FileSetRecord
    from sandbox_agent.core.paths import Directory

VERSION = 1
FILE_NAME = re.compile(r"([0-9a-f]{32})\.json", re.ASCII)
_OPENING_BYTES = 64 << 10
"""Beside the lines that tell of files: room for all others."""

_CREATE_FLAGS = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND


@dataclass(frozen=True, slots=True)
class Record:
    """What a journal file tells.

    Attributes:
        cli_home: Absolute path of the CLI home.
        parent: Folder of the session below it; the staging directory is beside the session.
        conversation_id: Name of the session directory.
        recovery: Name of the recovery entry that the old session becomes; empty when there is none.
        staging_inode: Inode of the staging directory; 0 while that was not written yet.
        old_inode: Inode of the old session; 0 likewise.
        is_replacing: Whether the old session is set aside first, since the file system cannot exchange directories.
        restore_id: Names the restore, so that another attempt may go on with what is staged; empty: none may.
    """

    cli_home: bytes
    parent: bytes
    conversation_id: str
    recovery: str = ""
    staging_inode: int = 0
    old_inode: int = 0
    is_replacing: bool = False
    restore_id: str = ""

    @property
    def may_go_on(self) -> bool:
        """Whether another attempt may use what is staged: the commit had not begun."""
        return bool(self.restore_id) and not self.staging_inode and not self.is_replacing

    @property
    def home(self) -> bytes:
        """Absolute path of the CLI home, by the name that all records have for it."""
        return self.cli_home

    def opening(self) -> dict[str, object]:
        """Return the first line of the journal file."""
        return {
            "version": VERSION,
            "cli_home": os.fsdecode(self.cli_home),
            "parent": os.fsdecode(self.parent),
            "conversation_id": self.conversation_id,
            **({"restore_id": self.restore_id} if self.restore_id else {}),
        }


class Intent:
    """An open, locked journal file.

    Args:
        journal: The journal's directory.
        key: Its random number, 32 hex digits.
        fd: Its descriptor, which this object owns.
    """

    def __init__(self, journal: Directory, key: str, fd: int) -> None:
        self._journal = journal
        self._fd = fd
        self.file_name = f"{key}.json".encode()
        self.staging_name = f"{STAGING_PREFIX}{key}".encode()

    @classmethod
    def create(cls, journal: Directory) -> Intent:
        """Create an empty file under a new name, locked."""
        while True:
            key = uuid4().hex
            intent = cls(journal, key, journal.file(f"{key}.json".encode(), _CREATE_FLAGS))
            with Rollback() as back:
                back.add(intent.end)
                os.fchmod(intent._fd, 0o600)
                fcntl.flock(intent._fd, fcntl.LOCK_EX)
            if os.fstat(intent._fd).st_nlink:
                return intent
            intent.close()  # another daemon's sweep met it before it was locked

    @classmethod
    def take_over(cls, journal: Directory, name: bytes) -> Intent | None:
        """Lock the file that a dead daemon left; None when it is held, gone, or not such a file."""
        intent = cls.look_at(journal, name)
        if intent is None or intent.lock():
            return intent
        intent.close()
        return None

    @classmethod
    def look_at(cls, journal: Directory, name: bytes) -> Intent | None:
        """Open a file without locking it, to be read and closed; None when it is gone, or not such a file."""
        matched = FILE_NAME.fullmatch(os.fsdecode(name))
        if matched is None:
            return None
        try:
            intent = cls(journal, matched[1], journal.file(name, os.O_RDWR | os.O_APPEND))
        except OSError:
            return None  # a link or worse: the sandbox made it, and nobody needs it
        status = os.fstat(intent._fd)
        # What is no file, and a file that another user made, is not ours, whatever it says.
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink:
            return intent
        intent.close()
        return None

    def lock(self) -> bool:
        """Lock the file; tell whether it is locked now and still there."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # The daemon that held it may have removed it a moment ago.
        return os.fstat(self._fd).st_nlink > 0

    def write(self, *, durable: bool, **fields: str | int) -> None:
        """Add a line.

        Args:
            durable: Whether it must survive a power loss when this returns.
            fields: What the line says, in the names of `Record`.
        """
        self.write_lines([fields], durable=durable)

    def write_lines(self, lines: Iterable[Mapping[str, object]], *, durable: bool) -> None:
        """Add several lines.

        Raises:
            LimitError: `max_bytes`: they are more than a sweep would read; nothing is written.
        """
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        if len(data) > MAX_LINES_BYTES:
            raise LimitError(
                "max_bytes",
                f"the names of the files take {len(data)} bytes, more than the {MAX_LINES_BYTES} that can be noted",
                hint="restore fewer files at once",
                facts={"max_bytes": str(MAX_LINES_BYTES)},
            )
        write_all(self._fd, data)
        if durable:
            os.fsync(self._fd)
            os.fsync(self._journal.fd)

    def touch(self) -> int:
        """Begin the file's time anew; return when it changed."""
        os.utime(self._fd)
        return self.changed_ns

    @property
    def changed_ns(self) -> int:
        """When the file changed last."""
        return os.fstat(self._fd).st_mtime_ns

    @property
    def size(self) -> int:
        """Bytes that the file has now."""
        return os.fstat(self._fd).st_size

    def cut(self, size: int, *, durable: bool) -> None:
        """Take back all lines beyond a size that the file had. This needs no room on the disk."""
        os.ftruncate(self._fd, size)
        if durable:
            os.fsync(self._fd)

    def read(self) -> Record | FileSetRecord | None:
        """Return what the file tells; None when it tells nothing that can be acted on."""
        data = os.pread(self._fd, MAX_LINES_BYTES + _OPENING_BYTES, 0)
        fields: dict[str, object] = {}
        files = FileSetReader()
        end = 0
        while (line_end := data.find(b"\n", end)) >= 0:
            try:
                told = json.loads(data[end:line_end])
                if not isinstance(told, dict):
                    return None
                if fields.get("version") != FILE_SET_VERSION or not files.take(told):
                    fields |= told
            except (ValueError, TypeError, KeyError, RecursionError):
                return None
            end = line_end + 1
        return files.record(fields) if fields.get("version") == FILE_SET_VERSION else _checked(fields)

    def end(self) -> None:
        """Remove the file: nothing is left to finish. One that was let go of stays."""
        if self._fd < 0:
            return
        os.unlink(self.file_name, dir_fd=self._journal.fd)
        self.close()

    def close(self) -> None:
        """Let go of the file and its lock, leaving it to the next sweep."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _checked(fields: dict[str, object]) -> Record | None:
    """Return the record when every field could have been written by a restore.

    The state directory is in the sandbox's reach. What passes here still only names things below the roots, and the
    sweep opens each step of the way without following links.
    """
    numbers = [fields.get(name, 0) for name in ("staging_inode", "old_inode")]
    try:
        # Not a text, or one that is no name of a file.
        cli_home, parent = (os.fsencode(fields.get(name, "")) for name in ("cli_home", "parent"))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    conversation_id, recovery, restore_id = (
        str(fields.get(name, "")) for name in ("conversation_id", "recovery", "restore_id")
    )
    staging_inode, old_inode = (number if type(number) is int else -1 for number in numbers)
    if fields.get("version") != VERSION or min(staging_inode, old_inode) < 0:
        return None
    if path_problem(parent) or not CONVERSATION_ID.fullmatch(conversation_id):
        return None
    if recovery and not is_entry_name(recovery, conversation_id):
        return None
    if restore_id and not RESTORE_ID.fullmatch(restore_id):
        return None
    return Record(
        cli_home,
        parent,
        conversation_id,
        recovery,
        staging_inode,
        old_inode,
        is_replacing=fields.get("phase") == "replace",
        restore_id=restore_id,
    )
