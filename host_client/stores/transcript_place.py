"""The sandbox's side of transcripts: the home of a layout there, and which files are whose main transcript.

The one rule: what lies in a recovery or staging folder is no conversation, whatever its name.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from host_client.stores.layout import SandboxPlace
from host_client.stores.transcript_files import found_below
from host_client.stores.transcript_member import below
from sandbox_api.names import path_problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import PurePosixPath

    from host_client.sandbox.file import FileInfo
    from host_client.stores.context import ConversationContext
    from host_client.stores.layout import TranscriptLayout


async def sandbox_place(layout: TranscriptLayout, context: ConversationContext) -> SandboxPlace:
    """Ask the daemon for the home of a layout; it need not exist.

    Raises:
        SessionError: `root_symlink`, `symlink`.
        WorkspaceError: `outside_roots`, `unsafe_path`.
    """
    sandbox, root = context.connected, layout.root
    home = await sandbox.resolve_home(
        root.variable if root else None,
        root.directory if root else "",
        variables=context.variables,
        follow_root_link=context.follow_root_link,
    )
    return SandboxPlace(home.path, sandbox.root)


async def transcripts(
    layout: TranscriptLayout, context: ConversationContext, place: SandboxPlace, conversation_id: str = ""
) -> AsyncIterator[tuple[str, PurePosixPath, FileInfo]]:
    """Yield the main transcripts of a sandbox, by path: id, path below the home, and what the file is.

    Args:
        layout: Tells which files are.
        context: Has the sandbox.
        place: Of the sandbox.
        conversation_id: Only those of this conversation; empty: all.

    Raises:
        ConfigurationError: `invalid_argument`: the layout names a place outside of the home.
        SessionError: `protocol`: the daemon found files where it did not look.
        LimitError: `max_files`, `max_depth`.
    """
    root = layout.remote_search_root(place.home)
    below(place.home, root, "the layout's remote_search_root", or_home=True)
    # A pattern of the name, so an id may be one, too.
    pattern = layout.pattern(conversation_id or "*")
    async for path, info in found_below(context.connected.files, place.home, root, pattern):
        found_id = None if path_problem(os.fsencode(path)) else layout.conversation_id(path)
        if found_id is not None and found_id == (conversation_id or found_id):
            yield found_id, path, info
