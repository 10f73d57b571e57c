"""Transcripts of one sandbox: one method per call of `TranscriptService`.

Nothing a daemon sends is trusted, and no success is told before all of it has been checked. What a home is, and that
paths of files are relative to it, is said by `v1/transcript.proto`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.errors import SessionError, printable
from host_client.sandbox import reply
from host_client.sandbox.follow import follow_request
from host_client.sandbox.request import expressible
from host_client.sandbox.restore import MIN_COMMIT_BYTES_PER_SECOND
from host_client.sandbox.task import in_thread
from host_client.sandbox.transcript_restore import OutgoingFiles, restored_of
from sandbox_api.manifest import Entry
from sandbox_api.names import check_conversation_id, check_restore_id
from sandbox_api.v1 import payload_pb2, transcript_pb2
from sandbox_api.wire import pack_locks

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from datetime import datetime
    from pathlib import PurePosixPath

    from host_client.sandbox.connection import Connection
    from host_client.sandbox.follow import FollowHeld, FollowPart, FollowPattern
    from host_client.sandbox.transcript_restore import RestoredTranscript
    from sandbox_api.lock import LockSign

RESUMES = "transcript.restore.id"
"""Capability of a daemon whose restores go on where a broken one was."""

BEAT_SECONDS = 10.0
"""How often a daemon that has nothing to tell of followed files says so."""


@dataclass(frozen=True, slots=True)
class TranscriptSource:
    """A file to put in place.

    Attributes:
        path: Where it goes, below the home.
        pieces: Gives its content; blocks, and so does what it returns: both run in threads. An empty piece says that
            there is nothing yet. With a restore id it is asked for a second time where the content does not begin with
            what an earlier attempt has left.
        mode: Permission bits.
        append_lines: The content is lines to add to a file that other conversations share, where it lacks them.
        placed_last: It takes its place behind those that come later.
    """

    path: PurePosixPath
    pieces: Callable[[], Iterator[bytes]]
    mode: int = 0o600
    append_lines: bool = False
    placed_last: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has a conversation open: its id (0: it cannot be told), and the file that shows it."""

    path: PurePosixPath
    pid: int


@dataclass(frozen=True, slots=True)
class TranscriptRecoveryItem:
    """Files that a restore or an undo set aside.

    Attributes:
        name: Its name in the recovery folder.
        conversation_id: Its conversation.
        set_aside: When.
        files: The files, below the home, at most 100.
        files_count: Number of all of them.
    """

    name: str
    conversation_id: str
    set_aside: datetime
    files: Sequence[PurePosixPath]
    files_count: int


@dataclass(frozen=True, slots=True)
class UndoneTranscript:
    """An undo that was committed.

    Attributes:
        recovery: Name of the entry that holds what was in place before; empty: nothing was.
        restored: Files that were put back, below the home, at most 100.
        removed: Files that were taken away, below the home, at most 100.
    """

    recovery: str
    restored: Sequence[PurePosixPath]
    removed: Sequence[PurePosixPath]


class Transcripts:
    """Restores, follows and recovers the conversations of one sandbox that are files.

    `home` is everywhere the CLI home as `Sandbox.resolve_home` tells it. Every method may raise `ConfigurationError`
    (`invalid_id`, `invalid_argument`), `WorkspaceError` (`outside_roots`, `unsafe_path`, `access`), `SessionError`
    (`protocol` when the daemon breaks the rules), `DeadlineError` (`deadline`: it fell silent) and `UnavailableError`
    (`unsupported`: it is too old). Each says below what else.
    """

    def __init__(self, connection: Connection, capabilities: Collection[str]) -> None:
        self._connection = connection
        self._capabilities = capabilities

    async def restore(
        self,
        home: PurePosixPath,
        format_name: str,
        conversation_id: str,
        sources: Iterable[TranscriptSource | None],
        *,
        wait: Callable[[], Awaitable[None]] | None = None,
        before_commit: Callable[[], None] | None = None,
        full_durability: bool = True,
        owner: tuple[int, int] | None = None,
        force: bool = False,
        locks: Sequence[LockSign] = (),
        expected_bytes: int = 0,
        after_chunk: Callable[[int], None] | None = None,
        restore_id: str = "",
    ) -> RestoredTranscript:
        """Put the files of one conversation in place as one step.

        When this returns the daemon has committed. On failure or cancel the old files are in place, except that a
        failure of the connection after the commit was sent leaves open whether it was done. What a source or
        `before_commit` raises comes out unchanged. With a restore id, a connection that breaks leaves what has arrived
        with the daemon, for some minutes; the next attempt of that id at the same place sends the rest of each file
        that begins with what is there. Daemons that cannot do that begin anew.

        Args:
            home: Created when missing.
            format_name: Name of the format.
            conversation_id: The conversation.
            sources: The files, in the order in which they take their places; advanced in a thread, when the content of
                those before has been made, so that a source may depend on what they did. None says that there is none
                yet.
            wait: Waited for before asking again where there was nothing yet; None: that never happens.
            before_commit: Called in a thread when all content was sent; what it raises prevents the commit.
            full_durability: Whether what is in place must survive a power loss.
            owner: User and group id of what is placed; None: the daemon's own.
            force: Replace files even when a running process has the conversation open.
            locks: Signs of such a process.
            expected_bytes: About how much will be sent, to find early that the disk is too small; 0: not known.
            after_chunk: Told how much content was sent, or was there already, in the event loop's thread.
            restore_id: Names all attempts at this restore; empty: it is the only one.

        Raises:
            SessionError: `empty`, `unsafe_name`, `digest_mismatch`, `incomplete`.
            ConflictError: `in_use`, `target_changed`, `busy`.
            WorkspaceError: `not_a_file`, `mounted`.
            ConfigurationError: `owner`, `invalid_id`.
            LimitError: `max_files`, `max_bytes`, `disk_full`, `read_only`.
        """
        known_id = check_restore_id(restore_id) if RESUMES in self._capabilities else ""
        staged = await self._staged(home, format_name, conversation_id, known_id, expected_bytes) if known_id else {}
        outgoing = OutgoingFiles(sources, wait, staged)
        with expressible():
            header = transcript_pb2.TranscriptRestoreHeader(
                home=os.fsencode(home),
                format=format_name,
                id=check_conversation_id(conversation_id),
                durability=payload_pb2.DURABILITY_FULL if full_durability else payload_pb2.DURABILITY_NONE,
                owner=payload_pb2.Owner(uid=owner[0], gid=owner[1]) if owner else None,
                force=force,
                locks=pack_locks(locks),
                expected_bytes=expected_bytes,
                restore_id=known_id,
            )
        async with self._connection.open(
            "TranscriptService/Restore", transcript_pb2.TranscriptRestoreResponse
        ) as stream:
            await stream.write(transcript_pb2.TranscriptRestoreRequest(header=header))
            await outgoing.send(stream.write_serialized, after_chunk)
            if before_commit is not None:
                await in_thread(before_commit)
            await stream.write(transcript_pb2.TranscriptRestoreRequest(commit=outgoing.commit))
            await stream.finish_writing()
            answer = await stream.only(more_seconds=outgoing.commit_seconds)
        return restored_of(answer, conversation_id, outgoing)

    async def _staged(
        self, home: PurePosixPath, format_name: str, conversation_id: str, restore_id: str, expected_bytes: int
    ) -> Mapping[bytes, Entry]:
        """Ask what earlier attempts have left of files, or of their beginnings, by path."""
        with expressible():
            request = transcript_pb2.TranscriptStagedRequest(
                home=os.fsencode(home),
                format=format_name,
                id=check_conversation_id(conversation_id),
                restore_id=restore_id,
            )
        seconds = expected_bytes / MIN_COMMIT_BYTES_PER_SECOND  # it hashes all of it
        async with self._connection.begin(
            "TranscriptService/ListStaged", request, transcript_pb2.TranscriptStagedFile
        ) as stream:
            listed = reply.listed(stream, more_seconds=seconds)
            return {item.path: Entry(item.path, item.size, reply.digest(item.sha256)) async for item in listed}

    async def follow(
        self,
        home: PurePosixPath,
        *,
        held: Sequence[FollowHeld],
        patterns: Sequence[FollowPattern],
        interval_seconds: float = 0.25,
    ) -> AsyncGenerator[FollowPart, None]:
        """Yield what files have beyond what is held, and then what is appended to them, until this is closed.

        Numbers, offsets and order are checked; the SHA-256 of a mark is for the caller to compare. A connection that
        breaks ends this with a failure, after which it may be begun again with what is held by then.

        Args:
            home: The files lie below it.
            held: What the caller has the beginnings of. A file whose beginning is another begins at 0.
            patterns: Which files.
            interval_seconds: Least time between two parts with new data of one file; above 0, at most 60.

        Raises:
            WorkspaceError: `not_found`: the home; `not_a_file`.
            LimitError: `max_files`.
        """
        request, following = follow_request(home, held, patterns, interval_seconds)
        async with self._connection.begin("TranscriptService/Follow", request, transcript_pb2.FollowResponse) as stream:
            while (message := await stream.read(more_seconds=BEAT_SECONDS)) is not None:
                for part in following.accept(message):
                    yield part
            raise stream.cut()

    async def find_holders(self, home: PurePosixPath, locks: Sequence[LockSign]) -> Sequence[Holder]:
        """Tell which processes hold the signs of an open conversation."""
        with expressible():
            request = transcript_pb2.FindHoldersRequest(home=os.fsencode(home), locks=pack_locks(locks))
        answer = await self._connection.ask(
            "TranscriptService/FindHolders", request, transcript_pb2.FindHoldersResponse
        )
        holders = tuple(Holder(reply.sandbox_path(item.path, "sign of a process"), item.pid) for item in answer.holders)
        if elsewhere := [holder for holder in holders if not holder.path.is_relative_to(home)]:
            raise SessionError("protocol", f"the daemon's '{printable(str(elsewhere[0].path))}' is not in the CLI home")
        return holders

    async def list_recovery(
        self, home: PurePosixPath, format_name: str, conversation_id: str = ""
    ) -> AsyncIterator[TranscriptRecoveryItem]:
        """Yield what restores have set aside, newest first; of one conversation when its id is given."""
        with expressible():
            request = transcript_pb2.TranscriptRecoveryRequest(
                home=os.fsencode(home),
                format=format_name,
                id=conversation_id and check_conversation_id(conversation_id),
            )
        async with self._connection.begin(
            "TranscriptService/ListRecovery", request, transcript_pb2.TranscriptRecoveryEntry
        ) as stream:
            async for item in reply.listed(stream):
                yield _recovery_item(item, conversation_id)

    async def undo_restore(
        self,
        home: PurePosixPath,
        format_name: str,
        conversation_id: str,
        name: str = "",
        *,
        force: bool = False,
        locks: Sequence[LockSign] = (),
    ) -> UndoneTranscript:
        """Put back what a restore has set aside, as one step; what is there now is set aside in turn.

        Args:
            home: The files lie below it.
            format_name: Name of the format.
            conversation_id: The conversation.
            name: Name of the entry; empty: the newest of the conversation.
            force: Replace files even when a running process has the conversation open.
            locks: Signs of such a process.

        Raises:
            SessionError: `not_found`.
            ConflictError: `in_use`, `target_changed`, `busy`.
            WorkspaceError: `mounted`.
        """
        with expressible():
            request = transcript_pb2.TranscriptUndoRequest(
                home=os.fsencode(home),
                format=format_name,
                id=check_conversation_id(conversation_id),
                name=name,
                force=force,
                locks=pack_locks(locks),
            )
        answer = await self._connection.ask(
            "TranscriptService/UndoRestore", request, transcript_pb2.TranscriptUndoResponse
        )
        restored, removed = reply.relative_paths(answer.restored), reply.relative_paths(answer.removed)
        if both := set(restored) & set(removed):
            raise SessionError("protocol", f"the daemon put back and took away '{printable(str(both.pop()))}'")
        recovery = reply.recovery_name(answer.recovery, conversation_id) if answer.recovery else ""
        return UndoneTranscript(recovery, restored, removed)

    async def prune_recovery(
        self,
        home: PurePosixPath,
        format_name: str,
        conversation_id: str = "",
        *,
        keep_count: int | None = None,
        older_than_seconds: int | None = None,
    ) -> Sequence[str]:
        """Remove what restores have set aside and return the names; an entry goes when any rule says so.

        Args:
            home: The files lay below it.
            format_name: Name of the format.
            conversation_id: Only entries of this conversation; empty: all.
            keep_count: Keep that many of the newest of each conversation.
            older_than_seconds: Remove what was set aside longer ago.

        Raises:
            ConfigurationError: `invalid_argument`: neither rule was given.
        """
        with expressible():
            request = transcript_pb2.TranscriptPruneRequest(
                home=os.fsencode(home),
                format=format_name,
                id=conversation_id and check_conversation_id(conversation_id),
                keep_count=keep_count,
                older_than_seconds=older_than_seconds,
            )
        answer = await self._connection.ask(
            "TranscriptService/PruneRecovery", request, transcript_pb2.TranscriptPruneResponse
        )
        return tuple(reply.name(removed) for removed in answer.removed)


def _recovery_item(item: transcript_pb2.TranscriptRecoveryEntry, conversation_id: str) -> TranscriptRecoveryItem:
    found_id = reply.conversation_id(item.id)
    files = reply.relative_paths(item.files)
    if (conversation_id and found_id != conversation_id) or item.files_count < len(files):
        raise SessionError("protocol", f"the daemon's recovery entry of {found_id} is not what was asked for")
    return TranscriptRecoveryItem(
        name=reply.recovery_name(item.name, found_id),
        conversation_id=found_id,
        set_aside=reply.moment(item.set_aside),
        files=files,
        files_count=item.files_count,
    )
