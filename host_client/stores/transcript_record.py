"""What the capture of a transcript conversation tells: its files as the host has them now, and what was unusual.

The one rule: paths of the sandbox are told as they may be saved, redacted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from host_client.errors import printable
from host_client.sandbox.place import LeftOut
from host_client.stores.contract import ConversationRecord, Notice
from host_client.stores.transcript_gathering import nothing_said
from host_client.stores.transcript_home import HostFiles
from host_client.stores.transcript_kept import MAX_LEFT_OUT_COUNT, effective_limits, read_kept
from host_client.stores.transcript_order import redactions_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path, PurePosixPath

    from host_client.sandbox.transcript import Holder
    from host_client.session.transcript_placement import Placed
    from host_client.session.transcript_state import SavedConversation
    from host_client.stores.transcript_gathering import Gathering, Route
    from host_client.stores.transcript_kept import Found, Kept


@dataclass(frozen=True, slots=True)
class OldFormAside:
    """A file that a capture left at one place, below the home, and that was set aside for the new one at another."""

    path: PurePosixPath
    place: PurePosixPath
    set_aside: Path

    @property
    def notice(self) -> Notice:
        """What is told of it."""
        message = f"the host's {_shown(self.path)} gave way to {_shown(self.place)} and was set aside"
        return Notice("replaced_on_host", message, printable(str(self.set_aside)))


@dataclass(frozen=True, slots=True)
class PlacedFiles:
    """What came of the placing: each file by its path in the sandbox, whether anything was changed, and the state.

    What captures left elsewhere and had to give way is told by `old_forms`.

    Other conversations that went on at the host were left alone; they are no part of `files`.
    """

    files: Mapping[PurePosixPath, Placed]
    old_forms: Sequence[OldFormAside]
    is_changed: bool
    saved: SavedConversation


@dataclass(frozen=True, slots=True)
class Told:
    """Makes the record of a capture.

    Attributes:
        route: From where to where.
        found: The main transcript, and others that are not it.
        holders: Who has the conversation open.
        started_seconds: When the capture began, by `time.perf_counter`.
    """

    route: Route
    found: Found
    holders: Sequence[Holder]
    started_seconds: float

    async def of(self, gathering: Gathering, placed: PlacedFiles) -> ConversationRecord:
        """Return the record of what was placed."""
        fetched = list(gathering.fetched.values())
        kept = await read_kept(
            self.route.layout,
            self.route.conversation_id,
            HostFiles(self.route.home),
            self.route.host_main,
            limits=effective_limits(self.route.context),
            known={
                item.place: item.entry
                for path, item in gathering.fetched.items()
                if item.entry is not None and path in placed.files
            },
            scan=gathering.fetched[self.route.main].scan,
        )
        notices = [*gathering.notices, *(notice for item in fetched for notice in item.notices)]
        for path, item in gathering.fetched.items():
            if item.placing is not None and path not in placed.files:
                shown = _shown(item.place)
                notices.append(Notice("went_on", f"{shown} went on at this host since, and was left as it is", shown))
        for path, one in placed.files.items():
            if one.set_aside is not None:
                message = f"the host's {printable(str(gathering.places[path]))} held something else and was set aside"
                notices.append(Notice("replaced_on_host", message, printable(str(one.set_aside))))
        notices += [one.notice for one in placed.old_forms]
        record = self._record(
            kept, notices, [LeftOut(_shown(item.path), item.why) for item in gathering.members.skipped]
        )
        return replace(
            record,
            received_bytes=gathering.received_bytes,
            unchanged=not placed.is_changed,
            redactions=redactions_of(fetched, self.route.context.redaction),
        )

    async def of_here(self) -> ConversationRecord:
        """Return the record of a conversation that need not be moved: the sandbox is this host, its place the same."""
        route = self.route
        limits = effective_limits(route.context)
        kept = await read_kept(
            route.layout, route.conversation_id, HostFiles(route.home), route.host_main, limits=limits
        )
        if not kept.scan.has_record and not route.context.allow_empty:
            raise nothing_said(route.home.host_path / route.host_main)
        return replace(self._record(kept, (), kept.left_out), unchanged=True)

    def _record(self, kept: Kept, notices: Sequence[Notice], skipped: Sequence[LeftOut]) -> ConversationRecord:
        route = self.route
        left_out = [replace(item, path=route.redacted(item.path)) for item in (*self.found.left_out, *skipped)]
        return ConversationRecord(
            format=route.layout.format,
            conversation_id=route.conversation_id,
            path=route.home.host_path / route.host_main,
            digest=kept.digest,
            files_count=len(kept.entries),
            bytes_count=kept.bytes_count,
            source=type(route.main)(route.redacted(str(route.sandbox.home / route.main))),
            duration_seconds=time.perf_counter() - self.started_seconds,
            left_out=left_out[:MAX_LEFT_OUT_COUNT],
            left_out_count=len(left_out),
            in_use_pid=self.holders[0].pid if self.holders else 0,
            notices=[*self.found.notices, *self._in_use(), *notices, *kept.notices],
        )

    def _in_use(self) -> Iterator[Notice]:
        for holder in self.holders[:1]:
            process = f"process {holder.pid}" if holder.pid else "a process"
            message = f"{process} has the conversation open; only whole lines are taken"
            yield Notice("in_use", message, self.route.redacted(printable(str(holder.path))))


def _shown(path: PurePosixPath) -> str:
    return printable(str(path))
