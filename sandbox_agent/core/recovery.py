"""List, undo and prune what restores have set aside.

The one rule: what cannot be attributed to a conversation is left alone, and nothing is removed that could still be
undone to half a session.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox_agent.core import recovery_entry
from sandbox_agent.core.recovery_entry import FOLDER, entry_id, is_place
from sandbox_agent.core.removal import remove_tree
from sandbox_agent.core.rename import identity_at, rename_exclusive
from sandbox_agent.core.session import failures, open_cli_home
from sandbox_agent.core.undo import Undo
from sandbox_api.errors import ConfigurationError, SessionError, printable

if TYPE_CHECKING:
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.rename import Identity
    from sandbox_agent.core.sandbox import Place, Sandbox
    from sandbox_api.profile import Profile

_PRUNED_PREFIX = ".outpost-pruned-"


@dataclass(frozen=True, slots=True)
class Item:
    """One session that was set aside.

    Attributes:
        name: Its name in the recovery folder.
        conversation_id: Its conversation.
        session_path: Absolute path of the session directory it was; empty when that is not known.
        set_aside_ns: When it was set aside.
        identity: Device and inode of its tree.
    """

    name: str
    conversation_id: str
    session_path: bytes
    set_aside_ns: int
    identity: Identity


def list_recovery(sandbox: Sandbox, place: Place) -> list[Item]:
    """Return what restores have set aside of one conversation, or of all, newest first.

    Raises:
        SessionError: `symlink`, `root_symlink`.
        WorkspaceError: `outside_roots`, `access`.
    """
    with failures():
        cli_home = open_cli_home(sandbox, place)
        if cli_home is None:
            return []
        with cli_home:
            return _list(cli_home, place)


def undo_restore(sandbox: Sandbox, place: Place, name: str, *, force: bool) -> tuple[bytes, str]:
    """Put what was set aside back in its place; what is there goes to recovery instead.

    One atomic step where the file system can. On failure everything is as it was.

    Args:
        sandbox: Where.
        place: Names the conversation.
        name: Name of the entry; empty: the newest of the conversation.
        force: Replace the session even when a running process has it open.

    Returns:
        Path of the session, and name of the entry that holds what was in place before; empty: nothing was.

    Raises:
        SessionError: `not_found`, `ambiguous`, `symlink`.
        ConflictError: `in_use`, `other_bucket`, `target_changed`, `busy`, `exists`.
    """
    with failures():
        cli_home = open_cli_home(sandbox, place)
        items = []
        if cli_home is not None:
            with cli_home:
                items = _list(cli_home, place)
                chosen = [item for item in items if item.name == name] if name else items
                if chosen:
                    return Undo(sandbox, place, cli_home, chosen[0].name, force=force).run()
    raise SessionError(
        "not_found",
        f"recovery has no entry {printable(name) or 'of ' + place.conversation_id}",
        hint="list recovery to see what it has",
        facts={"name": printable(name)},
    )


def prune_recovery(sandbox: Sandbox, place: Place, keep_count: int | None, older_than_seconds: int | None) -> list[str]:
    """Remove what any rule says, of one conversation or of all; return the names, newest first.

    Interrupted, it can be repeated: an entry is first renamed, so that none can be undone that is half removed.

    Args:
        sandbox: Where.
        place: Names the CLI home, and the conversation or none.
        keep_count: Keep that many of the newest entries of each conversation.
        older_than_seconds: Remove entries set aside longer ago.

    Raises:
        ConfigurationError: `invalid_argument`: no rule is given.
        WorkspaceError: `access`: what was removed before stays removed.
    """
    if keep_count is None and older_than_seconds is None:
        raise ConfigurationError(
            "invalid_argument",
            "no rule says what to remove from recovery",
            hint="give keep_count, older_than_seconds, or both",
        )
    with failures():
        cli_home = open_cli_home(sandbox, place)
        if cli_home is None:
            return []
        with cli_home:
            doomed = _doomed(_list(cli_home, place), keep_count, older_than_seconds)
            try:
                folder = cli_home.directory(FOLDER)
            except FileNotFoundError:
                return []
            with folder:
                _remove_pruned(folder)
                return [item.name for item in doomed if _prune(folder, item)]


def _list(cli_home: Directory, place: Place) -> list[Item]:
    try:
        folder = cli_home.directory(FOLDER)
    except FileNotFoundError:
        return []
    with folder:
        names = [name.decode("ascii", "replace") for name in folder.names()]
        pruned = {name.removeprefix(_PRUNED_PREFIX) for name in names if name.startswith(_PRUNED_PREFIX)}
        found = [_item(cli_home, folder, name, place) for name in names if name not in pruned]
    return sorted((item for item in found if item), key=lambda item: (-item.set_aside_ns, item.name))


def _item(cli_home: Directory, folder: Directory, name: str, place: Place) -> Item | None:
    conversation_id = entry_id(name)
    if conversation_id is None or place.conversation_id not in ("", conversation_id):
        return None
    try:
        status = folder.stat(name.encode())
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    sidecar = recovery_entry.read_sidecar(folder, name)
    if sidecar is not None and sidecar.format != place.profile.format:
        return None
    session = _session(place.profile, conversation_id, sidecar.session if sidecar else b"")
    return Item(
        name,
        conversation_id,
        cli_home.join(session) if session else b"",
        status.st_ctime_ns,
        (status.st_dev, status.st_ino),
    )


def _session(profile: Profile, conversation_id: str, told: bytes) -> bytes:
    """Return where an entry belongs below the CLI home; empty when only a look at the sessions can tell."""
    if is_place(told, profile, conversation_id):
        return told
    return b"" if profile.buckets else f"{profile.sessions}/{conversation_id}".encode()


def _doomed(items: list[Item], keep_count: int | None, older_than_seconds: int | None) -> list[Item]:
    now_ns = time.time_ns()
    counts: dict[str, int] = {}
    doomed = []
    for item in items:
        counts[item.conversation_id] = counts.get(item.conversation_id, 0) + 1
        is_surplus = keep_count is not None and counts[item.conversation_id] > keep_count
        is_old = older_than_seconds is not None and now_ns - item.set_aside_ns > older_than_seconds * 10**9
        if is_surplus or is_old:
            doomed.append(item)
    return doomed


def _prune(folder: Directory, item: Item) -> bool:
    """Remove one entry; tell whether it was still the one that was looked at.

    An undo puts the session that was in place under the name of the entry it took: that one is not to be removed.
    """
    name = item.name.encode()
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
        if identity_at(folder, pruned) != item.identity:
            rename_exclusive(folder, pruned, folder, name)
            return False
    _finish_prune(folder, item.name, pruned)
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
