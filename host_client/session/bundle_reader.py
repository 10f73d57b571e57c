"""Read bundle JSON v1 from the host: the index at once, contents when asked for.

The one rule: no content is given whole before its digest has been checked, and a wrong file is refused with the check
that failed and the place; it is never repaired.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from host_client.session import content
from host_client.session.bundle_index import BundleIndexer
from host_client.session.bundle_memory import MEMORY, KnownBundle, file_identity
from host_client.session.failure import host_failure
from host_client.session.scanner import JsonError
from sandbox_api.errors import SessionError, printable
from sandbox_api.limits import Limits
from sandbox_api.manifest import Entry, bundle_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from host_client.session.bundle_index import Item
    from sandbox_api.profile import Profile

# O_NONBLOCK: opening a FIFO must not wait for its other end.
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class SavedBundle:
    """A bundle file of the host, held open: a `RestoreSource`, and the previous state for an incremental capture.

    Whoever replaces the file meanwhile does not change what is read here. Use it as a context manager, or call `close`.
    Methods block. Memory holds the index, never a content.

    Args:
        fd: Descriptor of the file; belongs to the bundle from now on, also when it is refused.
        host_path: Its path, for messages.
        profile: The format it must have; also decides which paths it may hold.
        conversation_id: The id it must have.
        limits: Limits it must keep.
        believed: Take what this process knows of the file (`bundle_memory`) instead of reading it again.

    Attributes:
        source: Path of the session in the sandbox it was captured from.
        entries: The manifest in byte order of the paths, every digest set.
        items: Where each entry lies in the file, in the same order.
        extents: `Item.copyable` of each.
        digest: The bundle digest.
        identity: Device, inode, size, modification and change time of the file when it was opened.

    Raises:
        SessionError: `corrupt`, `digest_mismatch`, `unsafe_name`, `missing_required`.
        LimitError: `max_bytes`, `max_files`.
    """

    def __init__(
        self,
        fd: int,
        host_path: Path,
        profile: Profile,
        conversation_id: str,
        limits: Limits | None = None,
        *,
        believed: bool = False,
    ) -> None:
        self._fd = fd
        self._opened_ns = time.time_ns()
        self._profile = profile
        self.host_path = host_path
        self.format = profile.format
        self.conversation_id = conversation_id
        self.items: Sequence[Item] = ()
        self.extents: Sequence[tuple[int, int] | None] = ()
        self.entries: tuple[Entry, ...] = ()
        self._is_verified = False
        try:
            self.identity = file_identity(fd)
            known = MEMORY.get(self.identity) if believed else None
            if known is not None and (known.profile, known.conversation_id) == (profile, conversation_id):
                self._recall(known, limits or Limits())
            else:
                self._load(profile, limits or Limits())
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(
        cls,
        host_path: Path,
        profile: Profile,
        conversation_id: str,
        limits: Limits | None = None,
        *,
        fd: int | None = None,
        believed: bool = False,
    ) -> Self:
        """Open a bundle file by its path, or below a held directory by `fd` and the path's last name.

        Raises:
            SessionError: `not_found`, and those of the class.
            WorkspaceError: `unsafe_path`, `access`: the file is a link or cannot be read.
            LimitError: those of the class.
        """
        return cls(open_file(host_path, fd), host_path, profile, conversation_id, limits, believed=believed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def fileno(self) -> int:
        """Return the descriptor, for copying parts of the file as they are."""
        return self._fd

    def check_unchanged(self) -> None:
        """Make sure that nobody wrote into the file since it was opened.

        Raises:
            SessionError: `changed`.
        """
        # Not the change time: that is another also when a capture takes the name away from the file.
        if file_identity(self._fd)[:4] != self.identity[:4]:
            raise self._placed(SessionError("changed", "somebody wrote into it while it was read"))

    def pieces(self, index: int, room: Callable[[], int]) -> Iterator[bytes]:
        """Yield the content of one entry, each piece of at most `room()` bytes, the last after the digest's check.

        Raises:
            SessionError: `corrupt`, `digest_mismatch`.
        """
        for block in self._checked_blocks(index):
            start = 0
            while start < len(block):
                reach = start + room()
                yield block[start:reach] if start or reach < len(block) else block
                start = reach

    def verify(self) -> None:
        """Read every content and check it; once is enough, a second call returns at once.

        Raises:
            SessionError: `corrupt`, `digest_mismatch`.
        """
        if not self._is_verified:
            for index in range(len(self.items)):
                for _ in self._checked_blocks(index):
                    pass
            self._is_verified = True
            if file_identity(self._fd) == self.identity:
                known = KnownBundle(
                    self._profile,
                    self.conversation_id,
                    str(self.source),
                    self.entries,
                    self.items,
                    self.extents,
                    self.digest,
                )
                MEMORY.note(self.identity, known, read_ns=self._opened_ns)

    def _recall(self, known: KnownBundle, limits: Limits) -> None:
        limits.check(bytes_count=sum(entry.size for entry in known.entries), files_count=len(known.entries))
        self.source = PurePosixPath(known.source)
        self.entries, self.items, self.extents, self.digest = known.entries, known.items, known.extents, known.digest
        self._is_verified = True

    def _load(self, profile: Profile, limits: Limits) -> None:
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            raise self._corrupt("it is not a regular file", check="file")
        try:
            index = BundleIndexer(self._fd, found.st_size, profile, self.conversation_id, limits).read()
            self.items = index.items
            self.extents = [item.copyable for item in index.items]
            self.source = PurePosixPath(index.source)
            # A file of the TypeScript Outpost has no digests: its contents are read now, to learn them.
            self.entries = tuple(
                Entry(item.path, item.size, item.sha256 or self._learn(number))
                for number, item in enumerate(index.items)
            )
        except JsonError as error:
            raise self._corrupt(f"{error.problem}, at byte {error.offset}", check="json", offset=error.offset) from None
        except SessionError as error:
            raise self._placed(error) from None
        except OSError as error:
            raise host_failure(error, self.host_path) from None
        self.digest = bundle_digest(self.entries)
        if index.digest and index.digest != self.digest:
            raise self._placed(SessionError("digest_mismatch", "its files are not those of its digest"))

    def _learn(self, index: int) -> bytes:
        digest = hashlib.sha256()
        for block in content.decode(self._fd, self.items[index].span):
            digest.update(block)
        return digest.digest()

    def _checked_blocks(self, index: int) -> Iterator[bytes]:
        """Yield one content's blocks, each held back until the next is good, the last until the digest is."""
        item = self.items[index]
        try:
            held = content.decode_short(self._fd, item.span)
            if held is not None:
                sha256 = hashlib.sha256(held).digest()
            else:
                digest = hashlib.sha256()
                for block in content.decode(self._fd, item.span):
                    if held:
                        yield held
                    digest.update(block)
                    held = block
                sha256 = digest.digest()
        except JsonError as error:
            MEMORY.forget(self.identity)
            raise self._corrupt(
                f"{printable(item.path)!r}: {error.problem}, at byte {error.offset}",
                check="base64",
                offset=error.offset,
            ) from None
        except OSError as error:
            raise host_failure(error, self.host_path) from None
        if sha256 != self.entries[index].sha256:
            MEMORY.forget(self.identity)
            raise self._placed(
                SessionError("digest_mismatch", f"the content of {printable(item.path)!r} is not that of its digest")
            )
        if held:
            yield held

    def _corrupt(self, problem: str, *, check: str, offset: int | None = None) -> SessionError:
        facts = {"check": check} if offset is None else {"check": check, "offset": str(offset)}
        return self._placed(SessionError("corrupt", problem, facts=facts))

    def _placed(self, error: SessionError) -> SessionError:
        """Return the error with the file's name in it."""
        name = printable(str(self.host_path))
        return SessionError(
            error.reason,
            f"the saved bundle {name} is refused: {error.message}",
            hint="keep the file for inspection and capture the session again",
            facts={**error.facts, "path": name},
            offenders=error.offenders,
            offender_count=error.offender_count,
        )


def open_file(host_path: Path, directory_fd: int | None = None) -> int:
    """Open a bundle file by its path, or by the path's last name below a held directory.

    Raises:
        SessionError: `not_found`.
        WorkspaceError: `unsafe_path`, `access`: the file is a link or cannot be read.
    """
    try:
        return os.open(host_path if directory_fd is None else host_path.name, _OPEN_FLAGS, dir_fd=directory_fd)
    except FileNotFoundError:
        raise SessionError(
            "not_found",
            f"no bundle is saved at {printable(str(host_path))}",
            facts={"path": printable(str(host_path))},
        ) from None
    except OSError as error:
        raise host_failure(error, host_path) from None
