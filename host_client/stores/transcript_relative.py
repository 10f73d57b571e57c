"""Conversations of their own that another one needs, such as the one it was forked from: what the sandbox has of them.

The one rule: restoring a conversation does not take another one back to what it was before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from host_client.errors import LimitError, OutpostError, SessionError, printable
from host_client.sandbox.task import in_thread
from host_client.stores.contract import Notice
from host_client.stores.transcript_kept import entry_of

if TYPE_CHECKING:
    from pathlib import PurePosixPath

    from host_client.sandbox.file import Files
    from host_client.stores.layout import SandboxPlace, TranscriptLayout
    from host_client.stores.transcript_sending import Sending


@dataclass(slots=True)
class Relatives:
    """What the sandbox has of the other conversations.

    Attributes:
        ahead: Files of this host of which the sandbox has all, and more: they went on there.
        different: Ids of those that the sandbox has otherwise; a restore replaces them.
        notices: About those that are ahead.
    """

    ahead: set[PurePosixPath] = field(default_factory=set)
    different: list[str] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


async def find_relatives(layout: TranscriptLayout, files: Files, place: SandboxPlace, sending: Sending) -> Relatives:
    """Compare the other conversations among the files to send with what the sandbox has at their places.

    What it has of one is hashed there, and of ours here; nothing is sent.
    """
    found = Relatives()
    for member in sending.members.related:
        target = sending.places[member.path]
        conversation_id = layout.conversation_id(target)
        if member.kind != "transcript" or conversation_id is None or not await is_there(files, place.home / target):
            continue
        ours = await in_thread(entry_of, target, sending.pieces(member))
        state = await state_of(files, place.home / target, ours.size, ours.sha256)
        if state == "ahead":
            shown = printable(str(target))
            found.ahead.add(member.path)
            found.notices.append(
                Notice("went_on", f"{shown} went on in the sandbox since it was kept, and was left as it is", shown)
            )
        elif state == "different":
            found.different.append(conversation_id)
    return found


async def is_there(files: Files, sandbox_path: PurePosixPath) -> bool:
    """Tell whether a sandbox has something at a path."""
    try:
        await files.stat(sandbox_path)
    except OutpostError as error:
        if error.reason != "not_found":
            raise
        return False
    return True


async def state_of(
    files: Files, sandbox_path: PurePosixPath, size: int, sha256: bytes
) -> Literal["same", "ahead", "different"]:
    """Compare a file of the sandbox with one of that size and digest, without having any of it sent."""
    try:
        await files.read(sandbox_path, lambda _: None, offset=size, prefix_sha256=sha256, max_bytes=0)
    except LimitError as error:
        if error.reason != "max_bytes":
            raise
        return "ahead"  # it begins with ours and goes on
    except SessionError as error:
        if error.reason != "digest_mismatch":
            raise
        return "different"
    return "same"
