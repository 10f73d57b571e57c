"""The checks of a bundle that need nothing of the sandbox's sessions, and the call that does no more than them."""

from __future__ import annotations

import os
from contextlib import ExitStack
from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import uuid4

from sandbox_agent.core.copy import write_all
from sandbox_agent.core.disk import check_room
from sandbox_agent.core.hooks import HookRunner
from sandbox_agent.core.session import failures
from sandbox_api.errors import Offender, SessionError, printable
from sandbox_api.framing import Sections
from sandbox_api.manifest import bundle_digest, check_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from sandbox_agent.core.hooks import HookFiles
    from sandbox_agent.core.sandbox import Sandbox
    from sandbox_api.limits import Limits
    from sandbox_api.manifest import Entry
    from sandbox_api.profile import Profile

_PIECE_BYTES = 1 << 20
_CREATE_FLAGS = os.O_CREAT | os.O_EXCL | os.O_RDWR


def check_manifest(profile: Profile, entries: Sequence[Entry], digest: bytes, limits: Limits) -> None:
    """Refuse a manifest that is no whole session of its format.

    Raises:
        SessionError: `unsafe_name` with all paths that are not usable or that the profile does not select, `protocol`,
            `empty`, `digest_mismatch`, `missing_required`.
        LimitError: `max_files`, `max_bytes`.
    """
    check_entries(entries, limits, complete=True)
    if bundle_digest(entries) != digest:
        raise SessionError("digest_mismatch", "the manifest does not have the digest that was promised")
    check_paths(profile, entries)


def check_streamed_manifest(profile: Profile, entries: Sequence[Entry], digest: bytes, limits: Limits) -> None:
    """Refuse a manifest whose digests are to follow and that is no whole session of its format, or has some already.

    Raises:
        SessionError, LimitError: see `check_manifest`.
    """
    check_entries(entries, limits, complete=False)
    if digest or any(entry.sha256 or entry.from_offset for entry in entries):
        raise SessionError("protocol", "the manifest has digests that are to follow")
    check_paths(profile, entries)


def check_paths(profile: Profile, entries: Sequence[Entry]) -> None:
    """Refuse files that do not belong to a session of a format, and to lack one that must be there.

    Raises:
        SessionError: `unsafe_name`, `missing_required`.
    """
    paths = [entry.path.decode() for entry in entries]
    unselected = _unselected(profile, paths)
    if unselected:
        raise SessionError(
            "unsafe_name",
            f"{len(unselected)} path(s) of the bundle do not belong to a {profile.format} session",
            offenders=(Offender(printable(path), "is not selected by the profile") for path in unselected),
        )
    check_required(profile, paths, "the bundle")


def check_required(profile: Profile, paths: Iterable[str], subject: str) -> None:
    """Refuse a set of files that lacks one without which there is no session.

    Raises:
        SessionError: `missing_required`, with all that are missing; the message says that `subject` lacks them.
    """
    there = set(paths)
    missing = [path for path in profile.required if path not in there]
    if missing:
        raise SessionError(
            "missing_required",
            f"{subject} lacks {len(missing)} file(s) without which there is no {profile.format} session",
            offenders=(Offender(printable(path), "is missing") for path in missing),
        )


def _unselected(profile: Profile, paths: Sequence[str]) -> list[str]:
    """Return the paths that a capture would not reach or not take; each directory is asked about once."""
    is_reached = {"": True}

    def is_selected(path: str) -> bool:
        parent = path.rpartition("/")[0]
        if parent not in is_reached:
            is_reached[parent] = is_selected(parent)
        return is_reached[parent] and profile.selects(path)

    return [path for path in paths if not is_selected(path)]


def check_content(entry: Entry, digest: bytes) -> None:
    """Refuse content that does not have its entry's digest.

    Raises:
        SessionError: `digest_mismatch`.
    """
    if digest != entry.sha256:
        raise SessionError(
            "digest_mismatch",
            f"the content of '{printable(entry.path)}' does not have the SHA-256 of the manifest",
            facts={"path": printable(entry.path)},
        )


def check_valid(hooks: HookRunner, profile: Profile, conversation_id: str, files: HookFiles) -> None:
    """Run the format's own check.

    Raises:
        SessionError: `invalid`, `hook_failed`, `hook_timeout`, `hook_memory`, `hook_crashed`.
    """
    problem = hooks.validate(conversation_id, files)
    if problem is not None:
        raise invalid(profile, conversation_id, problem)


def invalid(profile: Profile, conversation_id: str, problem: str) -> SessionError:
    """Return the failure of a session that its format's own check refused."""
    return SessionError(
        "invalid",
        f"the {profile.format} session {conversation_id} is not valid: {printable(problem)[:500]}",
        facts={"id": conversation_id},
    )


def check_arrived(*, done: bool) -> None:
    """Refuse a payload that ended early.

    Raises:
        SessionError: `incomplete`.
    """
    if not done:
        raise SessionError("incomplete", "the payload ended before the last file")


class BundleCheck:
    """The checks of a restore on a bundle that is not placed anywhere. Blocking; a context manager.

    For a format with a hook the contents gather in one file without a name, so that whatever happens nothing of them is
    left.

    Args:
        sandbox: Whose state directory lends the space.
        profile: The format.
        conversation_id: The session.
        entries: The manifest.
        digest: The bundle digest.
        limits: Limits of this bundle.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        profile: Profile,
        conversation_id: str,
        entries: Sequence[Entry],
        digest: bytes,
        *,
        limits: Limits,
    ) -> None:
        self._sandbox = sandbox
        self._profile = profile
        self._conversation_id = conversation_id
        self._entries = entries
        self._digest = digest
        self._limits = sandbox.limits.smaller(limits)
        self._sections = Sections(entry.size for entry in entries)
        self._content = sha256()
        self._stack = ExitStack()
        self._spool_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def begin(self) -> list[bool]:
        """Check the manifest; every content is needed.

        Raises:
            SessionError, LimitError: see `check_manifest`; `disk_full`.
        """
        with failures():
            check_manifest(self._profile, self._entries, self._digest, self._limits)
            if self._profile.validate:
                self._spool_directory = self._sandbox.journal.directory
                check_room(self._spool_directory, [sum(entry.size for entry in self._entries)])
                self._spool_fd = self._nameless_file()
        return [True] * len(self._entries)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the contents.

        Raises:
            SessionError: `digest_mismatch`, `protocol`.
            LimitError: `disk_full`.
        """
        with failures():
            for index, piece, is_last in self._sections.feed(data):
                self._content.update(piece)
                if self._spool_fd >= 0:
                    write_all(self._spool_fd, piece)
                if is_last:
                    check_content(self._entries[index], self._content.digest())
                    self._content = sha256()

    def finish(self) -> None:
        """Check that all arrived, and ask the format.

        Raises:
            SessionError: `incomplete`, `invalid`, `hook_*`.
        """
        with failures(), HookRunner(self._profile) as hooks:
            # Empty files need no bytes to arrive.
            self.feed(b"")
            check_arrived(done=self._sections.done)
            check_valid(hooks, self._profile, self._conversation_id, self)

    def paths(self) -> list[str]:
        """Return the bundle's paths, for the hook."""
        return [entry.path.decode() for entry in self._entries]

    def open(self, path: str) -> int | None:
        """Return a descriptor of one file's content, for the hook; None when the bundle has no such file."""
        offset = 0
        for entry in self._entries:
            if entry.path.decode() == path:
                return self._copy(offset, entry.size)
            offset += entry.size
        return None

    def _copy(self, offset: int, size: int) -> int:
        fd = self._nameless_file(kept=False)
        left = size
        while left:
            piece = os.pread(self._spool_fd, min(left, _PIECE_BYTES), offset + size - left)
            write_all(fd, piece)
            left -= len(piece)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def _nameless_file(self, *, kept: bool = True) -> int:
        name = f".outpost-spool-{uuid4().hex}".encode()
        fd = self._spool_directory.file(name, _CREATE_FLAGS)
        os.unlink(name, dir_fd=self._spool_directory.fd)
        if kept:
            self._stack.callback(os.close, fd)
        return fd
