"""The words of a bundle call: which session is meant, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox_api.names import check_conversation_id
from sandbox_api.v1 import bundle_pb2
from sandbox_api.wire import pack_profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import PurePosixPath

    from sandbox_api.manifest import Entry
    from sandbox_api.profile import Profile


@dataclass(frozen=True, slots=True)
class Place:
    """Names one session of a sandbox.

    Attributes:
        profile: Its format.
        conversation_id: Its id.
        variables: The CLI's environment where it differs from the daemon's own.
        follow_root_link: Whether a CLI home that is itself a link is accepted.
    """

    profile: Profile
    conversation_id: str
    variables: Mapping[str, str] = field(default_factory=dict)
    follow_root_link: bool = False

    def packed(self) -> bundle_pb2.Place:
        """Return the wire form.

        Raises:
            ConfigurationError: `invalid_id`.
        """
        return bundle_pb2.Place(
            profile=pack_profile(self.profile),
            id=check_conversation_id(self.conversation_id),
            variables=self.variables,
            follow_root_link=self.follow_root_link,
        )


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One session that is there.

    Attributes:
        conversation_id: Its id.
        path: Its directory, or its main transcript.
        modified: Newest change of its required files; None when it has none of them.
        complete: Whether all required files are there.
        in_use_pid: Process that has it open; 0: none is known.
        bytes_count: Size of its transcript; None: not counted.
    """

    conversation_id: str
    path: PurePosixPath
    modified: datetime | None
    complete: bool
    in_use_pid: int
    bytes_count: int | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An entry that was not taken along; the path is printable.

    Attributes:
        path: Below the session directory, or below the CLI home.
        why: Of a session directory `not_selected` or `symlink`; else in words, such as `lock of the CLI`.
    """

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Captured:
    """A capture that was verified as a whole.

    Attributes:
        source: The session directory.
        entries: The files, each with the SHA-256 of its whole content.
        digest: The bundle digest, as the daemon committed to it and as computed here.
        received_bytes: Size of the payload.
        left_out: What was left out on purpose, at most 100 entries.
        left_out_count: Number of all entries left out.
        in_use_pid: Process that has the session open; 0: none is known.
    """

    source: PurePosixPath
    entries: Sequence[Entry]
    digest: bytes
    received_bytes: int
    left_out: Sequence[LeftOut]
    left_out_count: int
    in_use_pid: int


@dataclass(frozen=True, slots=True)
class Restored:
    """A restore that was committed.

    Attributes:
        target: The session directory.
        unchanged: The session was there already, byte for byte; nothing was changed.
        recovery: Name of what was replaced, in the recovery folder; empty when nothing was.
        files_count: Files as placed.
        bytes_count: Sum of their sizes.
        sent_bytes: Size of the payload.
        digest: Bundle digest of what was placed, after relocation.
        relocated: Files that relocation changed, printable, at most 100.
        not_atomic: For a moment no session was in place, since the file system cannot exchange directories.
        resumed_bytes: What a broken restore of the same id had left there already.
    """

    target: PurePosixPath
    unchanged: bool
    recovery: str
    files_count: int
    bytes_count: int
    sent_bytes: int
    digest: bytes
    relocated: Sequence[str]
    not_atomic: bool
    resumed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RecoveryItem:
    """A session that a restore or an undo set aside.

    Attributes:
        name: Its name in the recovery folder.
        conversation_id: Its id.
        session_path: The directory it was taken from; None when that is not known.
        set_aside: When.
    """

    name: str
    conversation_id: str
    session_path: PurePosixPath | None
    set_aside: datetime


@dataclass(frozen=True, slots=True)
class Undone:
    """An undo that was committed: the session directory, and the name of what it replaced (empty: nothing)."""

    target: PurePosixPath
    recovery: str
