"""What a journal file tells of files that are put in place together: version 2 of its lines.

The first line says where. When everything is decided, one line for each file follows, and a last one with their number:
from then on the files will be put in place. To take that back is to cut those lines off.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox_agent.core.recovery_entry import is_entry_name
from sandbox_api.limits import MAX_FILES_COUNT
from sandbox_api.names import CONVERSATION_ID, KEY_SEGMENT, RESTORE_ID, path_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VERSION = 2
MAX_LINES_BYTES = 32 << 20
"""All lines of a journal file, and those of the file beside a recovery entry; 512 bytes for each of the most files."""


class Move(NamedTuple):
    """One file that changes its place.

    Attributes:
        path: Its path, below the home as below the tree beside it.
        new_inode: Inode in the tree of what goes to the home; 0: nothing, what is at home is taken away.
        old_inode: Inode at home of what goes into the tree; 0: nothing.
    """

    path: bytes
    new_inode: int
    old_inode: int


@dataclass(frozen=True, slots=True)
class FileSetRecord:
    """What a journal file tells.

    Attributes:
        home: Absolute path of the home.
        format: Name of the format.
        conversation_id: The conversation.
        recovery: Name of the recovery entry: the tree of an undo, and what the staging directory of a restore becomes
            when it holds anything in the end.
        is_undo: Whether this is an undo.
        is_decided: Whether the files are to be put in place.
        moves: The files, in their order.
        appends: Paths of files whose staged lines are appended after that.
        restore_id: Names the restore, so that another attempt may go on with what is staged; empty: none may.
    """

    home: bytes
    format: str
    conversation_id: str
    recovery: str
    is_undo: bool = False
    is_decided: bool = False
    moves: Sequence[Move] = ()
    appends: Sequence[bytes] = ()
    restore_id: str = ""

    @property
    def may_go_on(self) -> bool:
        """Whether another attempt may use what is staged: nothing had been decided."""
        return bool(self.restore_id) and not self.is_decided and not self.is_undo

    def opening(self) -> dict[str, object]:
        """Return the first line of the journal file."""
        return {
            "version": VERSION,
            "home": os.fsdecode(self.home),
            "format": self.format,
            "conversation_id": self.conversation_id,
            "recovery": self.recovery,
            "undo": self.is_undo,
            **({"restore_id": self.restore_id} if self.restore_id else {}),
        }


def decision(moves: Sequence[Move], appends: Sequence[bytes]) -> Iterator[dict[str, object]]:
    """Yield the lines that decide."""
    for path, new_inode, old_inode in moves:
        yield {"file": [path.decode(), new_inode, old_inode]}
    for path in appends:
        yield {"append": path.decode()}
    yield {"decided": len(moves) + len(appends)}


def is_reserved(path: bytes) -> bool:
    """Tell whether a path has a name that is this product's own."""
    return any(segment.startswith(b".outpost-") for segment in path.split(b"/"))


class FileSetReader:
    """Read the lines of a journal file of version 2, one after the other.

    Journal files lie in the sandbox's reach: each line must be one that a restore could have written, and what it says
    only names things below a home.
    """

    def __init__(self) -> None:
        self._moves: list[Move] = []
        self._appends: list[bytes] = []
        self._decided = 0

    def take(self, line: Mapping[str, Any]) -> bool:
        """Take a line; tell whether it belongs to the decision.

        Raises:
            TypeError, ValueError, KeyError: it is none that a restore writes.
        """
        if "file" in line:
            path, new_inode, old_inode = line["file"]
            self._moves.append(Move(_path(path), _inode(new_inode), _inode(old_inode)))
        elif "append" in line:
            self._appends.append(_path(line["append"]))
        elif "decided" in line:
            self._decided = _inode(line["decided"])
        else:
            return False
        if len(self._moves) + len(self._appends) > MAX_FILES_COUNT:
            raise ValueError(line)
        return True

    def record(self, fields: Mapping[str, Any]) -> FileSetRecord | None:
        """Return the record of all lines, the others' fields given; None when there cannot be such a one."""
        count = len(self._moves) + len(self._appends)
        texts = [fields.get(name) for name in ("home", "format", "conversation_id", "recovery")]
        if (self._decided and self._decided != count) or not all(isinstance(text, str) for text in texts):
            return None
        home, format_name, conversation_id, recovery = map(str, texts)
        if not KEY_SEGMENT.fullmatch(format_name) or not CONVERSATION_ID.fullmatch(conversation_id):
            return None
        restore_id = fields.get("restore_id", "")
        if not isinstance(restore_id, str) or (restore_id and not RESTORE_ID.fullmatch(restore_id)):
            return None
        if not is_entry_name(recovery, conversation_id):
            return None
        try:
            path = os.fsencode(home)
        except ValueError:
            return None
        return FileSetRecord(
            path,
            format_name,
            conversation_id,
            recovery,
            is_undo=fields.get("undo") is True,
            is_decided=self._decided > 0,
            moves=self._moves,
            appends=self._appends,
            restore_id=restore_id,
        )


def _path(told: object) -> bytes:
    if not isinstance(told, str):
        raise TypeError(told)
    path = told.encode()
    if path_problem(path) or is_reserved(path):
        raise ValueError(told)
    return path


def _inode(told: object) -> int:
    if type(told) is not int or told < 0:
        raise ValueError(told)
    return told
