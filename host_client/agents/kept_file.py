"""A kept conversation by its file: which format it is of, and which conversation.

The one rule: neither is guessed. A bundle says both; of a transcript both are known by where it lies, below the home of
a CLI.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from host_client.agents.registry import builtin_format, format_names
from host_client.errors import ConfigurationError, SessionError, printable
from host_client.session.bundle import read_identity
from host_client.stores.bundle import SessionBundleConversations
from host_client.stores.transcript import TranscriptConversations

if TYPE_CHECKING:
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord, NativeConversationStore

_TRANSCRIPTS = (".jsonl", ".jsonl.zst")


@dataclass(frozen=True, slots=True)
class KeptFile:
    """What a file of this host is, by its head or its place; its content was not looked at.

    Attributes:
        host_path: The file.
        store: The store of its format.
        conversation_id: The conversation.
        home: The conversation home above a transcript; None: the user's own, or it is a bundle.
    """

    host_path: Path
    store: NativeConversationStore
    conversation_id: str
    home: Path | None = None

    async def locate(self, context: ConversationContext) -> tuple[ConversationRecord, ConversationContext]:
        """Verify all of it; return the record, and the context with the place that restores of it need to know.

        Raises:
            SessionError: `ambiguous`: another file of the host has the same conversation; those of `locate`.
            LimitError: `max_bytes`, `max_files`.
            WorkspaceError: `unsafe_path`, `access`.
        """
        if isinstance(self.store, SessionBundleConversations):
            return await self.store.validate(self.host_path, self.conversation_id, limits=context.limits), context
        there = replace(context, conversation_home=self.home, repository=None if self.home else Path("/"))
        # The variables are those of the sandbox; the file is the user's.
        record = await self.store.locate(self.conversation_id, replace(there, variables={}))
        if record.path != self.host_path:
            raise SessionError(
                "ambiguous",
                f"this host has the conversation {self.conversation_id} also at {printable(str(record.path))}",
                hint="remove or move one of the two",
            )
        return record, there


def recognise_file(host_path: Path, *, format_name: str = "", conversation_id: str = "") -> KeptFile:
    """Find out what a file keeps: a bundle wherever it lies, or a transcript below the home of its CLI. Blocks.

    Args:
        host_path: The file, absolute.
        format_name: The format that it must be of; empty: any.
        conversation_id: The conversation that it must be; empty: any.

    Raises:
        ConfigurationError: `invalid_argument`: a transcript that lies below the home of no CLI; another conversation;
            `format_mismatch`: another format; `unknown_format`.
        SessionError: `not_found`, `corrupt`.
        WorkspaceError: `unsafe_path`, `access`.
    """
    found = _recognised(host_path, format_name)
    if conversation_id not in ("", found.conversation_id):
        raise ConfigurationError(
            "invalid_argument",
            f"{printable(str(host_path))} keeps the conversation {printable(found.conversation_id)}, not "
            f"{printable(conversation_id)}",
            hint="leave the id away",
        )
    return found


def _recognised(host_path: Path, format_name: str) -> KeptFile:
    if not host_path.name.endswith(_TRANSCRIPTS):
        identity = read_identity(host_path)
        store = builtin_format(identity.format)
        if format_name in ("", store.format) and isinstance(store, SessionBundleConversations):
            return KeptFile(host_path, store, identity.conversation_id)
        raise ConfigurationError(
            "format_mismatch",
            f"{printable(str(host_path))} is said to be a bundle of the format {store.format}",
            hint="leave the format away" if isinstance(store, SessionBundleConversations) else "no capture made it",
        )
    for name in [format_name] if format_name else format_names():
        # The names of the formats' transcripts have nothing in common: the first that knows it is the only one.
        found = _in_home(builtin_format(name), host_path)
        if found is not None:
            return found
    raise ConfigurationError(
        "invalid_argument",
        f"the transcript {printable(str(host_path))} lies below the home of no {format_name or 'CLI'}",
        hint="give a file below .claude/projects or .codex/sessions: elsewhere it does not say what it is",
    )


def _in_home(store: NativeConversationStore, host_path: Path) -> KeptFile | None:
    """Return what the file is in the nearest home of the format above it, which may be one that a variable names."""
    root = store.layout.root if isinstance(store, TranscriptConversations) else None
    if root is None or not isinstance(store, TranscriptConversations):
        return None
    moved = Path(os.environ.get(root.variable or "", ""))
    steps = Path(root.directory).parts
    for folder in host_path.parents:
        is_moved = moved.is_absolute() and folder == moved
        if is_moved or folder.parts[-len(steps) :] == steps:
            conversation_id = store.layout.conversation_id(PurePosixPath(host_path.relative_to(folder)))
            if conversation_id is not None:
                home = None if is_moved else folder.parents[len(steps) - 1]
                return KeptFile(host_path, store, conversation_id, home)
    return None
