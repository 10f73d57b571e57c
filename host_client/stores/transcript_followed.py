"""The transcripts of a captured conversation as they are gone on with, line by line.

The one rule: what is kept of them for the next capture is at every moment what the host's files are, or less.
"""

from __future__ import annotations

import glob
import os
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from host_client.sandbox.follow import FollowHeld, FollowPattern
from host_client.session.compression import is_compressed
from host_client.session.redactor import Redactor
from host_client.session.relocate import Relocator
from host_client.session.transcript_growth import TranscriptGrowth
from host_client.session.transcript_scan import TranscriptScan
from host_client.session.transcript_state import SavedScan
from host_client.session.transcript_stream import TranscriptStream
from host_client.stores.layout import CHILDREN
from host_client.stores.transcript_capture import locked, save_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from host_client.session.folder import Folder
    from host_client.session.transcript_state import SavedConversation, SavedFile
    from host_client.stores.transcript_gathering import Route

_MAX_PATTERNS_COUNT = 64
"""Most that a daemon takes; transcripts beyond are left to captures."""


class FollowedFiles:
    """The transcripts of one conversation, by their paths below the sandbox's home.

    Args:
        route: From where to where.
        saved: As a capture left them.
        transcripts: Which of its files they are.
        states: Has the states of the format's conversations; stays the caller's.
        before: As they were gone on with before that capture; what still fits is taken over, since it need not be read
            again. None: nothing.

    Attributes:
        patterns: What to ask a daemon for.
        host_paths: The host's files of those that can be gone on with.
        scan: What was found in the main transcript.
    """

    def __init__(
        self,
        route: Route,
        saved: SavedConversation,
        transcripts: Sequence[PurePosixPath],
        states: Folder,
        before: FollowedFiles | None = None,
    ) -> None:
        self._route = route
        self._saved = saved
        self._states = states
        self._is_saved = True
        main = saved.files[str(route.main)]
        self.scan = TranscriptScan(keys=route.layout.collected_keys, is_record=route.layout.is_record)
        saved.scan.resume(self.scan, main.line_bytes)
        self.patterns, paths = self._choose(transcripts)
        known = {path: saved.files[str(path)] for path in paths if str(path) in saved.files}
        self._held = {path: file.parts for path, file in known.items()}
        self._growths = {path: self._growth(path, file, before) for path, file in known.items() if self._grows(path)}
        self.host_paths = {path: route.home.host_path / known[path].place for path in self._growths}

    @property
    def held(self) -> Sequence[FollowHeld]:
        """What of them is on the host."""
        return [FollowHeld(path, parts) for path, parts in self._parts.items()]

    def size_bytes(self, path: PurePosixPath) -> int | None:
        """Return how much of a file is on the host; None: it is not known."""
        parts = self._parts.get(path)
        return None if parts is None else sum(size for size, _ in parts)

    def growth(self, path: PurePosixPath) -> TranscriptGrowth | None:
        """Return how a file is gone on with; None: it is not."""
        return self._growths.get(path)

    def advance(self, growth: TranscriptGrowth, data: bytes, sha256: bytes) -> None:
        """Add lines to a host's file, while no capture places any; see `TranscriptGrowth.advance`. Blocks."""
        growth.prepare()
        with locked(self._states):
            growth.advance(data, sha256)
        self._is_saved = False
        if self._route.context.is_durable:
            growth.force()  # not while others wait

    def save(self) -> None:
        """Keep their state for the next capture, unless that was done; blocks.

        Raises:
            LimitError: `disk_full`, `read_only`, `descriptors`.
        """
        if self._is_saved:
            return
        for growth in self._growths.values():
            growth.remember()
        files = {str(path): growth.saved for path, growth in self._growths.items()}
        saved = replace(self._saved, files={**self._saved.files, **files}, scan=SavedScan.of(self.scan))
        save_state(self._states, self._route, saved)
        self._is_saved = True

    @property
    def _parts(self) -> Mapping[PurePosixPath, Sequence[tuple[int, bytes]]]:
        return self._held | {path: growth.saved.parts for path, growth in self._growths.items()}

    def _choose(self, transcripts: Sequence[PurePosixPath]) -> tuple[Sequence[FollowPattern], set[PurePosixPath]]:
        """Return what to ask for, children that are still to come included, and which of the known ones that is."""
        main, layout = self._route.main, self._route.layout
        children = main.parent / self._route.conversation_id / CHILDREN
        below = {path for path in transcripts if layout.sidecars and path.is_relative_to(children)}
        patterns = [FollowPattern(children, "*.jsonl", whole_lines=True)] if layout.sidecars else []
        others = [path for path in transcripts if path != main and path not in below]
        exact = [main, *others][: _MAX_PATTERNS_COUNT - len(patterns)]
        return [*map(_exactly, exact), *patterns], {*exact, *below}

    def _grows(self, path: PurePosixPath) -> bool:
        # Without an origin a first one may come that is named in what is on the host, too.
        return self._saved.origin is not None and not is_compressed(path)

    def _growth(self, path: PurePosixPath, saved: SavedFile, before: FollowedFiles | None) -> TranscriptGrowth:
        is_main = path == self._route.main
        if before is not None and (known := before._reusable(path, saved, self._saved.origin)):  # noqa: SLF001 - its kind
            if is_main:
                self.scan = before.scan
            return known
        home, place = self._route.home, PurePosixPath(saved.place)
        return TranscriptGrowth(
            saved,
            lambda: home.open(place.parent.parts),
            place.name,
            lambda write: self._steps(write, saved, self.scan if is_main else None),
        )

    def _reusable(self, path: PurePosixPath, saved: SavedFile, origin: str | None) -> TranscriptGrowth | None:
        growth = self._growths.get(path)
        if growth is None or not growth.can_go_on or origin != self._saved.origin:
            return None
        if (growth.saved.place, growth.saved.line_sha256) != (saved.place, saved.line_sha256):
            return None
        growth.saved = saved
        return growth

    def _steps(
        self, write: Callable[[bytes], object], saved: SavedFile, scan: TranscriptScan | None
    ) -> TranscriptStream:
        rules = self._route.context.redaction
        return TranscriptStream(
            write,
            Relocator(os.fspath(self._route.home.repository), origin=self._saved.origin),
            redactor=Redactor(rules) if rules is not None and self._route.has_rules else None,
            scan=scan,
            start=(saved.parts_bytes, saved.line_bytes),
        )


def _exactly(path: PurePosixPath) -> FollowPattern:
    """Name one file, and others of its name below its folder, which are passed over."""
    return FollowPattern(path.parent, glob.escape(path.name), whole_lines=not is_compressed(path))
