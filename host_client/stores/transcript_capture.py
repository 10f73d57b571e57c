"""The capture of a transcript conversation: found, fetched, placed on the host, and remembered for the next one.

The one rule: nothing is in place before every file was verified, then all of it is, and a failure leaves the host's
files as they were.
"""

from __future__ import annotations

import fcntl
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from host_client.errors import Offender, SessionError, WorkspaceError, printable
from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.session.bundle_memory import SETTLED_NS
from host_client.session.failure import host_failures
from host_client.session.folder import Folder
from host_client.session.placed_file import opened_file
from host_client.session.transcript_placement import Placement, relation_of
from host_client.session.transcript_state import SavedConversation, SavedScan, load, save
from host_client.session.transcript_writer import Staging
from host_client.stores.bundle import STEPS
from host_client.stores.transcript_fetch import NoTailError
from host_client.stores.transcript_gathering import Gathering, Route
from host_client.stores.transcript_home import HostHome
from host_client.stores.transcript_kept import Found, described
from host_client.stores.transcript_order import full_capture
from host_client.stores.transcript_place import sandbox_place, transcripts
from host_client.stores.transcript_record import OldFormAside, PlacedFiles, Told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import PurePosixPath

    from host_client.session.transcript_placement import Placed
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord
    from host_client.stores.layout import SandboxPlace, TranscriptLayout
    from host_client.stores.relay_spool import Spool
    from host_client.stores.transcript_copy import OldForm
    from host_client.stores.transcript_files import Version
    from host_client.stores.transcript_member import Members
    from host_client.stores.transcript_order import Fetched

_RECOVERY_STEPS = (".outpost", "recovery")


@dataclass(frozen=True, slots=True)
class Captured:
    """A capture, and what is needed to go on with it.

    Attributes:
        record: What is told of it.
        route: From where to where.
        saved: Its files as they are on the host. It has digests of what came before anything was redacted, which only
            `save_state` keeps back; None: the conversation need not be moved.
        members: The files in the sandbox; None with `saved`.
        versions: What those looked like that are no main transcript, before they were fetched.
    """

    record: ConversationRecord
    route: Route
    saved: SavedConversation | None = None
    members: Members | None = None
    versions: Mapping[PurePosixPath, Version] = field(default_factory=dict)


async def capture(layout: TranscriptLayout, conversation_id: str, context: ConversationContext) -> ConversationRecord:
    """Copy one conversation out of the sandbox; see `TranscriptConversations.capture`."""
    return (await captured(layout, conversation_id, context)).record


async def captured(
    layout: TranscriptLayout, conversation_id: str, context: ConversationContext, spool: Spool | None = None
) -> Captured:
    """Copy one conversation out of the sandbox, and tell what is needed to go on.

    Args:
        layout: Of the conversation.
        conversation_id: Its id.
        context: Where and how.
        spool: Told of the files while they come. The host must have nothing of the conversation yet.

    Raises:
        NotStreamableError: the spool is of no use for this conversation.
        OutpostError: those of `TranscriptConversations.capture`.
    """
    started_seconds = time.perf_counter()
    if context.redaction is not None:
        context.redaction.check_names([conversation_id])
    home = await in_thread(HostHome.of, layout, context)
    place = await sandbox_place(layout, context)
    found = await _find(layout, conversation_id, context, place, home)
    original = place.home / found.main
    host_main = home.below(
        layout.capture_path(conversation_id, home.repository, home.host_path, original), "capture_path"
    )
    locks = layout.locks(conversation_id)
    holders = await context.connected.transcripts.find_holders(place.home, locks) if locks else ()
    route = Route(layout, conversation_id, context, place, found.main, home, host_main, in_use=bool(holders))
    told = Told(route, found, holders, started_seconds)
    if context.connected.is_local and await in_thread(_is_here, home.host_path / host_main, original):
        return Captured(await told.of_here(), route)
    durable = context.is_durable
    async with (
        opened_in_thread(Folder.open, context.base, (*STEPS, layout.format), create=True, durable=durable) as states,
        opened_in_thread(home.open, create=True, durable=durable) as home_folder,
        opened_in_thread(Staging, home_folder) as staging,
    ):
        saved = await in_thread(load, states, conversation_id)
        gathering = Gathering(route, staging, states, saved, saved, spool=spool)
        try:
            await gathering.run()
        except NoTailError as error:
            notice = full_capture(printable(str(found.main)), str(error))
            gathering = Gathering(route, staging, states, None, saved, [notice])
            await gathering.run()
        placed = await in_thread(_place, gathering)
        record = await told.of(gathering, placed)
        return Captured(record, route, placed.saved, gathering.members, gathering.versions)


async def _find(
    layout: TranscriptLayout,
    conversation_id: str,
    context: ConversationContext,
    place: SandboxPlace,
    home: HostHome,
) -> Found:
    """Find the main transcript in the sandbox.

    Raises:
        SessionError: `not_found`; `ambiguous`: several have the id, and none, or not only one, lies where the CLI would
            look for it from this workspace.
    """
    found = {path: info async for _, path, info in transcripts(layout, context, place, conversation_id)}
    if not found:
        directory = printable(str(layout.remote_search_root(place.home)))
        raise SessionError(
            "not_found",
            f"no {layout.format} conversation {conversation_id} is below {directory} of the sandbox",
            hint="see which ones are there with `outpost sessions`",
            facts={"path": directory},
        )
    own = list(found)
    if len(found) > 1:
        own = [
            path
            for path in found
            if layout.remote_path(conversation_id, place, home.host_path / path) == place.home / path
        ]
    if len(own) == 1:
        return Found(own[0], [path for path in found if path != own[0]])
    raise SessionError(
        "ambiguous",
        f"{len(found)} transcripts of the sandbox have the id {conversation_id}",
        hint="move the others away, or give the workspace that the one you mean belongs to",
        offenders=(Offender(printable(str(info.path)), described(info.size, info.modified)) for info in found.values()),
    )


def _is_here(host_path: Path, original: PurePosixPath) -> bool:
    """Tell whether a transcript of a sandbox that is this host lies already where a capture would put it; blocks."""
    try:
        return host_path.samefile(Path(original))
    except OSError:
        return False


def _place(gathering: Gathering) -> PlacedFiles:
    """Give the files their names, the main transcript last but for shared lines, and keep the state; blocks."""
    route, states, fetched = gathering.route, gathering.states, gathering.fetched
    home, context = route.home, route.context
    aside = (*_RECOVERY_STEPS, route.layout.format, f"{route.conversation_id}-{uuid.uuid4()}")

    def open_home(steps: Sequence[str]) -> Folder:
        return home.open(steps, create=True, durable=context.is_durable)

    def open_recovery(steps: Sequence[str]) -> Folder:
        return Folder.open(context.base, (*aside, *steps), create=True, durable=context.is_durable)

    with (
        locked(states),
        Placement(open_home, open_recovery, gathering.staging, durable=context.is_durable) as placement,
    ):
        looked_ns = time.time_ns()
        items = [(path, fetched[path]) for path in (one.path for one in gathering.members.all) if path in fetched]
        placed: dict[PurePosixPath, Placed] = {}
        old_forms: list[OldFormAside] = []
        for path, item in items:
            # Each one just before the new one: at no moment are there two, and only briefly there is none.
            old_forms += _set_aside(placement, gathering.copies.old_forms.get(item.place, ()), item.place)
            if item.placing and not _went_on(gathering, item):
                placed[path] = placement.place(item.placing)
        are_added = [placement.add_lines(item.place, item.lines) for _, item in items if not item.placing]
        saved = _state(gathering, {path: _believable(one, looked_ns) for path, one in placed.items()})
        save_state(states, route, saved)
        placement.keep()
    is_changed = any(are_added) or bool(old_forms) or any(one.is_changed for one in placed.values())
    return PlacedFiles(placed, old_forms, is_changed, saved)


def _set_aside(placement: Placement, old_forms: Sequence[OldForm], place: PurePosixPath) -> Iterator[OldFormAside]:
    for old in old_forms:
        set_aside = placement.set_aside(old.path, old.known)
        if set_aside is not None:
            yield OldFormAside(old.path, place, set_aside)


def save_state(states: Folder, route: Route, saved: SavedConversation) -> None:
    """Keep a state for the next capture, without digests of what was redacted, since they tell of secrets; blocks."""
    if route.has_rules:
        saved = replace(saved, files={path: replace(file, parts=()) for path, file in saved.files.items()})
    save(states, route.conversation_id, saved, durable=route.context.is_durable)


@contextmanager
def locked(folder: Folder) -> Iterator[None]:
    """Keep others from changing the host's files of the conversations whose states the folder has; blocks."""
    with host_failures(folder.host_path):
        fcntl.flock(folder.fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(folder.fd, fcntl.LOCK_UN)


def _went_on(gathering: Gathering, fetched: Fetched) -> bool:
    """Tell whether a file is another conversation, of which the host has all that was fetched, and more.

    What refers to it is right all the same, so it is left alone: the user's own turns are in it.
    """
    route, placing = gathering.route, fetched.placing
    if placing is None or not placing.staged or placing.keep_bytes is not None:
        return False
    if route.layout.conversation_id(fetched.place) in (None, route.conversation_id):
        return False
    try:
        with (
            route.home.open(fetched.place.parent.parts) as folder,
            opened_file(folder, fetched.place.name) as old,
            opened_file(gathering.staging.folder, placing.staged) as new,
        ):
            return relation_of(new, old) == "beginning"
    except (OSError, WorkspaceError):
        return False  # nothing is there, or what placing it refuses


def _believable(placed: Placed, looked_ns: int) -> tuple[int, ...]:
    """Return the identity by which a file may be believed to be the same; of one that was left alone only when settled.

    Args:
        placed: The file.
        looked_ns: Wall time before it was looked at, in nanoseconds.
    """
    is_settled = placed.is_changed or placed.identity[3] <= looked_ns - SETTLED_NS
    return placed.identity if is_settled else ()


def _state(gathering: Gathering, identities: Mapping[PurePosixPath, tuple[int, ...]]) -> SavedConversation:
    route, main = gathering.route, gathering.fetched[gathering.route.main]
    scan, line_bytes = main.scan, main.saved.line_bytes if main.saved else 0
    nul_at = scan.nul_at if scan else None
    return SavedConversation(
        source=route.redacted(str(route.sandbox.home / route.main)),
        home=route.redacted(str(route.sandbox.home)),
        main=str(route.main),
        origin=gathering.origin,
        destination=str(route.home.repository),
        files={
            str(path): replace(item.saved, identity=identities[path])
            for path, item in gathering.fetched.items()
            if item.saved is not None and path in identities
        },
        scan=SavedScan(
            origin=scan.origin if scan else None,
            nul_at=nul_at if nul_at is not None and nul_at < line_bytes else None,
            has_record=scan is not None and scan.has_record,
            collected=scan.collected if scan else {},
        ),
    )
