"""List, undo and prune what restores of sessions have set aside; entries that are files are others' to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox_agent.core.recovery_entry import is_place
from sandbox_agent.core.recovery_folder import check_rules, entries, no_entry, prune
from sandbox_agent.core.session import failures, open_cli_home
from sandbox_agent.core.undo import Undo

if TYPE_CHECKING:
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.recovery_folder import RecoveryEntry
    from sandbox_agent.core.sandbox import Place, Sandbox
    from sandbox_api.profile import Profile


@dataclass(frozen=True, slots=True)
class Item:
    """One session that was set aside.

    Attributes:
        name: Its name in the recovery folder.
        conversation_id: Its conversation.
        session_path: Absolute path of the session directory it was; empty when that is not known.
        set_aside_ns: When it was set aside.
    """

    name: str
    conversation_id: str
    session_path: bytes
    set_aside_ns: int


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
            return [_item(cli_home, entry, place.profile) for entry in _entries(cli_home, place)]


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
        if cli_home is not None:
            with cli_home:
                found = _entries(cli_home, place)
                chosen = [entry for entry in found if entry.name == name] if name else found
                if chosen:
                    return Undo(sandbox, place, cli_home, chosen[0].name, force=force).run()
    raise no_entry(name, place.conversation_id)


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
    check_rules(keep_count, older_than_seconds)
    with failures():
        cli_home = open_cli_home(sandbox, place)
        if cli_home is None:
            return []
        with cli_home:
            return prune(cli_home, _entries(cli_home, place), keep_count, older_than_seconds)


def _entries(cli_home: Directory, place: Place) -> list[RecoveryEntry]:
    """Return the entries that are, or may be, sessions of the format; newest first."""
    return [
        entry
        for entry in entries(cli_home, place.conversation_id)
        if entry.sidecar is None or (entry.sidecar.format == place.profile.format and not entry.sidecar.is_file_set)
    ]


def _item(cli_home: Directory, entry: RecoveryEntry, profile: Profile) -> Item:
    session = _session(profile, entry.conversation_id, entry.sidecar.session if entry.sidecar else b"")
    return Item(entry.name, entry.conversation_id, cli_home.join(session) if session else b"", entry.set_aside_ns)


def _session(profile: Profile, conversation_id: str, told: bytes) -> bytes:
    """Return where an entry belongs below the CLI home; empty when only a look at the sessions can tell."""
    if is_place(told, profile, conversation_id):
        return told
    return b"" if profile.buckets else f"{profile.sessions}/{conversation_id}".encode()
