"""Redact a capture before it reaches the host's file.

The one rule: only what has been redacted reaches a disk of the host; what the daemon sent is held in memory, at most
one file of it.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from host_client.session.content import BLOCK_BYTES
from host_client.session.failure import host_failures
from host_client.session.redactor import DocumentRedactor, redactor_for
from sandbox_api.errors import Offender, SessionError, printable
from sandbox_api.manifest import Entry, bundle_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from host_client.session.bundle import BundleWriter, SavedBundle
    from host_client.session.redaction import Redaction
    from sandbox_api.limits import Limits

_MAX_MEMORY_BYTES = 8 << 20
"""Redacted contents up to that size wait in memory, larger ones in a file without a name."""


class RedactedBundle(NamedTuple):
    """What was kept of a capture.

    Attributes:
        source: Path of the session in the sandbox, redacted.
        entries: The manifest of the redacted contents, every digest set.
        digest: Their bundle digest.
        redactions: Hits of each rule, by its name.
        is_new: Whether the host's file was written; False when it had all of it already.
    """

    source: PurePosixPath
    entries: Sequence[Entry]
    digest: bytes
    redactions: Mapping[str, int]
    is_new: bool


class RedactedCapture:
    """A `CaptureSink` that hands the redacted capture to a writer when all of it is there. Methods block.

    Every file is redacted, also one that the daemon names as unchanged: the rules may be others than when it was saved.
    A name with a hit of a literal or pattern cannot be changed, since other files may refer to it: it is refused.

    Args:
        writer: Writes the host's file; stays the caller's.
        redaction: The rules.
        previous: The file as it is now, the same as the writer's.
        limits: What the redacted bundle must keep: replacements may be longer than secrets.
    """

    def __init__(
        self, writer: BundleWriter, redaction: Redaction, previous: SavedBundle | None, limits: Limits
    ) -> None:
        self._writer = writer
        self._redaction = redaction
        self._previous = previous
        self._limits = limits
        self._held = {entry.path: number for number, entry in enumerate(previous.entries)} if previous else {}
        self._known = set(previous.entries if previous else ())
        self._source = PurePosixPath()
        self._entries: Sequence[Entry] = ()
        self._kept: dict[int, tuple[Entry, int]] = {}  # of each file what is saved, and where that begins in the spool
        self._unsupported: list[Offender] = []
        self._counts: Counter[str] = Counter({rule.name: 0 for rule in redaction.rules})
        self._spool = tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES)  # noqa: SIM115 - closed by `abort`
        self._spooled_bytes = 0
        self._open: _File | None = None

    def begin(self, source: PurePosixPath, entries: Sequence[Entry]) -> None:
        """Take the manifest.

        Raises:
            SessionError: `redaction_unsupported`: names of files hold what must not be saved.
        """
        self._source, self._entries = source, entries
        self._redaction.check_names(entry.path.decode() for entry in entries)

    def whole(self, index: int, content: memoryview, sha256: bytes) -> None:
        """Take all that is sent of one entry and its digest: as `data` and `end` do."""
        if content:
            self.data(index, content)
        self.end(index, sha256)

    def data(self, index: int, piece: memoryview) -> None:
        """Take the next part of one entry's content.

        Raises:
            SessionError: those of `SavedBundle.pieces` for a held beginning.
            ConfigurationError: `invalid_argument`: a function of the rules failed.
            LimitError: `disk_full`: in the folder for temporary files.
        """
        self._opened(index).take(bytes(piece))

    def end(self, index: int, sha256: bytes) -> None:
        """Take the digest of one entry's content as it was sent.

        Raises:
            SessionError: `digest_mismatch`, and those of `data`.
        """
        file = self._opened(index)
        self._open = None
        if file.received.digest() != sha256:
            path = printable(self._entries[index].path)
            raise SessionError("digest_mismatch", f"the content of {path!r} is not that of its digest")
        self._keep(index, file)

    def abort(self) -> None:
        """Drop everything that was taken."""
        self._spool.close()
        self._writer.abort()

    def finish(self) -> RedactedBundle:
        """Redact what the daemon named as unchanged, then write and name the host's file.

        Raises:
            SessionError: `redaction_unsupported`: files that are not text, all of them; those of `BundleWriter`.
            ConfigurationError: `invalid_argument`: a function of the rules failed.
            LimitError: `max_bytes`, `disk_full`, `read_only`.
        """
        for index, entry in enumerate(self._entries):
            if entry.sha256:
                self._keep(index, self._opened(index))
                self._open = None
        if self._unsupported:
            raise SessionError(
                "redaction_unsupported",
                f"{len(self._unsupported)} file(s) are not text and cannot be redacted",
                hint="leave them out by the profile, or let them pass as they are",
                offenders=self._unsupported,
            )
        kept = [self._kept[index][0] for index in range(len(self._entries))]
        self._limits.check(bytes_count=sum(entry.size for entry in kept), files_count=len(kept))
        digest = bundle_digest(kept)
        source = PurePosixPath(self._redaction.redact_path(str(self._source)))
        return RedactedBundle(source, kept, digest, dict(self._counts), self._write(source, kept, digest))

    def _write(self, source: PurePosixPath, kept: Sequence[Entry], digest: bytes) -> bool:
        """Hand over what is kept as if the daemon had sent it, but for what the previous file has."""
        self._writer.begin(source, [entry if entry in self._known else entry._replace(sha256=b"") for entry in kept])
        for index, entry in enumerate(kept):
            if entry in self._known:
                continue
            with self._host_failures():
                self._spool.seek(self._kept[index][1])
            left_bytes = entry.size
            while left_bytes:
                with self._host_failures():
                    piece = self._spool.read(min(BLOCK_BYTES, left_bytes))
                self._writer.data(index, piece)
                left_bytes -= len(piece)
            self._writer.end(index, entry.sha256)
        return self._writer.finish(kept, digest)

    def _opened(self, index: int) -> _File:
        """Return the file that is being taken, what is held of its beginning included."""
        if self._open is None:
            entry = self._entries[index]
            self._open = _File(entry.path.decode(), self._redaction, self._spooled_bytes, self._store)
            if self._previous is not None and (entry.from_offset or entry.sha256):
                for piece in self._previous.pieces(self._held[entry.path], lambda: BLOCK_BYTES):
                    self._open.take(piece)
        return self._open

    def _keep(self, index: int, file: _File) -> None:
        file.finish()
        path = self._entries[index].path
        if file.is_binary and self._redaction.binary == "refuse":
            self._unsupported.append(Offender(printable(path), "is not UTF-8 text"))
        self._counts.update(file.counts)
        kept = Entry(path, file.kept_bytes, file.kept.digest())
        self._kept[index] = kept, file.start
        if kept in self._known:
            self._spooled_bytes = file.start
            with self._host_failures():
                self._spool.seek(file.start)

    def _store(self, piece: bytes) -> None:
        with self._host_failures():
            self._spool.write(piece)
        self._spooled_bytes += len(piece)

    def _host_failures(self) -> AbstractContextManager[None]:
        return host_failures(Path(tempfile.gettempdir()))


class _File:
    """One file on its way from the daemon to the spool."""

    def __init__(self, path: str, redaction: Redaction, start: int, store: Callable[[bytes], None]) -> None:
        self._redactor = redactor_for(path, redaction)
        self._store = store
        self._is_refused = redaction.binary == "refuse"
        self.start = start
        self.received = hashlib.sha256()
        self.kept = hashlib.sha256()
        self.kept_bytes = 0

    @property
    def counts(self) -> Mapping[str, int]:
        return self._redactor.counts

    @property
    def is_binary(self) -> bool:
        return isinstance(self._redactor, DocumentRedactor) and self._redactor.is_binary

    def take(self, piece: bytes) -> None:
        """Take a part as it is in the sandbox."""
        self.received.update(piece)
        self._put(self._redactor.feed(piece))

    def finish(self) -> None:
        """Store the rest; of a file that is refused, nothing."""
        rest = list(self._redactor.finish())
        if not (self.is_binary and self._is_refused):
            self._put(rest)

    def _put(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self._store(piece)
            self.kept.update(piece)
            self.kept_bytes += len(piece)
