"""Put one session in place.

The one rule: a restore ends with the whole old session or the whole new one. What failed first is what is reported, and
nothing of a failed restore is left.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox_agent.core.bundle_check import check_manifest, check_streamed_manifest, check_valid
from sandbox_agent.core.draft import MAX_RELOCATED_COUNT, Draft
from sandbox_agent.core.draft_stream import StreamedDraft
from sandbox_agent.core.existing import Existing
from sandbox_agent.core.hooks import HookRunner
from sandbox_agent.core.owner import check_owner
from sandbox_agent.core.placement import Placement
from sandbox_agent.core.rename import identity_at
from sandbox_agent.core.room import make_room
from sandbox_agent.core.session import cli_home_path, failures, open_cli_home
from sandbox_agent.core.target import check_alone, check_idle, open_session, target_of
from sandbox_api.errors import SessionError
from sandbox_api.manifest import bundle_digest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.resume import Part
    from sandbox_agent.core.sandbox import Place, Sandbox
    from sandbox_api.limits import Limits
    from sandbox_api.manifest import Entry

MAX_PARTS_COUNT = 64
"""Files that are gone on with behind a part of them; the contract says so."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a restore did.

    Attributes:
        target: Absolute path of the session directory.
        unchanged: The session was there already; nothing was changed.
        recovery: Name of the recovery entry that holds the session that was replaced; empty when none was.
        files_count: Number of files in place.
        bytes_count: Sum of their sizes.
        digest: Bundle digest of what is in place, after relocation.
        relocated: Files whose content relocation changed; at most `MAX_RELOCATED_COUNT`.
        not_atomic: For a moment no session was in place, since the file system cannot exchange directories.
    """

    target: bytes
    unchanged: bool
    recovery: str
    files_count: int
    bytes_count: int
    digest: bytes
    relocated: list[bytes]
    not_atomic: bool


class Restore:
    """One restore: `begin`, then `feed` until all is there, then `commit`; blocking.

    A context manager: leaving it without a commit leaves the old session in place and nothing staged, and no folder
    that was not there before, unless it was told to `keep`. A clean-up that fails is a note of the error that made it
    necessary.

    Attributes:
        staged_bytes: What broken attempts had staged whole; known after `begin`.

    Args:
        sandbox: Where the session goes.
        place: Names it.
        entries: The manifest, with all digests.
        digest: The bundle digest.
        limits: The caller's limits; the smaller of them and the sandbox's hold.
        full_durability: Whether the result must survive a power loss.
        owner: User and group id of all that is written; None: the daemon's own.
        force: Replace the session even when a running process has it open.
        restore_id: Names all attempts at this restore; empty: it is the only one.
        digests_follow: The manifest and `digest` have no digests yet: each follows its content, and `check_digest` is
            told the last one.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        place: Place,
        entries: Sequence[Entry],
        digest: bytes,
        *,
        limits: Limits,
        full_durability: bool,
        owner: Owner | None,
        force: bool,
        restore_id: str = "",
        digests_follow: bool = False,
    ) -> None:
        self._sandbox = sandbox
        self._place = place
        self._entries = entries
        self._digest = digest
        self._limits = sandbox.limits.smaller(limits)
        self._full_durability = full_durability
        self._owner = owner
        self._force = force
        self._restore_id = restore_id
        self._digests_follow = digests_follow
        self._parts: dict[bytes, Part] = {}
        self._is_kept = False
        self._is_committing = False
        self.staged_bytes = 0
        self._stack = ExitStack()
        self._placement: Placement | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_kept and self._restore_id and not self._is_committing and self._placement is not None:
            self._placement.keep()
        self._stack.__exit__(kind, error, trace)

    def begin(self) -> list[bool]:
        """Check all that can be checked before content arrives, and tell for each entry whether it is lacking.

        Nothing is written yet; what broken attempts had staged is verified and moved.

        Raises:
            SessionError: `unsafe_name`, `protocol`, `empty`, `digest_mismatch`, `missing_required`, `symlink`,
                `root_symlink`, `hook_*`.
            ConflictError: `other_bucket`, `in_use`, `exists`, `busy`.
            ConfigurationError: `owner`, `invalid_id`, `invalid_bucket`.
            LimitError: `max_files`, `max_bytes`, `disk_full`.
            WorkspaceError: `outside_roots`, `unsafe_path`, `access`.
        """
        profile = self._place.profile
        with failures():
            check_owner(self._owner)
            check = check_streamed_manifest if self._digests_follow else check_manifest
            check(profile, self._entries, self._digest, self._limits)
            self._hooks = self._stack.enter_context(HookRunner(profile))
            self._target = target_of(self._sandbox, self._place, self._hooks)
            if profile.validate or profile.relocate:
                self._hooks.start()  # ready when all has arrived
            if self._restore_id:
                where = (cli_home_path(self._sandbox, self._place), self._target.relative)
                self._stack.enter_context(self._sandbox.journal.kept.claimed(self._restore_id, where))
            self._existing = self._open_existing()
            placement = Placement(
                self._sandbox,
                self._place,
                self._target,
                self._existing,
                full_durability=self._full_durability,
                owner=self._owner,
                force=self._force,
                restore_id=self._restore_id,
            )
            self._placement = self._stack.enter_context(placement)
            make = StreamedDraft if self._digests_follow else Draft
            self._draft = make(self._entries, profile, self._existing, placement.stage)
            self._stack.callback(self._draft.close)
            if self._restore_id:
                self._resume(placement)
            make_room(self._sandbox, self._nearest(), self._draft.lacking_sizes_bytes)
        lacking = {entry.path for entry in self._draft.lacking}
        return [entry.path in lacking for entry in self._entries]

    @property
    def parts(self) -> list[tuple[int, Part]]:
        """Entries of which broken attempts had staged a part, and what is there; known after `begin`."""
        return [
            (index, self._parts[entry.path]) for index, entry in enumerate(self._entries) if entry.path in self._parts
        ]

    @property
    def left_bytes(self) -> int:
        """How much of the lacking contents is to be fed."""
        return self._draft.left_bytes

    def go_on(self, indices: Sequence[int]) -> None:
        """Take note behind which of the parts the contents go on; what is there of the others goes.

        Raises:
            SessionError: `protocol`: there is no such part.
        """
        offered = [index for index, _ in self.parts]
        chosen = set(indices)
        if [index for index in offered if index in chosen] != list(indices):
            raise SessionError("protocol", "the client goes on with a part that was not offered")
        paths = {self._entries[index].path for index in chosen}
        with failures():
            self._use({path: part for path, part in self._parts.items() if path in paths})

    def keep(self) -> None:
        """From now on a failure leaves what is staged to the next attempt, unless the commit has begun by then."""
        self._is_kept = True

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the lacking contents, in any split.

        Raises:
            SessionError: `digest_mismatch`, `protocol`.
            LimitError: `disk_full`.
            WorkspaceError: `access`.
        """
        with failures():
            self._draft.feed(data)

    def check_digest(self, trailer: bytes) -> None:
        """Compare the digest of the trailer with the one that was promised, or else with what arrived.

        Raises:
            SessionError: `digest_mismatch`, `incomplete`.
        """
        if isinstance(self._draft, StreamedDraft):
            self._digest = self._draft.digest()
        if trailer != self._digest:
            raise SessionError("digest_mismatch", "the trailer names another bundle digest than the contents have")

    def commit(self) -> Result:
        """Put the session in place, when it is not there already.

        Raises:
            SessionError: `incomplete`, `invalid`, `hook_*`.
            ConflictError: `target_changed`, `in_use`, `busy`.
            LimitError: `disk_full`.
            WorkspaceError: `access`.
        """
        draft, placement, conversation_id = self._draft, self._placement, self._place.conversation_id
        if placement is None:
            raise SessionError("protocol", "a restore is committed before it began")
        self._is_committing = True
        with failures():
            # Empty files need no bytes to arrive.
            draft.feed(b"")
            draft.check_arrived()
            check_valid(self._hooks, self._place.profile, conversation_id, draft)
            draft.relocate(self._hooks, conversation_id, self._sandbox.workspace, placement.target_path)
            if self._existing is not None and self._is_in_place(self._existing):
                placement.discard()
                return self._result(self._existing.directory.path, unchanged=True)
            draft.complete()
            target = placement.target_path()
            recovery, not_atomic = placement.commit()
            return self._result(target, recovery=recovery, not_atomic=not_atomic)

    def _resume(self, placement: Placement) -> None:
        sizes = {entry.path: entry.size for entry in self._draft.lacking}
        taken = placement.resume(self._draft.lacking)
        whole = {path for path, part in taken.items() if part.size == sizes[path]}
        self.staged_bytes = sum(sizes[path] for path in whole)
        self._draft.add_staged(whole)
        self._parts = {path: part for path, part in taken.items() if path not in whole}
        self._use(dict(list(self._parts.items())[:MAX_PARTS_COUNT]))

    def _use(self, parts: dict[bytes, Part]) -> None:
        for path in self._parts.keys() - parts.keys():
            self._draft.drop(path)
        self._parts = parts
        self._draft.go_on(parts)

    def _open_existing(self) -> Existing | None:
        cli_home = open_cli_home(self._sandbox, self._place)
        if cli_home is None:
            return None
        with cli_home:
            check_alone(cli_home, self._place, self._target)
            directory = open_session(cli_home, self._target)
        if directory is None:
            return None
        existing = Existing(directory, self._place.profile, self._limits)
        self._stack.callback(existing.close)
        check_idle(existing.directory, self._place.profile, force=self._force)
        return existing

    def _is_in_place(self, existing: Existing) -> bool:
        """Tell whether what was found at the beginning is in its place still, and is this session."""
        cli_home = open_cli_home(self._sandbox, self._place)
        if cli_home is None:
            return False
        with cli_home:
            is_there = identity_at(cli_home, self._target.relative) == existing.identity
        return is_there and self._draft.is_in_place(self._owner)

    def _nearest(self) -> Directory:
        """Return a directory on the file system that the session will be on, as far as that can be told."""
        if self._existing is not None:
            return self._existing.directory
        return self._sandbox.roots.locate(cli_home_path(self._sandbox, self._place))[0]

    def _result(
        self, target: bytes, *, unchanged: bool = False, recovery: str = "", not_atomic: bool = False
    ) -> Result:
        entries = self._draft.entries
        return Result(
            target=target,
            unchanged=unchanged,
            recovery=recovery,
            files_count=len(entries),
            bytes_count=sum(entry.size for entry in entries),
            digest=bundle_digest(entries) if self._draft.relocated else self._digest,
            relocated=self._draft.relocated[:MAX_RELOCATED_COUNT],
            not_atomic=not_atomic,
        )
