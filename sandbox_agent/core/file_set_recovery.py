"""List, undo and prune the files that restores have set aside; entries that are sessions are others' to look at."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox_agent.core import syscall
from sandbox_agent.core.file_set_commit import Commit, Planned
from sandbox_agent.core.file_set_entry import read_files
from sandbox_agent.core.file_set_move import owner_of
from sandbox_agent.core.file_set_record import FileSetRecord
from sandbox_agent.core.file_set_sweep import close_undo
from sandbox_agent.core.file_set_target import check_idle, is_other_mount, look, mounted, touch
from sandbox_agent.core.lock import folder_lock
from sandbox_agent.core.recovery_entry import FOLDER
from sandbox_agent.core.recovery_folder import check_rules, entries, no_entry, prune
from sandbox_api.errors import SessionError

if TYPE_CHECKING:
    from sandbox_agent.core.file_set import FileSetPlace
    from sandbox_agent.core.paths import Directory, Roots
    from sandbox_agent.core.recovery_folder import RecoveryEntry
    from sandbox_agent.core.sandbox import Sandbox


_log = logging.getLogger(__name__)

MAX_TOLD_COUNT = 100
"""Paths of one kind that are told: the sandbox may make any number of entries with any number of files."""


@dataclass(frozen=True, slots=True)
class FileSetItem:
    """Files of one conversation that were set aside.

    Attributes:
        name: Name of the entry in the recovery folder.
        conversation_id: The conversation.
        set_aside_ns: When they were set aside.
        files: Their paths below the home, at most `MAX_TOLD_COUNT`; those that the restore had added have no content in
            the entry. Empty where nothing usable tells them.
        files_count: How many they are.
    """

    name: str
    conversation_id: str
    set_aside_ns: int
    files: list[bytes]
    files_count: int


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo did.

    Attributes:
        recovery: Name of the entry that holds what was in place before; empty: nothing was.
        restored: Paths of files that were put back.
        removed: Paths of files that were taken away.
    """

    recovery: str
    restored: list[bytes] = field(default_factory=list)
    removed: list[bytes] = field(default_factory=list)


def list_files(roots: Roots, place: FileSetPlace) -> list[FileSetItem]:
    """Return what was set aside of one conversation, or of all of the format, newest first.

    Raises:
        WorkspaceError: `outside_roots`, `unsafe_path`.
        OSError: the recovery folder cannot be read.
    """
    with ExitStack() as stack:
        try:
            home = stack.enter_context(roots.directory(place.home))
            folder = stack.enter_context(home.directory(FOLDER))
        except FileNotFoundError:
            return []
        return [
            FileSetItem(entry.name, entry.conversation_id, entry.set_aside_ns, files[:MAX_TOLD_COUNT], len(files))
            for entry in _entries(home, place)
            for files in [_files(folder, entry)]
        ]


def undo_files(sandbox: Sandbox, place: FileSetPlace, name: str) -> Undone:
    """Put files that were set aside back in their places, all or none; what is there takes their place in the entry.

    Files that the entry has no content of are taken away, into it. Directories stay. Killed in between, the next start
    of a daemon finishes it.

    Args:
        sandbox: Where.
        place: Names the conversation.
        name: Name of the entry; empty: the newest of the conversation.

    Raises:
        SessionError: `not_found`.
        ConflictError: `in_use`, `target_changed`, `busy`.
        WorkspaceError: `outside_roots`, `unsafe_path`, `not_a_file`, `mounted`.
        OSError: the system refuses. In all cases all is as it was.
    """
    with ExitStack() as stack:
        try:
            home = stack.enter_context(sandbox.roots.directory(place.home))
        except FileNotFoundError:
            raise no_entry(name, place.conversation_id) from None
        _finish_earlier(sandbox, home)
        stack.enter_context(folder_lock(home))
        found = [entry.name for entry in _entries(home, place) if name in ("", entry.name)]
        if not found:
            raise no_entry(name, place.conversation_id)
        check_idle(home, place.signs, force=place.force)
        recovery = stack.enter_context(home.directory(FOLDER))
        tree = stack.enter_context(recovery.directory(found[0].encode()))
        if is_other_mount(home, tree.fd):
            raise mounted(tree.path)
        record = FileSetRecord(home.path, place.format, place.conversation_id, found[0], is_undo=True)
        plan = _plan(home, tree, read_files(recovery, found[0]))
        is_kept = _exchange(sandbox, record, plan, home=home, recovery=recovery, tree=tree)
        restored = [planned.path for planned in plan if planned.new]
        touch(home, restored)
    return Undone(found[0] if is_kept else "", restored, [planned.path for planned in plan if not planned.new])


def prune_files(
    sandbox: Sandbox, place: FileSetPlace, keep_count: int | None, older_than_seconds: int | None
) -> list[str]:
    """Remove what any rule says, of one conversation or of all of the format; return the names, newest first.

    Args:
        sandbox: Where.
        place: Names the home, and the conversation or none.
        keep_count: Keep that many of the newest entries of each conversation.
        older_than_seconds: Remove entries set aside longer ago.

    Raises:
        ConfigurationError: `invalid_argument`: no rule is given.
        WorkspaceError: `outside_roots`, `unsafe_path`.
        ConflictError: `busy`.
        OSError: something cannot be removed; what was removed before stays removed.
    """
    check_rules(keep_count, older_than_seconds)
    try:
        home = sandbox.roots.directory(place.home)
    except FileNotFoundError:
        return []
    # An undo keeps the tree of its entry and puts into it what was in place: that is not to be removed meanwhile, and
    # not before one that was killed is finished.
    with home:
        _finish_earlier(sandbox, home)
        with folder_lock(home):
            return prune(home, _entries(home, place), keep_count, older_than_seconds)


def _finish_earlier(sandbox: Sandbox, home: Directory) -> None:
    for told in sandbox.journal.sweep(sandbox.roots, home.path):
        _log.warning("an earlier restore: %s", told)


def _entries(home: Directory, place: FileSetPlace) -> list[RecoveryEntry]:
    return [
        entry
        for entry in entries(home, place.conversation_id)
        if entry.sidecar is not None and entry.sidecar.is_file_set and entry.sidecar.format == place.format
    ]


def _files(folder: Directory, entry: RecoveryEntry) -> list[bytes]:
    try:
        return read_files(folder, entry.name)
    except SessionError:
        return []


def _plan(home: Directory, tree: Directory, paths: list[bytes]) -> list[Planned]:
    plan = []
    for path in paths:
        kept, old = look(tree, path), look(home, path)
        if kept or old:
            plan.append(Planned(path, kept.identity if kept else None, old))
    return plan


def _exchange(
    sandbox: Sandbox,
    record: FileSetRecord,
    plan: list[Planned],
    *,
    home: Directory,
    recovery: Directory,
    tree: Directory,
) -> bool:
    """Exchange the files and force that to the disk; return whether the entry has anything then."""
    intent = sandbox.journal.begin(record, durable=True)
    try:
        commit = Commit(home, tree, plan, intent, owner=owner_of(os.fstat(tree.fd)), durable=True)
        try:
            with commit.decided(()):
                syscall.syncfs(home.fd)
                return close_undo(recovery, record.recovery, tree)
        finally:
            if not commit.is_stuck:
                intent.end()
    finally:
        intent.close()
