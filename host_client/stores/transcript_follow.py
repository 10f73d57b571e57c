"""The host's copy of a transcript conversation, kept up to date while its CLI works.

The one rule: lines that are appended to a known transcript are added to the host's as they come; whatever else happens
is left to a capture, which is incremental, and then the files are followed again.
"""

from __future__ import annotations

from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from host_client.errors import DeadlineError, OutpostError, UnavailableError
from host_client.sandbox.follow import FollowBegin, FollowData, FollowMark
from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.session.folder import Folder
from host_client.session.transcript_claim import Claim
from host_client.session.transcript_growth import OtherContentError
from host_client.stores.bundle import STEPS
from host_client.stores.contract import FollowUpdate
from host_client.stores.layout import Conversation
from host_client.stores.transcript_capture import captured
from host_client.stores.transcript_files import SandboxFiles, versions
from host_client.stores.transcript_followed import FollowedFiles
from host_client.stores.transcript_kept import effective_limits
from host_client.stores.transcript_member import members

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping
    from pathlib import PurePosixPath

    from host_client.session.transcript_growth import TranscriptGrowth
    from host_client.stores.context import ConversationContext
    from host_client.stores.layout import TranscriptLayout
    from host_client.stores.patience import Patience
    from host_client.stores.transcript_capture import Captured
    from host_client.stores.transcript_files import Version

MAX_BATCH_BYTES = 8 << 20
"""More that comes at once, of all files together, is left to a capture, which needs no memory for it."""

COMPANIONS_SECONDS = 10.0
"""Least time between two looks at the files that are no transcripts."""

_SAVE_SECONDS = 5.0
_CAPTURE_SHARE, _COMPANIONS_SHARE = 1 / 5, 1 / 50
"""Shares of the time that captures, and looks at companions, may take at most."""


async def follow(
    layout: TranscriptLayout,
    conversation_id: str,
    context: ConversationContext,
    patience: Patience,
    *,
    interval_seconds: float,
) -> AsyncGenerator[FollowUpdate, None]:
    """Keep a conversation up to date; see `TranscriptConversations.follow`."""

    @contextmanager
    def claimed() -> Iterator[Folder]:
        steps = (*STEPS, layout.format)
        with (
            Folder.open(context.base, steps, create=True, durable=context.is_durable) as states,
            Claim(states, conversation_id),
        ):
            yield states

    async with opened_in_thread(claimed) as states:
        follower = _Follower(
            layout, conversation_id, context, states, patience=patience, interval_seconds=interval_seconds
        )
        yield await follower.capture()
        is_current = True
        try:
            while follower.is_needed:
                try:
                    if not is_current:
                        update = await follower.capture()
                        is_current = True
                        if update.record is None or not update.record.unchanged:
                            yield update
                    async with aclosing(follower.grow()) as updates:
                        async for update in updates:
                            yield update
                    is_current = False
                except OutpostError as error:
                    is_current = is_current and isinstance(error, (UnavailableError, DeadlineError))
                    await patience.bear(error)
        finally:
            # What led here is to be told; the next capture can do without.
            with suppress(OutpostError):
                await follower.save()


class _Follower:
    """What is known of one followed conversation: the last capture, and its files as they went on since."""

    def __init__(
        self,
        layout: TranscriptLayout,
        conversation_id: str,
        context: ConversationContext,
        states: Folder,
        *,
        patience: Patience,
        interval_seconds: float,
    ) -> None:
        self._layout = layout
        self._id = conversation_id
        self._context = context
        self._states = states
        self._patience = patience
        self._interval_seconds = interval_seconds
        self._limits = effective_limits(context)
        self._captured: Captured
        self._files: FollowedFiles | None = None
        self._passed_over: set[PurePosixPath] = set()
        self._kept_bytes = 0
        self._has_grown = False
        self._capture_at = self._look_at = self._save_at = 0.0

    @property
    def is_needed(self) -> bool:
        """Whether the host's copy is another file than the sandbox's."""
        return self._files is not None

    async def capture(self) -> FollowUpdate:
        """Capture the conversation, as far as that is new.

        Raises:
            OutpostError: those of `TranscriptConversations.capture`.
        """
        clock = self._patience.clock
        if (wait_seconds := self._capture_at - clock()) > 0:
            await self._patience.sleep(wait_seconds)
        await self.save()
        began = clock()
        self._captured = done = await captured(self._layout, self._id, self._context)
        ended = clock()
        self._capture_at = ended + (ended - began) / _CAPTURE_SHARE
        self._plan_look(ended - began)
        self._save_at = ended + _SAVE_SECONDS
        self._patience.succeed()
        self._kept_bytes = done.record.bytes_count
        if done.saved is not None and done.members is not None:
            self._files = FollowedFiles(done.route, done.saved, done.members.transcripts, self._states, self._files)
        return FollowUpdate(path=done.record.path, size_bytes=self._kept_bytes, record=done.record)

    async def save(self) -> None:
        """Keep for the next capture what is known by now."""
        if self._files is not None:
            await in_thread(self._files.save)

    async def grow(self) -> AsyncGenerator[FollowUpdate, None]:
        """Follow the transcripts; ends when a capture is needed.

        Raises:
            OutpostError: those of `Transcripts.follow`.
        """
        files = self._files
        if files is None:
            return
        home = self._captured.route.sandbox.home
        parts = self._context.connected.transcripts.follow(
            home, held=files.held, patterns=files.patterns, interval_seconds=self._interval_seconds
        )
        arriving = _Arrivals()
        async with aclosing(parts):
            async for part in parts:
                self._patience.succeed()
                match part:
                    case FollowBegin(number, path, offset):
                        is_growth = self._begins(files, path, offset)
                        if files.size_bytes(path) is not None:
                            arriving.begin(number, path, files.growth(path))
                    case FollowData(number, _, data):
                        is_growth = arriving.take(number, data)
                    case FollowMark(number, _, sha256) if data := arriving.collect(number):
                        update = await self._advance(files, arriving.files[number], data, sha256)
                        is_growth = update is not None
                        if update is not None:
                            yield update
                    case FollowMark(number, _, sha256):
                        is_growth = number not in arriving.files or arriving.files[number].is_marked(sha256)
                    case _:
                        is_growth = await SandboxFiles(self._context.connected.files, home).exists(
                            self._captured.route.main
                        )
                if not is_growth or await self._has_new_companions(files):
                    return

    def _begins(self, files: FollowedFiles, path: PurePosixPath, offset: int) -> bool:
        """Tell whether a file goes on behind what the host has, or is none of the conversation's."""
        if (size_bytes := files.size_bytes(path)) is not None:
            return offset == size_bytes
        if path in self._passed_over:
            return True
        self._passed_over.add(path)  # unless the capture that comes now takes it up
        return False

    async def _advance(
        self, files: FollowedFiles, arriving: _Arriving, data: bytes, sha256: bytes
    ) -> FollowUpdate | None:
        """Add what came of a file to the host's; None when only a capture can."""
        growth = arriving.growth
        if growth is None:
            return None
        self._limits.check(bytes_count=self._kept_bytes + len(data), files_count=0)
        is_save_due = self._patience.clock() >= self._save_at
        before_bytes = growth.saved.size

        def advance() -> None:
            files.advance(growth, data, sha256)
            if is_save_due:
                files.save()

        try:
            await in_thread(advance)
        except OtherContentError:
            return None
        if is_save_due:
            self._save_at = self._patience.clock() + _SAVE_SECONDS
        self._has_grown = True
        appended_bytes = growth.saved.size - before_bytes
        self._kept_bytes += appended_bytes
        return FollowUpdate(
            path=files.host_paths[arriving.path],
            appended_bytes=appended_bytes,
            lines_count=data.count(b"\n"),
            size_bytes=growth.saved.size,
        )

    async def _has_new_companions(self, files: FollowedFiles) -> bool:
        """Look whether the conversation's other files are what they were, once in a while."""
        began = self._patience.clock()
        if not self._has_grown or began < self._look_at:
            return False
        self._has_grown = False
        route = self._captured.route
        there = SandboxFiles(self._context.connected.files, route.sandbox.home)
        named = await members(self._layout, Conversation(self._id, route.main, there, files.scan.collected))
        self._plan_look(self._patience.clock() - began)

        def unfollowed(found: Mapping[PurePosixPath, Version]) -> Mapping[PurePosixPath, Version]:
            return {path: version for path, version in found.items() if files.growth(path) is None}

        return unfollowed(versions(named, there)) != unfollowed(self._captured.versions)

    def _plan_look(self, took_seconds: float) -> None:
        pause_seconds = max(COMPANIONS_SECONDS, took_seconds / _COMPANIONS_SHARE)
        self._look_at = self._patience.clock() + pause_seconds


@dataclass(slots=True)
class _Arriving:
    """A file of one stream: how it is gone on with, and what came since its last mark."""

    path: PurePosixPath
    growth: TranscriptGrowth | None
    pieces: list[bytes] = field(default_factory=list)

    def is_marked(self, sha256: bytes) -> bool:
        """Tell whether that is the digest of what came since the beginning, nothing of which is kept here."""
        return self.growth is None or self.growth.is_marked(sha256)


class _Arrivals:
    """The files of one stream, and what of them waits for a mark: bounded, however many begin and are never marked.

    Attributes:
        files: Each by the number that it has now.
    """

    def __init__(self) -> None:
        self.files: dict[int, _Arriving] = {}
        self._numbers: dict[PurePosixPath, int] = {}
        self._waiting_bytes = 0

    def begin(self, number: int, path: PurePosixPath, growth: TranscriptGrowth | None) -> None:
        """Begin a file; what came of it under an older number is forgotten."""
        if path in self._numbers:
            before = self._numbers[path]
            self.collect(before)
            del self.files[before]
        if growth is not None:
            growth.begin()
        self.files[number] = _Arriving(path, growth)
        self._numbers[path] = number

    def take(self, number: int, data: bytes) -> bool:
        """Keep data until its mark; tell whether that could be done. What no file needs is passed over."""
        file = self.files.get(number)
        if file is None or file.growth is None:
            return file is None
        file.pieces.append(data)
        self._waiting_bytes += len(data)
        return self._waiting_bytes <= MAX_BATCH_BYTES

    def collect(self, number: int) -> bytes:
        """Return what came of a file since its last mark, and forget it."""
        if number not in self.files:
            return b""
        data = b"".join(self.files[number].pieces)
        self.files[number].pieces.clear()
        self._waiting_bytes -= len(data)
        return data
