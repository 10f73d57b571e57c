"""What lies in a recovery folder, and what of it is removed: the same for sessions and for files.

The one rule: what cannot be attributed to a conversation is left alone, and nothing is removed that could still be
undone to half of what it was.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox_agent.core import recovery_entry
from sandbox_agent.core.recovery_entry import FOLDER, entry_id
from sandbox_agent.core.removal import remove_tree
from sandbox_agent.core.rename import identity_at, rename_exclusive
from sandbox_api.errors import ConfigurationError, SessionError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.recovery_entry import Sidecar
    from sandbox_agent.core.rename import Identity

_PRUNED_PREFIX = ".outpost-pruned-"


@dataclass(frozen=True, slots=True)
class RecoveryEntry:
    """One tree that was set aside.

    Attributes:
        name: Its name in the recovery folder.
        conversation_id: Its conversation.
        sidecar: What the file beside it says; None: nothing usable.
        set_aside_ns: When it was set aside.
        identity: Device and inode of the tree.
    """

    name: str
    conversation_id: str
    sidecar: Sidecar | None
    set_aside_ns: int
    identity: Identity


def entries(home: Directory, conversation_id: str) -> list[RecoveryEntry]:
    """Return the entries of a conversation, or of all where it is empty, newest first.

    Raises:
        OSError: the recovery folder cannot be read; `LinkError` where a link is met.
    """
    try:
        folder = home.directory(FOLDER)
    except FileNotFoundError:
        return []
    with folder:
        names = [name.decode("ascii", "replace") for name in folder.names()]
        pruned = {name.removeprefix(_PRUNED_PREFIX) for name in names if name.startswith(_PRUNED_PREFIX)}
        found = [_entry(folder, name, conversation_id) for name in names if name not in pruned]
    return sorted((entry for entry in found if entry), key=lambda entry: (-entry.set_aside_ns, entry.name))


def no_entry(name: str, conversation_id: str) -> SessionError:
    """Return the failure that says that there is no such entry."""
    return SessionError(
        "not_found",
        f"recovery has no entry {printable(name) or 'of ' + conversation_id}",
        hint="list recovery to see what it has",
        facts={"name": printable(name)},
    )


def check_rules(keep_count: int | None, older_than_seconds: int | None) -> None:
    """Refuse to remove anything where no rule says what.

    Raises:
        ConfigurationError: `invalid_argument`.
    """
    if keep_count is None and older_than_seconds is None:
        raise ConfigurationError(
            "invalid_argument",
            "no rule says what to remove from recovery",
            hint="give keep_count, older_than_seconds, or both",
        )


def prune(
    home: Directory, found: Sequence[RecoveryEntry], keep_count: int | None, older_than_seconds: int | None
) -> list[str]:
    """Remove what any rule says of some entries, and finish what an interrupted removal began; return the names.

    Interrupted, it can be repeated: an entry is first renamed, so that none can be undone that is half removed.

    Args:
        home: Has the recovery folder.
        found: The entries, newest first.
        keep_count: Keep that many of the newest of each conversation.
        older_than_seconds: Remove those set aside longer ago.

    Raises:
        OSError: something cannot be removed; what was removed before stays removed.
    """
    try:
        folder = home.directory(FOLDER)
    except FileNotFoundError:
        return []
    with folder:
        _remove_pruned(folder)
        return [entry.name for entry in _doomed(found, keep_count, older_than_seconds) if _prune(folder, entry)]


def _entry(folder: Directory, name: str, wanted_id: str) -> RecoveryEntry | None:
    conversation_id = entry_id(name)
    if conversation_id is None or wanted_id not in ("", conversation_id):
        return None
    try:
        status = folder.stat(name.encode())
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    sidecar = recovery_entry.read_sidecar(folder, name)
    return RecoveryEntry(name, conversation_id, sidecar, status.st_ctime_ns, (status.st_dev, status.st_ino))


def _doomed(
    found: Sequence[RecoveryEntry], keep_count: int | None, older_than_seconds: int | None
) -> list[RecoveryEntry]:
    now_ns = time.time_ns()
    counts: dict[str, int] = {}
    doomed = []
    for entry in found:
        counts[entry.conversation_id] = counts.get(entry.conversation_id, 0) + 1
        is_surplus = keep_count is not None and counts[entry.conversation_id] > keep_count
        is_old = older_than_seconds is not None and now_ns - entry.set_aside_ns > older_than_seconds * 10**9
        if is_surplus or is_old:
            doomed.append(entry)
    return doomed


def _prune(folder: Directory, entry: RecoveryEntry) -> bool:
    """Remove one entry; tell whether it was still the one that was looked at.

    An undo puts the session that was in place under the name of the entry it took: that one is not to be removed.
    """
    name = entry.name.encode()
    pruned = _PRUNED_PREFIX.encode() + name
    try:
        rename_exclusive(folder, name, folder, pruned)
    except FileNotFoundError:
        return False
    except OSError as error:
        # A tree that came with an overlay's image cannot be renamed: a file of that name says that it is no entry any
        # more, and it is removed where it is.
        if error.errno != errno.EXDEV:
            raise
        os.close(folder.file(pruned, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    else:
        if identity_at(folder, pruned) != entry.identity:
            rename_exclusive(folder, pruned, folder, name)
            return False
    _finish_prune(folder, entry.name, pruned)
    return True


def _finish_prune(folder: Directory, name: str, pruned: bytes) -> None:
    remove_tree(folder, name.encode())
    recovery_entry.remove_sidecar(folder, name)
    # Last, since it tells of the others.
    remove_tree(folder, pruned)


def _remove_pruned(folder: Directory) -> None:
    """Finish what an interrupted prune has begun."""
    for name in folder.names():
        text = os.fsdecode(name)
        if text.startswith(_PRUNED_PREFIX) and entry_id(text.removeprefix(_PRUNED_PREFIX)):
            _finish_prune(folder, text.removeprefix(_PRUNED_PREFIX), name)
