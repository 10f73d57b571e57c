"""Whether a capture would put a second copy of a conversation on this host, beside one that the CLI may take instead.

The one rule: of two copies that the CLI cannot tell apart the second is never made. A first one gives way only when it
is what a capture left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from host_client.errors import ConflictError, Offender, WorkspaceError, printable
from host_client.session.placed_file import KnownFile, is_known, opened_file
from host_client.session.transcript_state import load
from host_client.stores.contract import Notice

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from host_client.session.folder import Folder
    from host_client.stores.layout import TranscriptLayout
    from host_client.stores.transcript_home import HostFiles, HostHome
    from host_client.stores.transcript_member import Members


def conversation_places(
    layout: TranscriptLayout, members: Members, places: Mapping[PurePosixPath, PurePosixPath]
) -> Mapping[str, PurePosixPath]:
    """Return where the conversations among some files go, by their ids: the main one, and others that it needs.

    What lies beside the main transcript belongs to it, whatever its name.
    """
    mains = [members.main, *(one.path for one in members.related if one.kind == "transcript" and not one.beside)]
    named = ((layout.conversation_id(places[path]), places[path]) for path in mains)
    return {conversation_id: place for conversation_id, place in named if conversation_id is not None}


@dataclass(frozen=True, slots=True)
class OldForm:
    """What an earlier capture left at another place, before the transcript was moved or compressed in the sandbox."""

    path: PurePosixPath
    known: KnownFile


@dataclass(frozen=True, slots=True)
class HostCopies:
    """Other transcripts of this host that have the ids of what is about to be placed.

    Attributes:
        notices: Of those that the CLI passes over, since it looks first where the new one goes.
        old_forms: Those that are ours and are to be set aside first, by where the new one goes.
    """

    notices: Sequence[Notice] = ()
    old_forms: Mapping[PurePosixPath, Sequence[OldForm]] = field(default_factory=dict)


def host_copies(
    layout: TranscriptLayout, files: HostFiles, wanted: Mapping[str, PurePosixPath], states: Folder
) -> HostCopies:
    """Find other transcripts on this host that have the ids of what is about to be placed; blocks.

    Args:
        layout: Tells ids, and where the CLI would look first.
        files: Of this host.
        wanted: Where each conversation goes, by id.
        states: What captures of these conversations left, by which ours are told from the user's.

    Raises:
        ConflictError: `other_bucket`: there are others, not left by a capture or gone on with since; all are named.
        WorkspaceError: `unsafe_path`: a link below the home; `access`.
    """
    home = files.home
    root = home.below(layout.search_root(home.host_path), "the layout's search_root", or_home=True)
    notices: list[Notice] = []
    doubtful: list[tuple[str, PurePosixPath]] = []
    for conversation_id, path in _others(layout, files.walk(root), wanted):
        preferred = layout.preferred_path(conversation_id, home.repository, home.host_path)
        if preferred == home.host_path / wanted[conversation_id]:
            shown = printable(str(path))
            notices.append(Notice("other_copy", f"{shown} has the same id and was left alone", shown))
        else:
            doubtful.append((conversation_id, path))
    left = _left_by_captures(states, wanted, {path for _, path in doubtful}) if doubtful else {}
    offenders: list[Offender] = []
    old_forms: dict[PurePosixPath, list[OldForm]] = {}
    for conversation_id, path in doubtful:
        known = next((one for one in left.get(path, ()) if _is_still(home, path, one)), None)
        if known is None:
            offenders.append(Offender(printable(str(home.host_path / path)), f"has the id {conversation_id}"))
        else:
            old_forms.setdefault(wanted[conversation_id], []).append(OldForm(path, known))
    if offenders:
        raise ConflictError(
            "other_bucket",
            f"{len(offenders)} other transcript(s) on this host have the id of what would be captured",
            hint="remove or move them, or capture into a home of its own",
            offenders=offenders,
        )
    return HostCopies(notices, old_forms)


def _left_by_captures(
    states: Folder, conversation_ids: Iterable[str], paths: Container[PurePosixPath]
) -> Mapping[PurePosixPath, Sequence[KnownFile]]:
    """Return what captures of some conversations left in some places: each may have left a part of the others, too."""
    left: dict[PurePosixPath, list[KnownFile]] = {}
    for conversation_id in conversation_ids:
        saved = load(states, conversation_id)
        for file in saved.files.values() if saved else ():
            if (place := PurePosixPath(file.place)) in paths:
                left.setdefault(place, []).append(KnownFile(file.size, file.sha256, file.identity))
    return left


def _is_still(home: HostHome, path: PurePosixPath, known: KnownFile) -> bool:
    try:
        with home.open(path.parent.parts) as folder, opened_file(folder, path.name) as fd:
            return is_known(fd, known)
    except (OSError, WorkspaceError):
        return False  # somebody changes it at this moment


def _others(
    layout: TranscriptLayout, paths: Iterable[PurePosixPath], wanted: Mapping[str, PurePosixPath]
) -> Iterable[tuple[str, PurePosixPath]]:
    for path in sorted(paths):
        conversation_id = layout.conversation_id(path)
        if conversation_id is not None and wanted.get(conversation_id, path) != path:
            yield conversation_id, path
