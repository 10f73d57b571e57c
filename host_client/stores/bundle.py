"""Conversations whose CLI keeps a directory per session: kept on the host as bundle JSON v1.

The one rule: what a record names has been verified end to end, and a failure leaves the host's file as it was.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

from host_client.errors import OutpostError, SessionError, WorkspaceError, printable
from host_client.sandbox.place import Place
from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.session.bundle import Folder, SavedBundle
from host_client.stores import bundle_comparison, local
from host_client.stores.contract import ConversationRecord, FollowUpdate, RestoreOutcome
from host_client.stores.keeping import keep
from host_client.stores.patience import Patience
from sandbox_api.limits import Limits
from sandbox_api.names import check_conversation_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from host_client.sandbox.place import RecoveryItem, Restored, SessionSummary, Undone
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import Comparison
    from host_client.stores.profile import SessionBundleProfile
    from host_client.stores.relay_spool import Spool
    from sandbox_api.profile import Profile

STEPS = (".outpost", "conversations")
"""From the repository or conversation home to the folders of the formats."""


class SessionBundleConversations:
    """The `NativeConversationStore` of one session-directory format.

    Args:
        profile: What the CLI's session directory is.

    Attributes:
        format: Name of the format.
        profile: The profile as plain data, as daemons take it.
        logs: Which files of a session are only ever added to; None: it is not known.
    """

    def __init__(self, profile: SessionBundleProfile) -> None:
        self.profile: Profile = profile.compile()
        self.format: str = self.profile.format
        self.logs = profile.logs

    def directory(self, context: ConversationContext) -> Path:
        """Return the host directory that keeps the format's conversations.

        Raises:
            ConfigurationError: `invalid_argument`: the context names neither repository nor conversation home.
        """
        return context.base.joinpath(*STEPS, self.format)

    def destination(self, conversation_id: str, context: ConversationContext) -> Path:
        """Return the host file that keeps one conversation.

        Raises:
            ConfigurationError: `invalid_id`, `invalid_argument`.
        """
        return self.directory(context) / f"{check_conversation_id(conversation_id)}.json"

    async def locate(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Find the saved bundle, verify it whole and run the format's `validate` hook on it.

        When none is saved, a session of that id in the user's own CLI home on this host is captured and saved, so
        that a conversation that began outside can go on. A private daemon does both; nothing in the CLI home changes.

        Raises:
            SessionError: `not_found`: neither is there; `corrupt`, `digest_mismatch`, `unsafe_name`,
                `missing_required`, `invalid`, `hook_*`: the saved file is wrong, and stays as it is; those of `capture`
                for the user's own session.
            ConfigurationError: `invalid_id`, `invalid_argument`.
            LimitError: `max_bytes`, `max_files`.
            WorkspaceError: `unsafe_path`: a link below the conversation home.
        """
        host_path = self.destination(conversation_id, context)
        async with opened_in_thread(self._open, conversation_id, context) as saved:
            if saved is not None:
                return await self._validated(saved, context.effective_limits)
        try:
            async with local.user_home(self.profile, context) as adopting:
                return await self.capture(conversation_id, adopting)
        except SessionError as error:
            if error.reason != "not_found":
                raise
            raise SessionError(
                "not_found",
                f"no {self.format} conversation {conversation_id} is saved at {printable(str(host_path))}, "
                f"and this host's {self.format} has none",
                hint="capture it first, or give the directory that has it",
                facts={"path": str(host_path)},
            ) from None

    async def validate(
        self, host_path: Path, conversation_id: str, *, limits: Limits | None = None
    ) -> ConversationRecord:
        """Verify a bundle file wherever it lies, the format's `validate` hook included, and return its record.

        Raises:
            SessionError: `not_found`, and those of `locate` about a wrong file.
            ConfigurationError: `invalid_id`.
            LimitError: `max_bytes`, `max_files`.
        """
        check_conversation_id(conversation_id)
        effective = limits or Limits()
        async with opened_in_thread(SavedBundle.open, host_path, self.profile, conversation_id, effective) as saved:
            return await self._validated(saved, effective)

    async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Copy one session out of the sandbox, verify it and keep it on the host.

        What the saved file has already is not sent again. The record is returned only after every content matches its
        digest and all of them the digest that the daemon committed to. When the saved file has that digest already it
        is left untouched. On failure or cancel it is as before, and nothing in the sandbox changes in any case.
        With a redaction in the context, file and record are of the redacted contents.

        Raises:
            SessionError: `not_found`, `ambiguous`, `symlink`, `special_file`, `unsafe_name`, `changed` (after
                `context.retries` further attempts), `missing_required`, `empty`, `invalid`, `live_database`, `hook_*`;
                `protocol`, `incomplete`, `digest_mismatch`: the daemon broke its word; `redaction_unsupported`.
            ConfigurationError: `invalid_id`, `invalid_argument`.
            LimitError: `max_bytes`, `max_files`, `max_depth`, `disk_full`, `read_only`.
            WorkspaceError: `unsafe_path`: a link below the conversation home; `not_found`: there is no such directory.
            UnavailableError: the daemon went away; safe to repeat.
        """
        return await self.capture_spooled(conversation_id, context, None)

    async def capture_spooled(
        self, conversation_id: str, context: ConversationContext, spool: Spool | None
    ) -> ConversationRecord:
        """Capture, and let others read the contents while they come; for a relay.

        Raises:
            NotStreamableError: that cannot be done with this context.
            OutpostError: those of `capture`.
        """
        host_path = self.destination(conversation_id, context)
        started = time.perf_counter()
        place = Place(self.profile, conversation_id, context.variables, context.follow_root_link)
        kept = await keep(place, self._steps, context, spool)
        captured = kept.captured
        return ConversationRecord(
            format=self.format,
            conversation_id=conversation_id,
            path=host_path,
            digest=captured.digest.hex(),
            files_count=len(captured.entries),
            bytes_count=sum(entry.size for entry in captured.entries),
            source=captured.source,
            received_bytes=captured.received_bytes,
            duration_seconds=time.perf_counter() - started,
            left_out=captured.left_out,
            left_out_count=captured.left_out_count,
            in_use_pid=captured.in_use_pid,
            unchanged=not kept.is_new,
            redactions=kept.redactions,
        )

    async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
        """Put a kept session in place in the sandbox, relocated to its workspace, in one atomic step.

        What the sandbox has already is not sent, and with `context.restore_id` what a broken attempt has left there.
        Restoring what is there changes nothing and says so. An outcome is returned only after the daemon's commit; on
        failure or cancel the sandbox has its old session.

        Raises:
            ConfigurationError: `format_mismatch`, `invalid_id`, `invalid_argument`, `invalid_bucket`, `owner`.
            SessionError: `not_found`, `corrupt`, `digest_mismatch`: the saved file is gone, wrong, or no longer the
                record's; `invalid`, `hook_*`.
            ConflictError: `in_use`, `other_bucket`, `target_changed`, `busy`.
            LimitError: any reason.
            UnavailableError: the daemon went away; safe to repeat.
        """
        conversation_id = record.checked_id(self.format)
        sandbox = context.connected
        started = time.perf_counter()
        async with opened_in_thread(
            SavedBundle.open, record.path, self.profile, conversation_id, context.effective_limits, believed=True
        ) as saved:
            self.check_digest(saved, record)
            restored = await sandbox.bundles.restore(
                Place(self.profile, conversation_id, context.variables, context.follow_root_link),
                saved,
                limits=context.limits,
                full_durability=context.is_durable,
                owner=context.owner,
                force=context.force,
                progress=context.progress,
                restore_id=context.restore_id,
            )
        return self.outcome_of(conversation_id, restored, started)

    def outcome_of(self, conversation_id: str, restored: Restored, started_seconds: float) -> RestoreOutcome:
        """Return what came of a restore that began at that time, by `time.perf_counter`."""
        return RestoreOutcome(
            format=self.format,
            conversation_id=conversation_id,
            target=restored.target,
            unchanged=restored.unchanged,
            recovery=restored.recovery,
            digest=restored.digest.hex(),
            files_count=restored.files_count,
            bytes_count=restored.bytes_count,
            sent_bytes=restored.sent_bytes,
            relocated=restored.relocated,
            not_atomic=restored.not_atomic,
            duration_seconds=time.perf_counter() - started_seconds,
            resumed_bytes=restored.resumed_bytes,
        )

    async def compare(self, record: ConversationRecord, context: ConversationContext) -> Comparison:
        """Tell what the sandbox has of a kept session; see `NativeConversationStore`.

        The profile's `logs` decide; without them all files do. What the host has already is not sent. Where the
        session was relocated, both are put into one place by a private daemon on this host, and compared there.

        Raises:
            ConfigurationError: `format_mismatch`, `invalid_id`.
            SessionError: `not_found`, `corrupt`, `digest_mismatch`: the saved file is gone, wrong, or no longer the
                record's; those of `capture` about what is in the sandbox, except that a session that is not whole, or
                that the format's hook refuses, is `diverged`.
            LimitError: any reason.
            UnavailableError: the daemon went away; safe to repeat.
        """
        return await bundle_comparison.compare(self, record, context)

    def check_digest(self, saved: SavedBundle, record: ConversationRecord) -> None:
        """Make sure that a saved bundle is the one that a record names.

        Raises:
            SessionError: `digest_mismatch`.
        """
        if saved.digest.hex() != record.digest:
            raise SessionError(
                "digest_mismatch",
                f"the saved bundle {printable(str(record.path))} is no longer the one of the record",
                hint="locate the conversation again",
            )

    async def follow(
        self,
        conversation_id: str,
        context: ConversationContext,
        *,
        interval_seconds: float = 10.0,
        patience_seconds: float = 60.0,
    ) -> AsyncGenerator[FollowUpdate, None]:
        """Keep the host's copy of a session up to date by captures, until this is closed.

        The first capture is told, and each later one that changed the copy. One that meets a change is left out, since
        the next is to come. A sandbox that cannot be reached, and a session that is gone or empty for the moment, is
        waited for. Closing or cancelling leaves the copy as the last capture made it.

        Args:
            conversation_id: The session; it must be there.
            context: As for `capture`.
            interval_seconds: Time between two captures.
            patience_seconds: How long failures that may pass are borne before the last one comes out.

        Raises:
            UnavailableError: the sandbox was away for too long.
            OutpostError: those of `capture`.
        """
        patience = Patience(patience_seconds)
        record = await self.capture(conversation_id, context)
        yield FollowUpdate(path=record.path, size_bytes=record.bytes_count, record=record)
        while True:
            await patience.sleep(interval_seconds)
            try:
                record = await self.capture(conversation_id, context)
            except OutpostError as error:
                if (error.code, error.reason) != ("session", "changed"):
                    await patience.bear(error)
                continue
            patience.succeed()
            if not record.unchanged:
                yield FollowUpdate(path=record.path, size_bytes=record.bytes_count, record=record)

    async def list_sessions(self, context: ConversationContext) -> AsyncIterator[SessionSummary]:
        """Yield the sessions of the sandbox; see `NativeConversationStore`.

        Raises:
            SessionError: `root_symlink`, `symlink`.
        """
        found = context.connected.bundles.list(
            self.profile, variables=context.variables, follow_root_link=context.follow_root_link
        )
        async for item in found:
            yield item

    async def list_recovery(
        self, context: ConversationContext, conversation_id: str = ""
    ) -> AsyncIterator[RecoveryItem]:
        """Yield what restores have set aside in the sandbox; see `NativeConversationStore`."""
        found = context.connected.bundles.list_recovery(
            self.profile,
            conversation_id=conversation_id,
            variables=context.variables,
            follow_root_link=context.follow_root_link,
        )
        async for item in found:
            yield item

    async def undo_restore(self, conversation_id: str, context: ConversationContext, name: str = "") -> Undone:
        """Put back what a restore has set aside, in one atomic step; see `NativeConversationStore`.

        Raises:
            SessionError: `not_found`, `ambiguous`.
            ConflictError: `in_use`, `other_bucket`, `target_changed`, `busy`.
        """
        place = Place(self.profile, conversation_id, context.variables, context.follow_root_link)
        return await context.connected.bundles.undo_restore(place, name, force=context.force)

    async def prune_recovery(
        self,
        context: ConversationContext,
        conversation_id: str = "",
        *,
        keep_count: int | None = None,
        older_than_seconds: int | None = None,
    ) -> Sequence[str]:
        """Remove what restores have set aside in the sandbox; see `NativeConversationStore`.

        Raises:
            ConfigurationError: `invalid_argument`: neither rule was given.
        """
        return await context.connected.bundles.prune_recovery(
            self.profile,
            conversation_id=conversation_id,
            keep_count=keep_count,
            older_than_seconds=older_than_seconds,
            variables=context.variables,
            follow_root_link=context.follow_root_link,
        )

    @property
    def _steps(self) -> tuple[str, ...]:
        return (*STEPS, self.format)

    def _open(self, conversation_id: str, context: ConversationContext) -> AbstractContextManager[SavedBundle | None]:
        """Open the saved bundle; the context of None when there is none."""
        host_path = self.destination(conversation_id, context)
        try:
            with Folder.open(context.base, self._steps, create=False) as folder:
                return SavedBundle.open(
                    host_path, self.profile, conversation_id, context.effective_limits, fd=folder.fd
                )
        except (SessionError, WorkspaceError) as error:
            if error.reason != "not_found":
                raise
            return nullcontext()

    async def _validated(self, saved: SavedBundle, limits: Limits) -> ConversationRecord:
        await in_thread(saved.verify)
        if self.profile.validate:
            await local.validate(self.profile, saved, limits)
        return ConversationRecord(
            format=self.format,
            conversation_id=saved.conversation_id,
            path=saved.host_path,
            digest=saved.digest.hex(),
            files_count=len(saved.entries),
            bytes_count=sum(entry.size for entry in saved.entries),
            source=saved.source,
        )
