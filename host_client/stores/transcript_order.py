"""What is asked of one file of a capture, and what came of it."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from host_client.errors import Offender, SessionError, printable
from host_client.session.placed_file import KnownFile
from host_client.session.transcript_placement import Placing
from host_client.stores.contract import Notice
from host_client.stores.transcript_reference import new_digits
from sandbox_api.manifest import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import PurePosixPath

    from host_client.session.redaction import Redaction
    from host_client.session.transcript_scan import TranscriptScan
    from host_client.session.transcript_state import SavedFile, SavedScan
    from host_client.session.transcript_stream import Digits
    from host_client.stores.layout import Reference, Related


@dataclass(frozen=True, slots=True)
class Order:
    """A file to fetch.

    Attributes:
        member: The file.
        place: Where it goes on the host, below the home.
        origin: What relocation replaces; None: it names it itself.
        saved: What the last capture left of it, if that can be gone on with.
        known: The same, only to tell whether the host's file may go.
        cuts: Offsets that other transcripts refer to.
        reference: What its own first line refers to, and the place of that on the host.
        is_main: Whether it is the main transcript: it is scanned.
        saved_scan: What the last capture found in the part that can be gone on with.
        is_as_before: Whether the last capture moved it to the same directory, and nothing is redacted.
    """

    member: Related
    place: PurePosixPath
    origin: str | None
    saved: SavedFile | None = None
    known: SavedFile | None = None
    cuts: frozenset[int] = frozenset()
    reference: tuple[Reference, int] | None = None
    is_main: bool = False
    saved_scan: SavedScan | None = None
    is_as_before: bool = False

    @property
    def saved_reference(self) -> tuple[str, int, int] | None:
        """The reference as the state keeps it."""
        if self.reference is None:
            return None
        reference, position = self.reference
        return str(reference.path), reference.offset, position

    @property
    def digits(self) -> Digits | None:
        """What becomes of the number in the first line; None: nothing."""
        return None if self.reference is None else new_digits(*self.reference)

    def placing(self, staged: str, keep_bytes: int | None = None, *, size_bytes: int | None = None) -> Placing:
        """Tell how to place it: what was staged under a name, behind so much of what is there.

        Args:
            staged: The name.
            keep_bytes: See `Placing`.
            size_bytes: Size of a transcript that was fetched whole.
        """
        known = self.known
        if known is not None and self.is_as_before and size_bytes is not None and size_bytes < known.size:
            known = None  # the sandbox has lost something, which is only on the host now: that is set aside
        left = None if known is None else KnownFile(known.size, known.sha256, known.identity)
        return Placing(self.place, staged, keep_bytes, left)

    def fetched(self, placing: Placing, saved: SavedFile, redactions: Mapping[str, int] | None = None) -> Fetched:
        """Return what came of it, as far as every file has it."""
        entry = Entry(os.fsencode(self.place), saved.size, saved.sha256)
        return Fetched(self.member, self.place, placing, entry, saved, redactions=redactions or {})


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that is complete and verified, and not in place yet.

    Attributes:
        member: The file.
        place: Where it goes on the host, below the home.
        placing: How; None for shared lines.
        entry: For the record; None for shared lines.
        saved: For the next capture, without the identity; None for shared lines.
        origin: The working directory that it names first, or that was asked for.
        scan: Of a main transcript.
        lines: Shared lines, each with its newline.
        notices: What should be known of it.
        redactions: Hits of each rule.
        is_refused: It is not text, and must be to be redacted.
    """

    member: Related
    place: PurePosixPath
    placing: Placing | None = None
    entry: Entry | None = None
    saved: SavedFile | None = None
    origin: str | None = None
    scan: TranscriptScan | None = None
    lines: Sequence[bytes] = ()
    notices: Sequence[Notice] = ()
    redactions: Mapping[str, int] = field(default_factory=dict)
    is_refused: bool = False


def full_capture(path: str, why: str) -> Notice:
    """Say that a file was captured whole although a part of it was there, and why."""
    return Notice("full_capture", f"{path} was captured whole: {why}", path)


def refused(fetched: Sequence[Fetched]) -> SessionError | None:
    """Return the failure about files that are not text and had to be redacted; None when there are none."""
    found = [item.member.path for item in fetched if item.is_refused]
    if not found:
        return None
    return SessionError(
        "redaction_unsupported",
        f"{len(found)} file(s) are not text and cannot be redacted",
        hint="let them pass as they are, by an explicit choice",
        offenders=(Offender(printable(str(path)), "is not UTF-8 text") for path in found),
    )


def redactions_of(fetched: Sequence[Fetched], rules: Redaction | None) -> Mapping[str, int]:
    """Return the hits of each rule in all files."""
    counts = Counter({rule.name: 0 for rule in rules.rules} if rules else {})
    for item in fetched:
        counts.update(item.redactions)
    return dict(counts)
