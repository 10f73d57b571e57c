"""Bundles of one sandbox: one method per call of `BundleService`.

Nothing a daemon sends is trusted, and no success is told before the whole of it has been checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import UnavailableError
from host_client.sandbox import reply
from host_client.sandbox.capture import Reception, held_files
from host_client.sandbox.place import Captured, RecoveryItem, SessionSummary, Undone
from host_client.sandbox.progress import Reporter
from host_client.sandbox.request import expressible
from host_client.sandbox.restore import Outgoing
from host_client.sandbox.restore_call import answer_of, conclude, header_of
from host_client.sandbox.restore_stream import OutgoingStream
from host_client.sandbox.task import in_thread, task_group
from sandbox_api.names import check_conversation_id, check_restore_id
from sandbox_api.v1 import bundle_pb2
from sandbox_api.wire import pack_limits, pack_profile

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from host_client.sandbox.capture import CaptureSink
    from host_client.sandbox.connection import Connection, Stream
    from host_client.sandbox.place import Place, Restored
    from host_client.sandbox.progress import Progress
    from host_client.sandbox.restore import RestoreSource
    from sandbox_api.limits import Limits
    from sandbox_api.manifest import Entry
    from sandbox_api.profile import Profile

RESUMES = "bundle.restore.id"
"""Capability of a daemon whose restores go on where a broken one was."""

STREAMS = "bundle.restore.stream"
"""Capability of a daemon that takes restores whose digests follow."""


class Bundles:
    """Captures, restores and recovers the session directories of one sandbox.

    Every method may raise `ConfigurationError` (`invalid_profile`, `invalid_id`), `WorkspaceError` (`outside_roots`),
    `SessionError` (`symlink`, `root_symlink`; `protocol` when the daemon breaks the rules), `DeadlineError`
    (`deadline`: it fell silent) and `UnavailableError`. Each says below what else.

    Args:
        connection: The calls go through it.
        limits: Limits of a call that names none.
        daemon_limits: The daemon's own.
        capabilities: What the daemon can do.
    """

    def __init__(
        self, connection: Connection, limits: Limits, daemon_limits: Limits, capabilities: Collection[str]
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._daemon_limits = daemon_limits
        self._capabilities = capabilities

    async def list(
        self, profile: Profile, *, variables: Mapping[str, str] | None = None, follow_root_link: bool = False
    ) -> AsyncIterator[SessionSummary]:
        """Yield the sessions of one format, by path; none when the CLI home does not exist."""
        with expressible():
            request = bundle_pb2.ListRequest(
                profile=pack_profile(profile), variables=variables, follow_root_link=follow_root_link
            )
        async with self._connection.begin("BundleService/List", request, bundle_pb2.ListResponse) as stream:
            async for item in reply.listed(stream):
                yield SessionSummary(
                    conversation_id=reply.conversation_id(item.id),
                    path=reply.sandbox_path(item.path, "session path"),
                    modified=reply.moment(item.modified) if item.HasField("modified") else None,
                    complete=item.complete,
                    in_use_pid=item.in_use_pid,
                )

    async def capture(
        self,
        place: Place,
        sink: CaptureSink,
        *,
        limits: Limits | None = None,
        skip_links: bool = False,
        held: Sequence[Entry] = (),
        progress: Callable[[Progress], None] | None = None,
        before_chunk: Callable[[], Awaitable[None]] | None = None,
    ) -> Captured:
        """Copy one session into a sink and return what was verified; nothing in the sandbox changes.

        Receiving goes on while the sink works on what came before. On failure or cancel the sink is told to abort,
        after its running method has ended.

        Args:
            place: The session.
            sink: Takes the content.
            limits: Ours; the smaller of these and the daemon's holds. None: those of the connection.
            skip_links: Leave selected links out, named in the result, instead of refusing them.
            held: Files the host has with that content; they are not sent again, or from their old end on when they
                grew.
            progress: Told at most ten times a second, and at the end.
            before_chunk: Waited for before each piece is handed to the sink.

        Raises:
            SessionError: `not_found`, `ambiguous`, `special_file`, `unsafe_name`, `changed`, `missing_required`,
                `empty`, `invalid`,
                `live_database`, `hook_*`, `digest_mismatch`, `incomplete`.
            LimitError: `max_bytes`, `max_files`, `max_depth`, `max_manifest_bytes`.
        """
        ours = limits or self._limits
        named = held_files(held)
        policy = bundle_pb2.LINK_POLICY_SKIP if skip_links else bundle_pb2.LINK_POLICY_REFUSE
        with expressible():
            request = bundle_pb2.CaptureRequest(place=place.packed(), limits=pack_limits(ours), links=policy)
        for entry in named.values():
            request.held.add(path=entry.path, size=entry.size, sha256=entry.sha256)
        reception = Reception(sink, ours.smaller(self._daemon_limits), named)
        try:
            async with self._connection.begin("BundleService/Capture", request, bundle_pb2.CaptureResponse) as stream:
                captured = await _receive(stream, reception, Reporter(progress), before_chunk)
        except BaseException:
            await in_thread(sink.abort)
            raise
        return captured

    async def restore(
        self,
        place: Place,
        source: RestoreSource,
        *,
        limits: Limits | None = None,
        full_durability: bool = True,
        owner: tuple[int, int] | None = None,
        force: bool = False,
        progress: Callable[[Progress], None] | None = None,
        restore_id: str = "",
    ) -> Restored:
        """Put one session in place, atomically; what the daemon has already is not sent.

        When this returns the daemon has committed. On failure or cancel the old session is in place, except that a
        failure of the connection after the trailer leaves it open whether the commit came first. With a restore id, a
        connection that breaks leaves what has arrived with the daemon, for some minutes; the next attempt of that id at
        the same place sends the rest, after both sides have compared what is there. Daemons that cannot do that begin
        anew.

        Args:
            place: The session.
            source: Gives the content.
            limits: Ours; the smaller of these and the daemon's holds. None: those of the connection.
            full_durability: Whether what is in place must survive a power loss.
            owner: User and group id of what is placed; None: the daemon's own.
            force: Replace the session even when a running process has it open.
            progress: Told at most ten times a second, and at the end.
            restore_id: Names all attempts at this restore; empty: it is the only one.

        Raises:
            SessionError: `corrupt`, `digest_mismatch`, `incomplete`, `unsafe_name`, `missing_required`, `invalid`,
                `hook_*`.
            ConflictError: `in_use`, `other_bucket`, `target_changed`, `busy`.
            ConfigurationError: `invalid_bucket`, `owner`, `invalid_id`.
            LimitError: any reason.
        """
        check_restore_id(restore_id)
        ours = limits or self._limits
        outgoing = Outgoing(source, ours.smaller(self._daemon_limits))
        reporter = Reporter(progress)
        header = header_of(place, ours, outgoing.manifest, full_durability=full_durability, owner=owner, force=force)
        header.digest = outgoing.digest
        header.restore_id = restore_id if RESUMES in self._capabilities else ""
        async with self._connection.open("BundleService/Restore", bundle_pb2.RestoreResponse) as stream:
            await stream.write(bundle_pb2.RestoreRequest(header=header))
            await outgoing.send_manifest(stream.write_serialized)
            # Besides the session in place, it hashes what an attempt has left.
            more_seconds = outgoing.commit_seconds if header.restore_id else 0.0
            need = (await answer_of(stream, "need", more_seconds=more_seconds)).need
            lacking = outgoing.lacking(need)
            resume = await outgoing.go_on(need, lacking)
            if resume is not None:
                await stream.write(bundle_pb2.RestoreRequest(resume=resume))
            await outgoing.send_contents(lacking, stream.write_serialized, lambda: reporter.report(outgoing.progress))
            restored = await conclude(stream, outgoing)
        reporter.finish(outgoing.progress)
        return restored

    @property
    def can_stream(self) -> bool:
        """Whether the daemon takes a `restore_stream`."""
        return STREAMS in self._capabilities

    async def restore_stream(
        self,
        place: Place,
        entries: Sequence[Entry],
        contents: AsyncIterable[bytes],
        digest: Callable[[], Awaitable[bytes]],
        *,
        limits: Limits | None = None,
        full_durability: bool = True,
        owner: tuple[int, int] | None = None,
        force: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> Restored:
        """Put one session in place whose digests are not known yet, such as a capture that is still arriving.

        All of it is sent. Nothing is in place before `digest` has answered: whoever gives it has verified all contents.
        What contents and digest raise ends the call, and the old session is in place; see `restore` for the rest.

        Args:
            place: The session.
            entries: The files in order, with their sizes and without digests.
            contents: For each of them its content and then the 32 bytes of its SHA-256, in any split.
            digest: Asked when the contents are at their end: gives the bundle digest.
            limits: Ours; the smaller of these and the daemon's holds. None: those of the connection.
            full_durability: Whether what is in place must survive a power loss.
            owner: User and group id of what is placed; None: the daemon's own.
            force: Replace the session even when a running process has it open.
            progress: Told at most ten times a second, and at the end.

        Raises:
            UnavailableError: `unsupported`: see `can_stream`.
            OutpostError: those of `restore`.
        """
        if not self.can_stream:
            raise UnavailableError(
                "unsupported",
                "the daemon is too old for a restore whose digests follow",
                hint="restore from a copy on the host, or update the daemon",
            )
        ours = limits or self._limits
        outgoing = OutgoingStream(entries, ours.smaller(self._daemon_limits))
        reporter = Reporter(progress)
        header = header_of(place, ours, outgoing.manifest, full_durability=full_durability, owner=owner, force=force)
        header.digests_follow = True
        async with self._connection.open("BundleService/Restore", bundle_pb2.RestoreResponse) as stream:
            await stream.write(bundle_pb2.RestoreRequest(header=header))
            await outgoing.send_manifest(stream.write_serialized)
            await answer_of(stream, "need")
            await outgoing.pass_on(
                contents, digest, stream.write_serialized, lambda: reporter.report(outgoing.progress)
            )
            restored = await conclude(stream, outgoing)
        reporter.finish(outgoing.progress)
        return restored

    async def validate(
        self, profile: Profile, conversation_id: str, source: RestoreSource, *, limits: Limits | None = None
    ) -> None:
        """Run the checks of a restore on a bundle without placing it.

        Raises:
            SessionError: those of `restore`.
            LimitError: any reason.
        """
        ours = limits or self._limits
        outgoing = Outgoing(source, ours.smaller(self._daemon_limits))
        with expressible():
            header = bundle_pb2.ValidateHeader(
                profile=pack_profile(profile),
                id=check_conversation_id(conversation_id),
                limits=pack_limits(ours),
                manifest_bytes=len(outgoing.manifest),
                digest=outgoing.digest,
            )
        async with self._connection.open("BundleService/Validate", bundle_pb2.ValidateResponse) as stream:
            await stream.write(bundle_pb2.ValidateRequest(header=header))
            await outgoing.send_manifest(stream.write_serialized)
            await outgoing.send_contents(range(len(source.entries)), stream.write_serialized, lambda: None)
            await stream.write(bundle_pb2.ValidateRequest(trailer=outgoing.trailer))
            await stream.finish_writing()
            await stream.only(more_seconds=outgoing.commit_seconds)

    async def list_recovery(
        self,
        profile: Profile,
        *,
        conversation_id: str = "",
        variables: Mapping[str, str] | None = None,
        follow_root_link: bool = False,
    ) -> AsyncIterator[RecoveryItem]:
        """Yield what restores have set aside, newest first; of one conversation when its id is given."""
        with expressible():
            request = bundle_pb2.ListRecoveryRequest(
                profile=pack_profile(profile),
                variables=variables,
                follow_root_link=follow_root_link,
                id=conversation_id and check_conversation_id(conversation_id),
            )
        async with self._connection.begin(
            "BundleService/ListRecovery", request, bundle_pb2.ListRecoveryResponse
        ) as stream:
            async for item in reply.listed(stream):
                path = item.entry.session_path
                yield RecoveryItem(
                    name=reply.name(item.entry.name),
                    conversation_id=reply.conversation_id(item.entry.id),
                    session_path=reply.sandbox_path(path, "session path") if path else None,
                    set_aside=reply.moment(item.entry.set_aside),
                )

    async def undo_restore(self, place: Place, name: str = "", *, force: bool = False) -> Undone:
        """Put back what a restore has set aside; what is there now is set aside in turn. One atomic step.

        Args:
            place: The session.
            name: Name of the entry; empty: the newest of the conversation.
            force: Replace the session even when a running process has it open.

        Raises:
            SessionError: `not_found`, `ambiguous`.
            ConflictError: `in_use`, `other_bucket`, `target_changed`, `busy`.
        """
        with expressible():
            request = bundle_pb2.UndoRestoreRequest(place=place.packed(), name=name, force=force)
        answer = await self._connection.ask("BundleService/UndoRestore", request, bundle_pb2.UndoRestoreResponse)
        return Undone(
            target=reply.sandbox_path(answer.target, "target"),
            recovery=reply.name(answer.recovery) if answer.recovery else "",
        )

    async def prune_recovery(
        self,
        profile: Profile,
        *,
        conversation_id: str = "",
        keep_count: int | None = None,
        older_than_seconds: int | None = None,
        variables: Mapping[str, str] | None = None,
        follow_root_link: bool = False,
    ) -> Sequence[str]:
        """Remove what restores have set aside and return the names; an entry goes when any rule says so.

        Args:
            profile: The format.
            conversation_id: Only entries of this conversation; empty: all.
            keep_count: Keep that many of the newest of each conversation.
            older_than_seconds: Remove what was set aside longer ago.
            variables: The CLI's environment where it differs from the daemon's.
            follow_root_link: Whether a CLI home that is itself a link is accepted.

        Raises:
            ConfigurationError: `invalid_argument`: neither rule was given.
        """
        with expressible():
            request = bundle_pb2.PruneRecoveryRequest(
                profile=pack_profile(profile),
                variables=variables,
                follow_root_link=follow_root_link,
                id=conversation_id and check_conversation_id(conversation_id),
                keep_count=keep_count,
                older_than_seconds=older_than_seconds,
            )
        answer = await self._connection.ask("BundleService/PruneRecovery", request, bundle_pb2.PruneRecoveryResponse)
        return tuple(reply.name(removed) for removed in answer.removed)


async def _receive(
    stream: Stream[bundle_pb2.CaptureResponse],
    reception: Reception,
    reporter: Reporter,
    before_chunk: Callable[[], Awaitable[None]] | None,
) -> Captured:
    message = await stream.read_serialized()
    while message is not None:
        if before_chunk is not None:
            await before_chunk()
        async with task_group() as group:
            following = group.create_task(stream.read_serialized())
            await in_thread(reception.accept, message)
        reporter.report(reception.progress)
        message = following.result()
    captured = reception.finish()
    reporter.finish(reception.progress)
    return captured
