"""Read one file as it was when it was opened."""

from __future__ import annotations

import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from operator import eq
from typing import TYPE_CHECKING

from sandbox_agent.core.file import info_of, not_a_file, require_regular
from sandbox_api.errors import ConfigurationError, SessionError, WorkspaceError, printable
from sandbox_api.limits import CHUNK_BYTES, MIB
from sandbox_api.manifest import DIGEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from sandbox_agent.core.paths import Roots

_HASH_BYTES = 256 << 10
_MAX_PARTS_COUNT = 8192
_MAX_THREADS_COUNT = 4
"""Parts of what a client holds that are hashed at the same time, if there are so many processors."""


class FileReader:
    """One file being read; a context manager. Blocking.

    What is read ends at the size the file had when it was opened, also when it goes on growing.

    Args:
        roots: Where the file lies.
        path: Its absolute path.
        offset: Where to start, in bytes.
        prefix_sha256: SHA-256 of what lies before `offset`, or of its parts, one after the other; empty: not checked.
        max_bytes: Most bytes to read; 0: to the end.
        prefix_sizes: Sizes of the parts; empty: one part.
        part_bytes: Size of the parts of what is read that have a digest each; 0: all of it is one.

    Attributes:
        grew: Once `pieces` has ended: whether the file is larger than it was when it was opened.

    Raises:
        WorkspaceError: on entering: `unsafe_path`, `outside_roots`, `not_a_file`.
        SessionError: on entering: `digest_mismatch`: what lies before `offset` is something else.
        ConfigurationError: on entering: `invalid_argument`: `offset` lies behind the end and no digest was given; the
            parts do not fit to it or to their digests, or are to be smaller than 1 MiB.
        OSError: on entering: it cannot be opened.
    """

    def __init__(
        self,
        roots: Roots,
        path: bytes,
        *,
        offset: int,
        prefix_sha256: bytes,
        max_bytes: int,
        prefix_sizes: Sequence[int] = (),
        part_bytes: int = 0,
    ) -> None:
        self._roots = roots
        self._path = path
        self._offset = offset
        self._prefix_sha256 = prefix_sha256
        self._prefix_sizes = prefix_sizes or (offset,)
        self._max_bytes = max_bytes
        self._part_bytes = part_bytes
        self._part_digests: list[bytes] = []
        self._digest = hashlib.sha256()
        self._fd = -1
        self.grew = False

    def __enter__(self) -> Self:
        if 0 < self._part_bytes < MIB:
            raise ConfigurationError("invalid_argument", f"parts of {self._part_bytes} bytes are too small")
        root, relative = self._roots.locate(self._path)
        require_regular(root, relative)
        self._fd = root.file(relative)
        try:
            self._check_regular(root.join(relative))
            self._check_prefix()
        except BaseException:
            self._close()
            raise
        left_bytes = self.info.size - self._offset
        self.payload_bytes = min(left_bytes, self._max_bytes) if self._max_bytes else left_bytes
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def pieces(self) -> Iterator[bytes]:
        """Yield the content, a chunk at a time.

        Raises:
            WorkspaceError: `changed`: truncated, rewritten or replaced meanwhile.
        """
        left_bytes = self.payload_bytes
        part_left_bytes = self._part_bytes or left_bytes
        while left_bytes:
            data = os.read(self._fd, min(left_bytes, part_left_bytes, CHUNK_BYTES))
            if not data:
                raise self._changed("was truncated")
            self._digest.update(data)
            left_bytes -= len(data)
            part_left_bytes -= len(data)
            if self._part_bytes and not (left_bytes and part_left_bytes):
                self._part_digests.append(self._digest.digest())
                self._digest, part_left_bytes = hashlib.sha256(), self._part_bytes
            yield data
        self._check_unchanged()

    @property
    def sha256(self) -> bytes:
        """SHA-256 of what `pieces` has yielded, or with `part_bytes` of the SHA-256 of its parts."""
        return hashlib.sha256(b"".join(self._part_digests)).digest() if self._part_bytes else self._digest.digest()

    def _check_regular(self, absolute: bytes) -> None:
        self._opened = os.fstat(self._fd)
        self.info = info_of(absolute, self._opened)
        if not stat.S_ISREG(self._opened.st_mode):  # swapped since it was looked at
            raise not_a_file(absolute)

    def _check_prefix(self) -> None:
        if self._offset > self.info.size and not self._prefix_sha256:
            raise ConfigurationError(
                "invalid_argument", f"'{printable(self._path)}' has no byte {self._offset}", hint="start at 0"
            )
        if not self._prefix_sha256:
            os.lseek(self._fd, self._offset, os.SEEK_SET)
            return
        digests = [
            self._prefix_sha256[at : at + DIGEST_BYTES] for at in range(0, len(self._prefix_sha256), DIGEST_BYTES)
        ]
        fits = len(digests) == len(self._prefix_sizes) and sum(self._prefix_sizes) == self._offset
        if not fits or len(digests) > _MAX_PARTS_COUNT:
            raise ConfigurationError(
                "invalid_argument",
                f"the parts of what lies before byte {self._offset} do not fit to it, or to their digests",
                hint=f"send a size and 32 bytes for each of at most {_MAX_PARTS_COUNT} parts",
            )
        if not self._has_parts(digests):
            raise SessionError(
                "digest_mismatch",
                f"the first {self._offset} bytes of '{printable(self._path)}' are not what the caller holds",
                hint="read it from 0",
            )
        os.lseek(self._fd, self._offset, os.SEEK_SET)

    def _has_parts(self, digests: Sequence[bytes]) -> bool:
        """Tell whether the parts are what the caller holds; what comes behind the first that is not is not read."""
        if len(digests) == 1:
            return self._digest_at(0, self._offset) == digests[0]
        starts = accumulate(self._prefix_sizes, initial=0)
        with ThreadPoolExecutor(min(len(digests), os.cpu_count() or 1, _MAX_THREADS_COUNT)) as threads:
            if all(map(eq, threads.map(self._digest_at, starts, self._prefix_sizes), digests)):
                return True
            threads.shutdown(cancel_futures=True)
            return False

    def _digest_at(self, at: int, size: int) -> bytes:
        """Return the SHA-256 of so many bytes of the file; empty when it has not so many. Runs in several threads."""
        digest = hashlib.sha256()
        while size and (data := os.pread(self._fd, min(size, _HASH_BYTES), at)):
            digest.update(data)
            at += len(data)
            size -= len(data)
        return b"" if size else digest.digest()

    def _check_unchanged(self) -> None:
        now = os.fstat(self._fd)
        if now.st_size < self._opened.st_size:
            raise self._changed("was truncated")
        # A file that grew has another time, too; what was read of it is told by the digest.
        if now.st_size == self._opened.st_size and now.st_mtime_ns != self._opened.st_mtime_ns:
            raise self._changed("was rewritten")
        root, relative = self._roots.locate(self._path)
        try:
            in_place = root.stat(relative)
        except FileNotFoundError:
            raise self._changed("was removed") from None
        if not os.path.samestat(in_place, now):
            raise self._changed("was replaced")
        self.grew = now.st_size > self._opened.st_size

    def _changed(self, what: str) -> WorkspaceError:
        return WorkspaceError(
            "changed",
            f"'{printable(self._path)}' {what} while it was read",
            hint="read it again",
            facts={"path": printable(self._path)},
        )

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
