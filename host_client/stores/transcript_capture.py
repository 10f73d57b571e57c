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
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError, Offender, SessionError, WorkspaceError, printable
from host_client.sandbox.place import LeftOut
from host_client.sandbox.task import in_thread, opened_in_thread, task_group
from host_client.session.compression import Decompressor, is_compressed
from host_client.session.failure import host_failures
from host_client.session.folder import Folder
from host_client.session.line_block import LineBlocks
from host_client.session.origin import find_origin
from host_client.session.transcript_placement import Placement
from host_client.session.transcript_state import SavedConversation, SavedScan, load, save
from host_client.session.transcript_writer import Staging
from host_client.stores.bundle import STEPS
from host_client.stores.contract import ConversationRecord, Notice
from host_client.stores.layout import Conversation, Related
from host_client.stores.transcript_fetch import Fetcher, NoTailError, Order, full_capture, redactions_of, refused
from host_client.stores.transcript_files import SandboxFiles
from host_client.stores.transcript_home import HostFiles, HostHome
from host_client.stores.transcript_kept import (
    MAX_LEFT_OUT_COUNT,
    Found,
    described,
    effective_limits,
    read_kept,
)
from host_client.stores.transcript_member import Members, members
from host_client.stores.transcript_place import sandbox_place, transcripts
from host_client.stores.transcript_tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from host_client.sandbox.transcript import Holder
    from host_client.session.transcript_placement import Placed
    from host_client.stores.context import ConversationContext
    from host_client.stores.layout import Reference, SandboxPlace, TranscriptLayout
    from host_client.stores.transcript_fetch import Fetched

_RECOVERY_STEPS = (".outpost", "recovery")
_MAX_CONCURRENT_COUNT = 8
"""Files that are fetched at the same time: each costs a round trip."""
_NOWHERE = "\0"
"""No directory has this name, so nothing that names it is found."""


async def capture(layout: TranscriptLayout, conversation_id: str, context: ConversationContext) -> ConversationRecord:
    """Copy one conversation out of the sandbox; see `TranscriptConversations.capture`."""
    started = time.perf_counter()
    if context.redaction is not None:
        context.redaction.check_names([conversation_id])
    home = await in_thread(HostHome.of, layout, context)
    place = await sandbox_place(layout, context)
    found = await _find(layout, conversation_id, context, place, home)
    locks = layout.locks(conversation_id)
    holders = await context.connected.transcripts.find_holders(place.home, locks) if locks else ()
    host_main = home.below(
        layout.capture_path(conversation_id, home.repository, home.host_path, place.home / found.main), "capture_path"
    )
    steps = (*STEPS, layout.format)
    async with (
        opened_in_thread(Folder.open, context.base, steps, create=True, durable=context.is_durable) as states,
        opened_in_thread(home.open, create=True, durable=context.is_durable) as home_folder,
        opened_in_thread(Staging, home_folder) as staging,
    ):
        run = _Capture(layout, conversation_id, context, home, place, found.main, host_main, staging, holders)
        saved = await in_thread(load, states, conversation_id)
        try:
            await run.fetch(saved)
        except NoTailError as error:
            await run.fetch(None, known=saved, why=str(error))
        await in_thread(run.place, states)
        return await run.record(found, started)


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
    own = [
        path for path in found if layout.remote_path(conversation_id, place, home.host_path / path) == place.home / path
    ]
    if len(found) == 1:
        own = list(found)
    if len(own) == 1:
        return Found(own[0], [path for path in found if path != own[0]])
    raise SessionError(
        "ambiguous",
        f"{len(found)} transcripts of the sandbox have the id {conversation_id}",
        hint="move the others away, or give the workspace that the one you mean belongs to",
        offenders=(Offender(printable(str(info.path)), described(info.size, info.modified)) for info in found.values()),
    )


@dataclass
class _Capture:
    """One capture on its way."""

    layout: TranscriptLayout
    conversation_id: str
    context: ConversationContext
    home: HostHome
    sandbox: SandboxPlace
    main: PurePosixPath
    host_main: PurePosixPath
    staging: Staging
    holders: Sequence[Holder]
    saved: SavedConversation | None = None
    known: SavedConversation | None = None
    members: Members = field(init=False)
    places: Mapping[PurePosixPath, PurePosixPath] = field(init=False)
    origin: str | None = None
    references: Mapping[PurePosixPath, Reference] = field(default_factory=dict)
    fetched: dict[PurePosixPath, Fetched] = field(default_factory=dict)
    placed: dict[PurePosixPath, Placed] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    is_changed: bool = False

    async def fetch(
        self, saved: SavedConversation | None, *, known: SavedConversation | None = None, why: str = ""
    ) -> None:
        """Bring all files into the staging folder.

        Args:
            saved: What the last capture left, to go on with; None: nothing is gone on with.
            known: The same, where it is only to tell whose the host's files are.
            why: Why nothing is gone on with.

        Raises:
            NoTailError: what the last capture left cannot be gone on with.
        """
        self.known = saved or known
        self.saved, told = self._fitting(saved)
        why = why or told
        self.fetched, self.notices = {}, [*self._in_use()]
        if why:
            self.notices.append(full_capture(_shown(self.main), why))
        self.tally = Tally(effective_limits(self.context), self.context.progress)
        self.fetcher = Fetcher(
            self.layout,
            self.context,
            sandbox_home=self.sandbox.home,
            home=self.home,
            staging=self.staging,
            tally=self.tally,
            in_use=bool(self.holders),
        )
        self.references, self.places = {}, {self.main: self.host_main}
        self.files = SandboxFiles(self.context.connected.files, self.sandbox.home)
        own = Related(self.main, "transcript", required=True)
        collected: Mapping[str, frozenset[str]] = {}
        if self.layout.collected_keys:
            scan = (await self._fetch_one(own)).scan
            collected = scan.collected if scan else {}
        told_of = Conversation(self.conversation_id, self.main, self.files, collected)
        self.members = await members(self.layout, told_of)
        if self.context.redaction is not None:
            self.context.redaction.check_names(str(member.path) for member in self.members.all)
        self.places = self.members.places(self.host_main)
        sizes = (self.files.sizes.get(member.path, 0) for member in self.members.related)
        self.tally.expect(files_count=len(self.members.all), bytes_count=sum(sizes))
        await self._read_references()
        bound = {*self.references, *(reference.path for reference in self.references.values())}
        if self.main in self.references:
            early = self.fetched.pop(self.main, None)
            known_origin = self.saved or early
            self.origin = known_origin.origin if known_origin else await self._find_origin()
        elif self.main not in self.fetched or self.main in bound:
            await self._fetch_one(own)
        for path in sorted(bound):
            await self._fetch_bound(path, ())
        await self._fetch_others([member for member in self.members.related if member.path not in bound])
        if failure := refused(list(self.fetched.values())):
            raise failure
        self._check_said()
        self.tally.finish()

    def place(self, states: Folder) -> None:
        """Give the files their names, the main transcript last but for shared lines, and keep the state; blocks."""
        context = self.context

        def open_home(steps: Sequence[str]) -> Folder:
            return self.home.open(steps, create=True, durable=context.is_durable)

        aside = (*_RECOVERY_STEPS, self.layout.format, f"{self.conversation_id}-{uuid.uuid4()}")

        def open_recovery(steps: Sequence[str]) -> Folder:
            return Folder.open(context.base, (*aside, *steps), create=True, durable=context.is_durable)

        with (
            _locked(states),
            Placement(open_home, open_recovery, self.staging, durable=context.is_durable) as placement,
        ):
            order = [member.path for member in self.members.all if member.path in self.fetched]
            for path in order:
                if (placing := self.fetched[path].placing) is not None:
                    self.placed[path] = placement.place(placing)
            lines = [item for item in self.fetched.values() if item.placing is None]
            are_added = [placement.add_lines(item.place, item.lines) for item in lines if item.lines]
            self.is_changed = any(are_added) or any(placed.is_changed for placed in self.placed.values())
            save(states, self.conversation_id, self._state(), durable=context.is_durable)
            placement.keep()

    async def record(self, found: Found, started: float) -> ConversationRecord:
        """Return the record of what is in place, as `locate` would find it."""
        fetched = self.fetched.values()
        kept = await read_kept(
            self.layout,
            self.conversation_id,
            HostFiles(self.home),
            self.host_main,
            limits=effective_limits(self.context),
            known={item.place: item.entry for item in fetched if item.entry is not None},
            scan=self.fetched[self.main].scan,
        )
        aside = [(path, placed.set_aside) for path, placed in self.placed.items() if placed.set_aside]
        left_out = [*found.left_out, *(LeftOut(_shown(item.path), item.why) for item in self.members.skipped)]
        return ConversationRecord(
            format=self.layout.format,
            conversation_id=self.conversation_id,
            path=self.home.host_path / self.host_main,
            digest=kept.digest,
            files_count=len(kept.entries),
            bytes_count=kept.bytes_count,
            source=self.sandbox.home / self.main,
            received_bytes=self.tally.received_bytes,
            duration_seconds=time.perf_counter() - started,
            left_out=left_out[:MAX_LEFT_OUT_COUNT],
            left_out_count=len(left_out),
            in_use_pid=self.holders[0].pid if self.holders else 0,
            unchanged=not self.is_changed,
            notices=[
                *found.notices,
                *self.notices,
                *(notice for item in fetched for notice in item.notices),
                *(_replaced(self.places[path], str(host_path)) for path, host_path in aside),
                *kept.notices,
            ],
            redactions=redactions_of(list(fetched), self.context.redaction),
        )

    def _fitting(self, saved: SavedConversation | None) -> tuple[SavedConversation | None, str]:
        """Return what can be gone on with; else why not, when that is worth telling."""
        if saved is None:
            return None, ""
        if self.context.redaction is not None and self.context.redaction.rules:
            return None, "what was taken before is not gone on with while there are rules of redaction"
        here = (str(self.sandbox.home), str(self.main), str(self.home.repository))
        if (saved.home, saved.main, saved.destination) != here:
            return None, "the last capture was of another file or for another directory"
        # Without an origin a first one may come that is named in what was taken before, too.
        return (saved, "") if saved.origin is not None else (None, "")

    def _in_use(self) -> Iterator[Notice]:
        for holder in self.holders[:1]:
            process = f"process {holder.pid}" if holder.pid else "a process"
            shown = printable(str(holder.path))
            yield Notice("in_use", f"{process} has the conversation open; only whole lines are taken", shown)

    def _order(self, member: Related) -> Order:
        path, place = member.path, self.places[member.path]
        is_main = path == self.main
        known = self.known.files.get(str(path)) if self.known else None
        if known is not None and known.place != str(place):
            known = None
        saved = known if self.saved and known and known.parts else None
        if is_main and is_compressed(path):
            saved = None
        if is_main and self.main not in self.references:
            origin = self.saved.origin if self.saved and saved else None
        else:
            origin = self.origin or _NOWHERE
        return Order(
            member,
            place,
            origin,
            saved=saved,
            known=known,
            cuts=frozenset(told.offset for told in self.references.values() if told.path == path),
            reference=self._reference(path),
            is_main=is_main,
            saved_scan=self.saved.scan if self.saved and saved and is_main else None,
        )

    def _reference(self, path: PurePosixPath) -> tuple[Reference, int] | None:
        reference = self.references.get(path)
        if reference is None:
            return None
        # What could not be fetched has no places: the number stays as it is.
        other = self.fetched.get(reference.path)
        cuts = other.saved.cuts if other and other.saved else {}
        return reference, cuts.get(reference.offset, reference.offset)

    async def _fetch_one(self, member: Related) -> Fetched:
        """Fetch a file that the conversation is useless without."""
        fetched = self.fetched[member.path] = await self.fetcher.fetch(self._order(member))
        if member.path == self.main:
            self.origin = fetched.origin
        return fetched

    async def _fetch_companion(self, member: Related) -> None:
        """Fetch a file that may fail, with a notice."""
        try:
            await self._fetch_one(member)
        except (SessionError, WorkspaceError) as error:
            if member.required:
                raise
            shown = _shown(member.path)
            self.notices.append(Notice("companion_failed", f"{shown} could not be captured: {error.message}", shown))

    async def _fetch_others(self, others: Sequence[Related]) -> None:
        waiting = iter(others)

        async def work() -> None:
            for member in waiting:
                await self._fetch_companion(member)

        async with task_group() as group:
            for _ in range(_MAX_CONCURRENT_COUNT):
                group.create_task(work())

    async def _fetch_bound(self, path: PurePosixPath, before: tuple[PurePosixPath, ...]) -> None:
        """Fetch a transcript, first the one that it refers to: only then it is known what number belongs there."""
        if path in before:
            raise SessionError("corrupt", f"{_shown(path)} refers to itself by way of other transcripts")
        if path in self.references:
            await self._fetch_bound(self.references[path].path, (*before, path))
        if path not in self.fetched:
            await self._fetch_companion(next(member for member in self.members.all if member.path == path))

    async def _read_references(self) -> None:
        """Ask the layout which transcripts refer to others."""
        names = self.members.transcripts
        waiting, found = iter(names), dict[PurePosixPath, "Reference"]()

        async def work() -> None:
            for path in waiting:
                reference = self.layout.reference(await self.files.first_line(path), path, names)
                if reference is None:
                    continue
                if reference.path not in names:
                    raise ConfigurationError(
                        "invalid_argument",
                        f"the layout refers to {_shown(reference.path)}, which is no transcript of the conversation",
                        hint="see TranscriptLayout.reference",
                    )
                found[path] = reference

        async with task_group() as group:
            for _ in range(_MAX_CONCURRENT_COUNT):
                group.create_task(work())
        self.references = found

    async def _find_origin(self) -> str | None:
        """Read the main transcript up to the line that names a working directory."""
        blocks = LineBlocks()
        unpack = Decompressor().feed if is_compressed(self.main) else lambda data: iter((data,))

        def look(data: bytes) -> None:
            for piece in unpack(data):
                for block in blocks.feed(piece):
                    if (origin := find_origin(block)) is not None:
                        raise _OriginFoundError(origin)

        try:
            await self.context.connected.files.read(self.sandbox.home / self.main, look, after_chunk=self.tally.add)
        except _OriginFoundError as found:
            return found.origin
        return find_origin(blocks.rest)

    def _check_said(self) -> None:
        scan = self.fetched[self.main].scan
        if (scan is None or not scan.has_record) and not self.context.allow_empty:
            raise SessionError(
                "empty",
                f"nothing was said in the transcript {printable(str(self.sandbox.home / self.main))}",
                hint="allow it with allow_empty (--allow-empty)",
            )

    def _state(self) -> SavedConversation:
        main = self.fetched[self.main]
        scan = main.scan
        line_bytes = main.saved.line_bytes if main.saved else 0
        nul_at = scan.nul_at if scan and scan.nul_at is not None and scan.nul_at < line_bytes else None
        files = {
            str(path): replace(item.saved, identity=self.placed[path].identity)
            for path, item in self.fetched.items()
            if item.saved is not None
        }
        return SavedConversation(
            source=str(self.sandbox.home / self.main),
            home=str(self.sandbox.home),
            main=str(self.main),
            origin=self.origin,
            destination=str(self.home.repository),
            files=files,
            scan=SavedScan(
                origin=scan.origin if scan else None,
                nul_at=nul_at,
                has_record=scan is not None and scan.has_record,
                collected=scan.collected if scan else {},
            ),
        )


class _OriginFoundError(Exception):
    """The line with the working directory was met."""

    def __init__(self, origin: str) -> None:
        super().__init__(origin)
        self.origin = origin


@contextmanager
def _locked(folder: Folder) -> Iterator[None]:
    """Keep other captures into the folder from placing at the same time."""
    with host_failures(folder.host_path):
        fcntl.flock(folder.fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(folder.fd, fcntl.LOCK_UN)


def _shown(path: PurePosixPath) -> str:
    return printable(str(path))


def _replaced(place: PurePosixPath, host_path: str) -> Notice:
    message = f"the host's {_shown(place)} held something else and was set aside"
    return Notice("replaced_on_host", message, printable(host_path))
