"""All files of a conversation on their way out of the sandbox: which, in what order, and what they need of each other.

The one rule: what one file decides for another (the origin, the place of an offset, which files belong at all) is taken
from that file as it was fetched, so that what is kept fits together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from host_client.errors import SessionError, WorkspaceError, printable
from host_client.sandbox.task import in_thread, task_group
from host_client.session.compression import Decompressor, is_compressed
from host_client.session.line_block import LineBlocks
from host_client.session.origin import find_origin
from host_client.stores.contract import Notice
from host_client.stores.layout import Conversation, Reference, Related
from host_client.stores.relay_spool import NotStreamableError
from host_client.stores.transcript_copy import HostCopies, conversation_places, host_copies
from host_client.stores.transcript_fetch import Fetcher, NoTailError
from host_client.stores.transcript_files import SandboxFiles, versions
from host_client.stores.transcript_home import HostFiles
from host_client.stores.transcript_kept import effective_limits
from host_client.stores.transcript_member import Members, members
from host_client.stores.transcript_order import Order, full_capture, refused
from host_client.stores.transcript_reference import NOWHERE, circular, read_reference
from host_client.stores.transcript_tally import Tally

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import PurePath

    from host_client.session.folder import Folder
    from host_client.session.transcript_state import SavedConversation, SavedFile
    from host_client.session.transcript_writer import Staging
    from host_client.stores.context import ConversationContext
    from host_client.stores.layout import SandboxPlace, TranscriptLayout
    from host_client.stores.relay_spool import Spool
    from host_client.stores.transcript_files import Version
    from host_client.stores.transcript_home import HostHome
    from host_client.stores.transcript_order import Fetched

_MAX_CONCURRENT_COUNT = 8
"""Files that are fetched at the same time: each costs a round trip."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a conversation lies in the sandbox, and where it goes on the host.

    Attributes:
        layout: Of the conversation.
        conversation_id: Its id.
        context: Where and how.
        sandbox: The sandbox's place.
        main: The main transcript, below the home there.
        home: The home of the host.
        host_main: Where the main transcript goes, below that home.
        in_use: Whether a process has it open: only whole lines are taken.
    """

    layout: TranscriptLayout
    conversation_id: str
    context: ConversationContext
    sandbox: SandboxPlace
    main: PurePosixPath
    home: HostHome
    host_main: PurePosixPath
    in_use: bool

    @property
    def has_rules(self) -> bool:
        """Whether anything is redacted."""
        return self.context.redaction is not None and bool(self.context.redaction.rules)

    def redacted(self, path: str) -> str:
        """Return a path as it may be told and kept."""
        return path if self.context.redaction is None else self.context.redaction.redact_path(path)


@dataclass
class Gathering:
    """The files of one conversation, fetched into a staging folder by `run`.

    Attributes:
        route: From where to where.
        staging: The folder.
        states: What captures left of the format's conversations.
        saved: What the last capture left, if it can be gone on with.
        known: The same, also where it is only to tell whose the host's files are.
        origin: The working directory that the main transcript was recorded in; None: it names none.
        members: The files.
        places: Where each goes on the host.
        copies: What the host has of the same conversations elsewhere.
        fetched: What was fetched; a file that may fail and did is not among it.
        notices: What should be known.
        spool: What others read the files from while they come; None: nobody does.
    """

    route: Route
    staging: Staging
    states: Folder
    saved: SavedConversation | None
    known: SavedConversation | None
    notices: list[Notice] = field(default_factory=list)
    spool: Spool | None = None
    origin: str | None = None
    members: Members = field(init=False)
    places: Mapping[PurePosixPath, PurePosixPath] = field(init=False)
    copies: HostCopies = field(default_factory=HostCopies)
    fetched: dict[PurePosixPath, Fetched] = field(default_factory=dict)

    def __post_init__(self) -> None:
        route, context = self.route, self.route.context
        self.tally = Tally(effective_limits(context), context.progress)
        self._files = SandboxFiles(context.connected.files, route.sandbox.home)
        self._references: Mapping[PurePosixPath, Reference] = {}
        self._fetcher = Fetcher(
            route.layout,
            context,
            sandbox_home=route.sandbox.home,
            home=route.home,
            staging=self.staging,
            tally=self.tally,
            in_use=route.in_use,
            spool=self.spool,
        )
        self.places = {route.main: route.host_main}
        self._go_on()

    async def run(self) -> None:
        """Fetch everything.

        Raises:
            NoTailError: what the last capture left cannot be gone on with.
            NotStreamableError: there is a spool, and files that need others to be whole first.
            ConflictError: `other_bucket`: this host has a conversation elsewhere that no capture left there, and its
                CLI might take that one.
            SessionError: `empty`, `redaction_unsupported`, `corrupt`, and those of `Fetcher.fetch`.
            OutpostError: others of `Fetcher.fetch` and of the layout.
        """
        route, own = self.route, Related(self.route.main, "transcript", required=True)
        collected: Mapping[str, frozenset[str]] = {}
        if self.spool is not None:
            await self._open_spool(self.spool)
        if route.layout.collected_keys:
            scan = (await self._fetch(own)).scan
            collected = scan.collected if scan else {}
        told = Conversation(route.conversation_id, route.main, self._files, collected)
        self.members = await members(route.layout, told)
        if route.context.redaction is not None:
            route.context.redaction.check_names(str(member.path) for member in self.members.all)
        self.places = self.members.places(route.host_main)
        wanted = conversation_places(route.layout, self.members, self.places)
        self.copies = await in_thread(host_copies, route.layout, HostFiles(route.home), wanted, self.states)
        self.notices += self.copies.notices
        counted = (member.path for member in self.members.related if member.kind != "lines")
        sizes = (self._files.sizes.get(path, 0) for path in counted)
        self.tally.expect(files_count=len(self.members.all), bytes_count=sum(sizes))
        self._references = await self._read_references()
        bound = {*self._references, *(reference.path for reference in self._references.values())}
        if self.spool is not None:
            self._tell_members(self.spool)
        if route.main in self._references:
            early = self.fetched.pop(route.main, None)
            knows = self.saved or early
            self.origin = knows.origin if knows else await self._find_origin()
        elif route.main not in self.fetched or route.main in bound:
            await self._fetch(own)
        await self._fetch_bound(bound)
        await self._fetch_others([member for member in self.members.related if member.path not in bound])
        if failure := refused(list(self.fetched.values())):
            raise failure
        self._check_said()
        self.tally.finish()

    @property
    def received_bytes(self) -> int:
        """What the sandbox's files had to send."""
        return self.tally.received_bytes + self._files.received_bytes

    @property
    def versions(self) -> Mapping[PurePosixPath, Version]:
        """What the files beside the main transcript looked like before they were fetched."""
        return versions(self.members, self._files)

    async def _open_spool(self, spool: Spool) -> None:
        if is_compressed(self.route.main):
            raise NotStreamableError
        spool.open(self.route.home, self.route.host_main)
        await self._files.exists(self.route.main)
        spool.expected_bytes = self._files.sizes.get(self.route.main, 0)

    def _tell_members(self, spool: Spool) -> None:
        """Tell which files come, unless one of them cannot be moved before another, or it itself, is whole."""
        named = [replace(member, path=self.places[member.path]) for member in self.members.related]
        transcripts = [member.path for member in named if member.kind == "transcript"]
        others = map(self.route.layout.conversation_id, transcripts)
        if self._references or any(map(is_compressed, transcripts)) or any(others):
            raise NotStreamableError
        spool.members = Members(self.route.host_main, named, ())
        spool.expected_bytes += sum(self._files.sizes.get(member.path, 0) for member in self.members.related)

    def _go_on(self) -> None:
        """Look whether the last capture was from here to there; take note why not, when that is worth telling."""
        saved, route = self.saved, self.route
        if saved is None:
            return
        here = (str(route.sandbox.home), str(route.main), str(route.home.repository))
        why = ""
        if route.has_rules:
            why = "while there are rules of redaction nothing is gone on with"
        elif (saved.home, saved.main, saved.destination) != here:
            why = "the last capture was of another file or for another directory"
        if why:
            self.notices.append(full_capture(_shown(route.main), why))
        # Without an origin a first one may come that is named in what was taken before, too.
        if why or saved.origin is None:
            self.saved = None

    def _saved_file(self, path: PurePosixPath) -> SavedFile | None:
        """Return what the last capture left of a file that can be gone on with."""
        saved = self.saved.files.get(str(path)) if self.saved else None
        is_scanned_whole = path == self.route.main and is_compressed(path)
        if saved is None or not saved.parts or saved.place != str(self.places[path]) or is_scanned_whole:
            return None
        return saved

    def _order(self, member: Related) -> Order:
        path, place = member.path, self.places[member.path]
        is_main = path == self.route.main
        known = self.known.files.get(str(path)) if self.known else None
        if known is not None and known.place != str(place):
            known = None
        saved = self._saved_file(path)
        origin: str | None = self.origin or NOWHERE
        if is_main and path not in self._references:
            origin = self.saved.origin if self.saved and saved else None
        return Order(
            member,
            place,
            origin,
            saved=saved,
            known=known,
            cuts=frozenset(told.offset for told in self._references.values() if told.path == path),
            reference=self._reference(path),
            is_main=is_main,
            is_as_before=not self.route.has_rules
            and self.known is not None
            and self.known.destination == str(self.route.home.repository),
            saved_scan=self.saved.scan if self.saved and saved and is_main else None,
        )

    def _reference(self, path: PurePosixPath) -> tuple[Reference, int] | None:
        reference = self._references.get(path)
        if reference is None:
            return None
        # What could not be fetched has no places: the number stays as it is.
        other = self.fetched.get(reference.path)
        cuts = other.saved.cuts if other and other.saved else {}
        return reference, cuts.get(reference.offset, reference.offset)

    async def _fetch(self, member: Related) -> Fetched:
        order = self._order(member)
        try:
            fetched = await self._fetcher.fetch(order)
        except NoTailError as error:
            if order.is_main or order.cuts or order.reference or await self._refers(member.path):
                raise
            # Nothing else depends on this file.
            fetched = await self._fetcher.fetch(replace(order, saved=None))
            self.notices.append(full_capture(_shown(member.path), str(error)))
        self.fetched[member.path] = fetched
        if order.is_main:
            self.origin = fetched.origin
        return fetched

    async def _refers(self, path: PurePosixPath) -> bool:
        first_line = await self._files.first_line(path)
        return read_reference(self.route.layout, first_line, path, self.members.transcripts) is not None

    async def _fetch_companion(self, member: Related) -> None:
        """Fetch a file that may fail, with a notice, unless the conversation is useless without it."""
        try:
            await self._fetch(member)
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

    async def _fetch_bound(self, bound: Collection[PurePosixPath]) -> None:
        """Fetch transcripts, each behind the one that it refers to: only then it is known what number belongs there."""
        named = {member.path: member for member in self.members.all}
        tried = set(self.fetched)
        for start in sorted(bound):
            chain: dict[PurePosixPath, None] = {}  # as long as a sandbox likes: no recursion
            path: PurePosixPath | None = start
            while path is not None and path not in tried:
                if path in chain:
                    raise circular(path)
                chain[path] = None
                reference = self._references.get(path)
                path = None if reference is None else reference.path
            for one in reversed(chain):
                await self._fetch_companion(named[one])
                tried.add(one)

    async def _read_references(self) -> Mapping[PurePosixPath, Reference]:
        """Ask the layout which transcripts refer to others."""
        found: dict[PurePosixPath, Reference] = {}
        transcripts = self.members.transcripts
        waiting = iter(transcripts)

        async def work() -> None:
            for path in waiting:
                reference = await self._read_reference(path, transcripts)
                if reference is not None:
                    found[path] = reference

        async with task_group() as group:
            for _ in range(_MAX_CONCURRENT_COUNT):
                group.create_task(work())
        return found

    async def _read_reference(self, path: PurePosixPath, transcripts: Sequence[PurePosixPath]) -> Reference | None:
        saved = self._saved_file(path)
        if saved is not None:
            # The daemon compares the first line with the rest of what was taken: it need not be sent again.
            told = saved.reference and Reference(PurePosixPath(saved.reference[0]), saved.reference[1], (0, 0))
            # Where the other one was moved meanwhile, the fetcher sees that this is not what was saved.
            return told if told and told.path in transcripts else None
        try:
            first_line = await self._files.first_line(path)
        except (SessionError, WorkspaceError):
            return None  # fetching it will fail in the same way, and is told then
        return read_reference(self.route.layout, first_line, path, transcripts)

    async def _find_origin(self) -> str | None:
        """Read the main transcript up to the line that names a working directory."""
        main, blocks, looked_bytes = self.route.main, LineBlocks(), 0
        unpack = Decompressor().feed if is_compressed(main) else lambda data: iter((data,))

        def look(data: bytes) -> None:
            nonlocal looked_bytes
            for piece in unpack(data):
                looked_bytes += len(piece)
                self.tally.check(looked_bytes)
                for block in blocks.feed(piece):
                    if (origin := find_origin(block)) is not None:
                        raise _OriginFoundError(origin)

        files = self.route.context.connected.files
        try:
            await files.read(self.route.sandbox.home / main, look, after_chunk=self.tally.add)
        except _OriginFoundError as found:
            return found.origin
        return find_origin(blocks.rest)

    def _check_said(self) -> None:
        scan = self.fetched[self.route.main].scan
        if (scan is None or not scan.has_record) and not self.route.context.allow_empty:
            raise nothing_said(self.route.sandbox.home / self.route.main)


def nothing_said(path: PurePath) -> SessionError:
    """Return the failure about a transcript that has no record."""
    return SessionError(
        "empty",
        f"nothing was said in the transcript {printable(str(path))}",
        hint="the CLI would not resume it; allow it with allow_empty (--allow-empty)",
    )


class _OriginFoundError(Exception):
    """The line with the working directory was met."""

    def __init__(self, origin: str) -> None:
        super().__init__(origin)
        self.origin = origin


def _shown(path: PurePosixPath) -> str:
    return printable(str(path))
