"""What a store of conversations is: it captures, locates and restores the conversations of one format.

The one rule: a result exists only for what was verified end to end; a failure raises and returns nothing that could
be resumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from host_client.errors import ConfigurationError, printable
from sandbox_api.names import check_conversation_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
    from pathlib import Path, PurePosixPath

    from host_client.sandbox.place import LeftOut, RecoveryItem, SessionSummary, Undone
    from host_client.stores.context import ConversationContext
    from sandbox_api.profile import Profile

Comparison = Literal["absent", "same", "ahead", "behind", "diverged"]
"""What a sandbox has of a kept conversation: nothing; the same; more, since it went on there; less, since it went on
elsewhere; something else."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a caller should know about an operation that succeeded.

    Attributes:
        reason: Stable machine word; `docs/errors.md` lists them.
        message: One sentence for people, without a final stop.
        path: The file it is about, escaped for printing; empty: none.
        offset: Where in the file, in bytes; None: nowhere in particular.
    """

    reason: str
    message: str
    path: str = ""
    offset: int | None = None


@dataclass(frozen=True, kw_only=True)
class ConversationRecord:
    """A conversation that is kept on the host, verified.

    Attributes:
        format: Its format.
        conversation_id: Its id.
        path: Its file on the host.
        digest: SHA-256 of the whole content, in hex: the bundle digest, of files as they are on the host.
        files_count: Files of the session.
        bytes_count: Sum of their sizes.
        source: Path of the session in the sandbox it was captured from.
        received_bytes: What the capture moved; 0 when the record was located.
        duration_seconds: What the capture took; 0 when the record was located.
        left_out: What the capture left out on purpose, at most 100 entries.
        left_out_count: Number of all entries left out.
        in_use_pid: Process that had the session open during the capture; 0: none is known.
        unchanged: The file on the host had that content already and was left as it was.
        reference: Where an archive keeps it; None: in no archive.
        notices: What else should be known, such as a torn last line.
        redactions: Hits of each rule of the capture's redaction, by its name; empty when there was none.
    """

    format: str
    conversation_id: str
    path: Path
    digest: str
    files_count: int
    bytes_count: int
    source: PurePosixPath
    received_bytes: int = 0
    duration_seconds: float = 0.0
    left_out: Sequence[LeftOut] = ()
    left_out_count: int = 0
    in_use_pid: int = 0
    unchanged: bool = False
    reference: object | None = None
    notices: Sequence[Notice] = ()
    redactions: Mapping[str, int] = field(default_factory=dict)

    def checked_id(self, format_name: str) -> str:
        """Return the id, for a store of that format that is to restore it.

        Raises:
            ConfigurationError: `format_mismatch`, `invalid_id`.
        """
        if self.format != format_name:
            raise ConfigurationError(
                "format_mismatch",
                f"a record of the format '{printable(self.format)}' cannot be restored as {format_name!r}",
                hint="restore it with the store of its own format",
            )
        return check_conversation_id(self.conversation_id)


@dataclass(frozen=True, kw_only=True)
class FollowUpdate:
    """The host's copy of a followed conversation has changed.

    Attributes:
        path: The file of the host: the one that grew, or the main one after a capture.
        appended_bytes: By how much it grew; 0 after a capture.
        lines_count: How many lines that was.
        size_bytes: Size of the file; after a capture, of all files.
        record: What a capture kept; None: lines were appended.
    """

    path: Path
    appended_bytes: int = 0
    lines_count: int = 0
    size_bytes: int
    record: ConversationRecord | None = None


@dataclass(frozen=True, kw_only=True)
class RestoreOutcome:
    """A conversation that is in place in a sandbox, committed by its daemon.

    Attributes:
        format: Its format.
        conversation_id: Its id, by which the CLI resumes it.
        target: The session directory, or the main transcript.
        unchanged: It was there already, byte for byte; nothing was changed.
        recovery: Name of what was replaced, in the recovery folder of the CLI home; empty when nothing was.
        digest: Bundle digest of what is in place, after relocation, in hex.
        files_count: Files that are in place.
        bytes_count: Sum of their sizes.
        sent_bytes: What the restore moved.
        relocated: Files that relocation changed, printable, at most 100.
        not_atomic: For a moment no session was in place, since the file system cannot exchange directories.
        duration_seconds: What the restore took.
        notices: What else should be known, such as a companion that is not on the host.
        resumed_bytes: What a broken restore of the same id had left in the sandbox already, and was not sent again.
    """

    format: str
    conversation_id: str
    target: PurePosixPath
    unchanged: bool
    recovery: str
    digest: str
    files_count: int
    bytes_count: int
    sent_bytes: int
    relocated: Sequence[str]
    not_atomic: bool
    duration_seconds: float
    notices: Sequence[Notice] = ()
    resumed_bytes: int = 0


class ConversationStore(Protocol):
    """Captures, locates and restores conversations.

    Attributes:
        format: Name of the format it keeps; None when it keeps several.
    """

    @property
    def format(self) -> str | None:
        """Return the format's name."""

    async def locate(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Find the kept conversation of that id and verify it.

        Raises:
            SessionError: `not_found`, or what is wrong with what is kept.
        """

    async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Copy the conversation out of the sandbox, verify it and keep it.

        On failure or cancel what was kept before is untouched, and nothing in the sandbox changes in any case.
        """

    async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
        """Put a kept conversation in place in the sandbox.

        On failure or cancel the sandbox has its old session, and no outcome exists that could be resumed.

        Raises:
            ConfigurationError: `format_mismatch`: the record is of another format.
        """


class NativeConversationStore(ConversationStore, Protocol):
    """A store of one CLI's conversations, which also knows where they lie in a sandbox."""

    @property
    def format(self) -> str:
        """Return the format's name."""

    @property
    def profile(self) -> Profile:
        """Return the place of the format as a daemon is told it, such as for `Sandbox.diagnose`."""

    def directory(self, context: ConversationContext) -> Path:
        """Return the host directory that keeps the conversations."""

    def destination(self, conversation_id: str, context: ConversationContext) -> Path:
        """Return the host file that keeps one conversation; it may have to be looked for, which blocks.

        Raises:
            ConfigurationError: `invalid_id`.
        """

    async def compare(self, record: ConversationRecord, context: ConversationContext) -> Comparison:
        """Tell what the sandbox has of a kept conversation, before a restore would replace it.

        Both are compared as a restore would make them: relocation alone makes no difference. Nothing is written on
        either side. `diverged` is told of what cannot be made out, too.

        Raises:
            ConfigurationError: `format_mismatch`: the record is of another format.
            SessionError: what is kept is not what the record names, or what is in the sandbox cannot be read.
        """

    def follow(
        self,
        conversation_id: str,
        context: ConversationContext,
        *,
        interval_seconds: float = ...,
        patience_seconds: float = ...,
    ) -> AsyncGenerator[FollowUpdate, None]:
        """Keep the host's copy of a conversation up to date while its CLI works, and tell of it, until this is closed.

        What was received stays, whatever ends it.

        Args:
            conversation_id: The conversation; it must be there.
            context: As for `capture`.
            interval_seconds: Least time between two updates.
            patience_seconds: How long a sandbox that is away is waited for.
        """

    def list_sessions(self, context: ConversationContext) -> AsyncIterator[SessionSummary]:
        """Yield the conversations of the sandbox, by path; none when the CLI home does not exist."""

    def list_recovery(self, context: ConversationContext, conversation_id: str = "") -> AsyncIterator[RecoveryItem]:
        """Yield what restores have set aside in the sandbox, newest first; of one conversation when its id is given."""

    async def undo_restore(self, conversation_id: str, context: ConversationContext, name: str = "") -> Undone:
        """Put back what a restore has set aside in the sandbox; what is there now is set aside in turn.

        Args:
            conversation_id: The conversation.
            context: Has the sandbox; `force` replaces a conversation that a running process has open.
            name: Name of the entry; empty: the newest of the conversation.

        Raises:
            SessionError: `not_found`.
            ConflictError: `in_use`, `other_bucket`, `target_changed`, `busy`.
        """

    async def prune_recovery(
        self,
        context: ConversationContext,
        conversation_id: str = "",
        *,
        keep_count: int | None = None,
        older_than_seconds: int | None = None,
    ) -> Sequence[str]:
        """Remove what restores have set aside in the sandbox and return the names.

        Args:
            context: Has the sandbox.
            conversation_id: Only entries of this conversation; empty: all.
            keep_count: Keep that many of the newest of each conversation.
            older_than_seconds: Remove what was set aside longer ago. An entry goes when any rule says so.

        Raises:
            ConfigurationError: `invalid_argument`: neither rule was given.
        """
