"""One capture on its way to the host's file: what is held, what arrives, and the step that makes it visible."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from host_client.errors import LimitError, SessionError
from host_client.sandbox.task import in_thread, opened_in_thread, task_group
from host_client.session.bundle import BundleWriter, Folder, SavedBundle
from host_client.session.redacted_capture import RedactedCapture
from host_client.session.redaction import Redaction
from host_client.stores.relay_bundle import SpoolingSink
from host_client.stores.relay_spool import NotStreamableError

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import AsyncIterator, Mapping, Sequence

    from host_client.sandbox.place import Captured, Place
    from host_client.session.redacted_capture import RedactedBundle
    from host_client.stores.context import ConversationContext
    from host_client.stores.relay_spool import Spool


@dataclass(frozen=True, slots=True)
class Kept:
    """What a capture verified and keeps, whether the host's file was written or had it already, and hits of rules."""

    captured: Captured
    is_new: bool
    redactions: Mapping[str, int]


async def keep(place: Place, steps: Sequence[str], context: ConversationContext, spool: Spool | None = None) -> Kept:
    """Capture a session into `<base>/<steps>/<id>.json`, again when it changed meanwhile.

    On failure or cancel the file is as before and nothing is left beside it.

    Args:
        place: The session.
        steps: From the context's base to the folder; created where missing.
        context: Where and how.
        spool: What others read the contents from while they come. The host must have nothing of the session yet.

    Raises:
        NotStreamableError: the spool is of no use with this context.
    """
    if spool is not None and (context.retries or (context.redaction is not None and context.redaction.rules)):
        raise NotStreamableError
    async with opened_in_thread(Folder.open, context.base, steps, create=True, durable=context.is_durable) as folder:
        left = context.retries
        while True:
            try:
                if spool is not None:
                    return await _capture(folder, place, context, spool=spool)
                return await _attempt(folder, place, context)
            except SessionError as error:
                if error.reason != "changed" or not left:
                    raise
            left -= 1


async def _attempt(folder: Folder, place: Place, context: ConversationContext) -> Kept:
    async with _previous(folder, place, context) as previous:
        if previous is None:
            return await _capture(folder, place, context)
        try:
            async with task_group() as group:
                # While the daemon looks at the session, so that on two processors it costs no time.
                verifying = group.create_task(in_thread(_is_sound, previous))
                return await _capture(folder, place, context, previous, verifying)
        except SessionError:
            if await in_thread(_is_sound, previous):
                raise
    # The file on the host is damaged: nothing of it is taken over.
    return await _capture(folder, place, context)


async def _capture(
    folder: Folder,
    place: Place,
    context: ConversationContext,
    previous: SavedBundle | None = None,
    verifying: Task[bool] | None = None,
    *,
    spool: Spool | None = None,
) -> Kept:
    writer = BundleWriter(folder, place.profile, place.conversation_id, previous=previous, durable=context.is_durable)
    redaction = context.redaction or Redaction(())
    redacted = None
    spooling = SpoolingSink(writer, spool, folder.host_path) if spool else None
    if redaction.rules:
        redaction.check_names([place.conversation_id])
        redacted = RedactedCapture(writer, redaction, previous, context.effective_limits)
    try:
        captured = await context.connected.bundles.capture(
            place,
            redacted or spooling or writer,
            limits=context.limits,
            skip_links=context.skip_links,
            held=previous.entries if previous else (),
            progress=context.progress,
            before_chunk=spool.pace if spool else None,
        )
        if spooling is not None:
            await in_thread(spooling.finish)
        if verifying is not None:
            await verifying
        if redacted is None:
            return Kept(captured, await in_thread(writer.finish, captured.entries, captured.digest), {})
        return _told(captured, await in_thread(redacted.finish), redaction)
    finally:
        await in_thread((redacted or spooling or writer).abort)


def _told(captured: Captured, bundle: RedactedBundle, redaction: Redaction) -> Kept:
    """Tell of what is kept, not of what came."""
    left_out = [replace(item, path=redaction.redact_path(item.path)) for item in captured.left_out]
    told = replace(
        captured, source=bundle.source, entries=bundle.entries, digest=bundle.digest, left_out=tuple(left_out)
    )
    return Kept(told, bundle.is_new, bundle.redactions)


@asynccontextmanager
async def _previous(folder: Folder, place: Place, context: ConversationContext) -> AsyncIterator[SavedBundle | None]:
    """Give the saved file; None when there is none that can be used.

    It is closed in a thread that nobody waits for but the loop at its own end. When it was replaced, this gives its
    blocks back to the file system: 50 to 100 ms for 80 MB where freed blocks are discarded.
    """
    opened: list[SavedBundle] = []

    def open_previous() -> None:
        if (previous := _open_previous(folder, place, context)) is not None:
            opened.append(previous)

    try:
        await in_thread(open_previous)
        yield opened[0] if opened else None
    finally:
        for previous in opened:
            asyncio.get_running_loop().run_in_executor(None, previous.close)


def _open_previous(folder: Folder, place: Place, context: ConversationContext) -> SavedBundle | None:
    host_path = folder.host_path / f"{place.conversation_id}.json"
    try:
        return SavedBundle.open(
            host_path, place.profile, place.conversation_id, context.effective_limits, fd=folder.fd, believed=True
        )
    except (SessionError, LimitError) as error:
        if error.reason == "descriptors":
            raise
        return None


def _is_sound(previous: SavedBundle) -> bool:
    try:
        previous.verify()
    except SessionError:
        return False
    return True
