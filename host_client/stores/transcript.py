"""Conversations whose CLI keeps a transcript each: kept on the host where the CLI itself would look for them.

The one rule: on both sides the files lie below one home of the layout, and nothing else below it is touched.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from host_client.errors import OutpostError, SessionError, printable
from host_client.sandbox.place import RecoveryItem, SessionSummary, Undone
from host_client.sandbox.task import in_thread
from host_client.session.folder import Folder
from host_client.session.transcript_state import load
from host_client.stores import transcript_capture, transcript_comparison, transcript_follow, transcript_restore
from host_client.stores.bundle import STEPS
from host_client.stores.contract import ConversationRecord, RestoreOutcome
from host_client.stores.patience import Patience
from host_client.stores.transcript_gathering import nothing_said
from host_client.stores.transcript_home import HostFiles, HostHome
from host_client.stores.transcript_kept import MAX_LEFT_OUT_COUNT, effective_limits, find_kept, read_kept
from host_client.stores.transcript_place import sandbox_place, transcripts
from sandbox_api.lock import MAX_SIGNS_COUNT
from sandbox_api.names import check_conversation_id, check_format
from sandbox_api.profile import Profile

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import Comparison, FollowUpdate
    from host_client.stores.layout import TranscriptLayout

_TOGETHER_COUNT = 32
"""Conversations whose processes are asked for in one call."""


class TranscriptConversations:
    """The `NativeConversationStore` of one transcript format.

    Args:
        layout: Where the CLI keeps its transcripts.

    Attributes:
        format: Name of the format.
        layout: The layout.

    Raises:
        ConfigurationError: `invalid_profile`: the layout's format is no name.
    """

    def __init__(self, layout: TranscriptLayout) -> None:
        self.format: str = check_format(layout.format)
        self.layout = layout

    @property
    def profile(self) -> Profile:
        """The place of the format, as a daemon's `diagnose` looks at it; nothing else reads it."""
        home = PurePosixPath("/")
        root = self.layout.root
        sessions = self.layout.remote_search_root(home).relative_to(home)
        return Profile(
            format=self.format,
            root_variable=(root.variable or "") if root else "",
            root_directory=root.directory if root else sessions.parts[0],
            sessions=str(PurePosixPath(*sessions.parts[0 if root else 1 :])) if sessions.parts else "sessions",
            buckets=False,
            include=re.compile(""),
            exclude=None,
            required=("transcript",),
            relocated=(),
            validate="",
            bucket="",
            relocate="",
            lock=None,
        )

    def directory(self, context: ConversationContext) -> Path:
        """Return the host directory that keeps the transcripts of the context's repository.

        Raises:
            ConfigurationError: `invalid_argument`: the context names neither repository nor conversation home.
            SessionError: `root_symlink`.
        """
        home = HostHome.of(self.layout, context)
        return self.layout.directory(home.repository, home.host_path)

    def destination(self, conversation_id: str, context: ConversationContext) -> Path:
        """Return the transcript of the host that keeps one conversation, or that a capture would make; blocks.

        Where the layout derives the name of a new transcript from the one in the sandbox, which is not known here, this
        is its answer for a transcript named after the id, directly in the folder below which it looks in a sandbox.

        Raises:
            ConfigurationError: `invalid_id`, `invalid_argument`.
            SessionError: `ambiguous`, `root_symlink`.
        """
        home = HostHome.of(self.layout, context)
        found = find_kept(self.layout, check_conversation_id(conversation_id), HostFiles(home))
        if found is not None:
            return home.host_path / found.main
        preferred = self.layout.preferred_path(conversation_id, home.repository, home.host_path)
        if preferred is not None:
            return preferred
        original = self.layout.remote_search_root(PurePosixPath(home.host_path)) / f"{conversation_id}.jsonl"
        return self.layout.capture_path(conversation_id, home.repository, home.host_path, original)

    async def locate(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Find a conversation of this host, one that the user's own CLI made included, and read all of it.

        The digest of the record is that of its files as they are now. Nothing is changed.

        Raises:
            SessionError: `not_found`; `ambiguous`: several transcripts have the id, and none is the repository's own;
                `empty`: nothing was said in it, unless the context allows that; `missing_required`, `unsafe_name`,
                `corrupt`, `root_symlink`.
            ConfigurationError: `invalid_id`, `invalid_argument`.
            LimitError: `max_bytes`, `max_files`.
            WorkspaceError: `unsafe_path`: a link below the home; `access`.
        """
        check_conversation_id(conversation_id)
        home = await in_thread(HostHome.of, self.layout, context)
        files = HostFiles(home)
        found = await in_thread(find_kept, self.layout, conversation_id, files)
        if found is None:
            directory = printable(str(self.layout.search_root(home.host_path)))
            raise SessionError(
                "not_found",
                f"no {self.format} conversation {conversation_id} is below {directory}",
                hint="capture it first, or give the home that has it",
                facts={"path": directory},
            )
        kept = await read_kept(self.layout, conversation_id, files, found.main, limits=effective_limits(context))
        host_path = home.host_path / found.main
        if not kept.scan.has_record and not context.allow_empty:
            raise nothing_said(host_path)
        left_out = [*found.left_out, *kept.left_out]
        return ConversationRecord(
            format=self.format,
            conversation_id=conversation_id,
            path=host_path,
            digest=kept.digest,
            files_count=len(kept.entries),
            bytes_count=kept.bytes_count,
            source=await in_thread(self._source, conversation_id, context, home, found.main),
            left_out=left_out[:MAX_LEFT_OUT_COUNT],
            left_out_count=len(left_out),
            notices=[*found.notices, *kept.notices],
        )

    async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Copy one conversation out of the sandbox to where this host's own CLI would look for it, relocated.

        The record is returned only after everything that arrived matches its digest and is in place. What only grew is
        not sent again. When the host's files have that content already they are left untouched. A host file that held
        something else is set aside, never lost, and so is what an earlier capture left where the sandbox's CLI has
        moved or compressed a transcript since. On failure or cancel the host's files are as before, and nothing in the
        sandbox changes in any case.

        Raises:
            SessionError: `not_found`, `ambiguous`, `empty`, `changed` (after `context.retries` further attempts),
                `missing_required`, `unsafe_name`, `root_symlink`, `symlink`, `corrupt`; `protocol`, `incomplete`,
                `digest_mismatch`: the daemon broke its word.
            ConfigurationError: `invalid_id`, `invalid_argument`.
            ConflictError: `other_bucket`: this host has the conversation, or one that it needs, elsewhere, not as an
                earlier capture left it, and its CLI might take that one.
            LimitError: `max_bytes`, `max_files`, `max_depth`, `disk_full`, `read_only`.
            WorkspaceError: `unsafe_path`: a link below the home; `access`.
            UnavailableError: the daemon went away; safe to repeat.
        """
        return await transcript_capture.capture(self.layout, check_conversation_id(conversation_id), context)

    async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
        """Put a conversation of this host in place in the sandbox, relocated to its workspace, as one step.

        What it replaces is set aside. Restoring what is there changes nothing and says so, and so does restoring to the
        very place that it is kept at. An outcome is returned only after the daemon's commit; on failure or cancel the
        sandbox has its old files. The host's files are never changed.

        Raises:
            ConfigurationError: `format_mismatch`, `invalid_id`, `invalid_argument`, `owner`.
            SessionError: `digest_mismatch`: what is kept is no longer what the record names; `missing_required`,
                `unsafe_name`, `corrupt`, `root_symlink`, `symlink`.
            ConflictError: `other_bucket`: the id lies elsewhere below the sandbox's home; `in_use`, `target_changed`,
                `busy`.
            WorkspaceError: `not_found`: the record's file is gone; `unsafe_path`, `not_a_file`, `mounted`, `access`.
            LimitError: any reason.
            UnavailableError: the daemon went away; safe to repeat.
        """
        record.checked_id(self.format)
        return await transcript_restore.restore(self.layout, record, context)

    async def compare(self, record: ConversationRecord, context: ConversationContext) -> Comparison:
        """Tell what the sandbox has of a kept conversation; see `NativeConversationStore`.

        The main transcript decides, moved to the sandbox's workspace; one that is the same counts as `behind` while
        another file of the conversation is missing there. Digests tell, and nothing is sent, unless they cannot: then
        the sandbox's conversation is captured into a folder that is gone afterwards.

        Raises:
            ConfigurationError: `format_mismatch`, `invalid_id`, `invalid_argument`.
            SessionError: `ambiguous`: the sandbox has several of the id; those of `restore` about what is kept, except
                that nothing but the main transcript is read, and those of `capture`.
            WorkspaceError: `not_found`: the record's file is gone; `unsafe_path`, `access`.
            UnavailableError: the daemon went away; safe to repeat.
        """
        record.checked_id(self.format)
        return await transcript_comparison.compare(self.layout, record, context)

    async def follow(
        self,
        conversation_id: str,
        context: ConversationContext,
        *,
        interval_seconds: float = 0.5,
        patience_seconds: float = 60.0,
    ) -> AsyncGenerator[FollowUpdate, None]:
        """Keep the host's copy of a conversation up to date while its CLI works, until this is closed.

        It begins with a capture. From then on whole lines that are appended to the transcripts, those of children
        included, are verified and added to the host's files as they come; at any moment, also after a kill, these are
        a beginning of what they are going to be. Whatever else happens to a transcript, and every ten seconds what
        became of the other files while it grew, is taken over by a capture; one of those that changed anything is told,
        too. Lines that came since the last update are on the host; the copy is kept up while the next update is asked
        for. A conversation that is already where it would be kept is captured, and that is all.

        A sandbox that cannot be reached, and a conversation that is gone, empty or changing for the moment, is
        waited for, and then this goes on where it was. Closing or cancelling leaves the host's copy whole and captures
        nothing more; the next capture or follow brings only what is new.

        Args:
            conversation_id: The conversation; it must be there.
            context: As for `capture`. With full durability an update is told once it would survive a power loss.
            interval_seconds: Least time between two updates of one file; above 0, at most 60.
            patience_seconds: How long failures that may pass are borne before the last one comes out.

        Raises:
            ConflictError: `busy`: the conversation is followed already.
            UnavailableError: the sandbox was away for too long, or its daemon is too old.
            OutpostError: those of `capture`.
        """
        check_conversation_id(conversation_id)
        patience = Patience(patience_seconds)
        updates = transcript_follow.follow(
            self.layout, conversation_id, context, patience, interval_seconds=interval_seconds
        )
        async with aclosing(updates):
            async for update in updates:
                yield update

    async def list_sessions(self, context: ConversationContext) -> AsyncIterator[SessionSummary]:
        """Yield the conversations of the sandbox, by path; none when the home does not exist.

        Raises:
            SessionError: `root_symlink`, `symlink`.
            LimitError: `max_files`, `max_depth`.
        """
        place = await sandbox_place(self.layout, context)
        found = [(one, info) async for one, _, info in transcripts(self.layout, context, place)]
        for start in range(0, len(found), _TOGETHER_COUNT):
            together = found[start : start + _TOGETHER_COUNT]
            pids = await self._holders(context, place.home, [conversation_id for conversation_id, _ in together])
            for conversation_id, info in together:
                yield SessionSummary(
                    conversation_id=conversation_id,
                    path=info.path,
                    modified=info.modified,
                    complete=info.size > 0,
                    in_use_pid=pids.get(conversation_id, 0),
                    bytes_count=info.size,
                )

    async def _holders(
        self, context: ConversationContext, home: PurePosixPath, conversation_ids: Sequence[str]
    ) -> Mapping[str, int]:
        """Return the processes that have conversations open. All are asked for at once, since mostly none is."""
        find = context.connected.transcripts.find_holders
        locks = {one: self.layout.locks(one) for one in conversation_ids}
        together = [sign for signs in locks.values() for sign in signs]
        if not together or (len(together) <= MAX_SIGNS_COUNT and not await find(home, together)):
            return {}
        return {one: holders[0].pid for one, signs in locks.items() if signs and (holders := await find(home, signs))}

    async def list_recovery(
        self, context: ConversationContext, conversation_id: str = ""
    ) -> AsyncIterator[RecoveryItem]:
        """Yield what restores have set aside in the sandbox, newest first; of one conversation when its id is given."""
        place = await sandbox_place(self.layout, context)
        found = context.connected.transcripts.list_recovery(place.home, self.format, conversation_id)
        async for item in found:
            yield RecoveryItem(
                name=item.name,
                conversation_id=item.conversation_id,
                session_path=self._main(place.home, item.conversation_id, item.files),
                set_aside=item.set_aside,
            )

    async def undo_restore(self, conversation_id: str, context: ConversationContext, name: str = "") -> Undone:
        """Put back what a restore has set aside, as one step; what is there now is set aside in turn.

        Files that the restore had added are taken away.

        Args:
            conversation_id: The conversation.
            context: Has the sandbox; `force` replaces files even when a running process has it open.
            name: Name of the entry; empty: the newest of the conversation.

        Raises:
            SessionError: `not_found`.
            ConflictError: `in_use`, `target_changed`, `busy`.
        """
        place = await sandbox_place(self.layout, context)
        undone = await context.connected.transcripts.undo_restore(
            place.home,
            self.format,
            check_conversation_id(conversation_id),
            name,
            force=context.force,
            locks=self.layout.locks(conversation_id),
        )
        changed = [*undone.restored, *undone.removed]
        return Undone(self._main(place.home, conversation_id, changed) or place.home, undone.recovery)

    async def prune_recovery(
        self,
        context: ConversationContext,
        conversation_id: str = "",
        *,
        keep_count: int | None = None,
        older_than_seconds: int | None = None,
    ) -> Sequence[str]:
        """Remove what restores have set aside in the sandbox and return the names; any rule that says so suffices.

        Raises:
            ConfigurationError: `invalid_argument`: neither rule was given.
        """
        place = await sandbox_place(self.layout, context)
        return await context.connected.transcripts.prune_recovery(
            place.home,
            self.format,
            conversation_id,
            keep_count=keep_count,
            older_than_seconds=older_than_seconds,
        )

    def _source(
        self, conversation_id: str, context: ConversationContext, home: HostHome, main: PurePosixPath
    ) -> PurePosixPath:
        """Return where a transcript of the host was captured from; its own path when no capture is known."""
        own = PurePosixPath(home.host_path / main)
        try:
            with Folder.open(context.base, (*STEPS, self.format), create=False) as folder:
                saved = load(folder, conversation_id)
        except OutpostError:
            return own  # what a capture leaves for the next one is no part of the conversation
        known = saved.files.get(saved.main) if saved else None
        return PurePosixPath(saved.source) if saved and known and known.place == str(main) else own

    def _main(self, home: PurePosixPath, conversation_id: str, paths: Sequence[PurePosixPath]) -> PurePosixPath | None:
        """Return the main transcript among some files; None when it is not one of them."""
        mains = (path for path in paths if self.layout.conversation_id(path) == conversation_id)
        return next((home / path for path in mains), None)
