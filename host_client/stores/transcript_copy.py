"""Whether a capture would put a second copy of a conversation on this host, beside one that the CLI may take instead.

The one rule: of two copies that the CLI cannot tell apart the second is never made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import ConflictError, Offender, printable
from host_client.stores.contract import Notice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import PurePosixPath

    from host_client.stores.layout import TranscriptLayout
    from host_client.stores.transcript_home import HostFiles
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


def host_copies(layout: TranscriptLayout, files: HostFiles, wanted: Mapping[str, PurePosixPath]) -> Sequence[Notice]:
    """Tell which other transcripts on this host have the ids of what is about to be placed; blocks.

    Args:
        layout: Tells ids, and where the CLI would look first.
        files: Of this host.
        wanted: Where each conversation goes, by id.

    Returns:
        Notices of those that the CLI passes over, since it looks first where the new one goes.

    Raises:
        ConflictError: `other_bucket`: there are others; all are named.
        WorkspaceError: `unsafe_path`: a link below the home; `access`.
    """
    home = files.home
    root = home.below(layout.search_root(home.host_path), "the layout's search_root", or_home=True)
    notices: list[Notice] = []
    offenders: list[Offender] = []
    for conversation_id, path in _others(layout, files.walk(root), wanted):
        preferred = layout.preferred_path(conversation_id, home.repository, home.host_path)
        if preferred == home.host_path / wanted[conversation_id]:
            shown = printable(str(path))
            notices.append(Notice("other_copy", f"{shown} has the same id and was left alone", shown))
        else:
            offenders.append(Offender(printable(str(home.host_path / path)), f"has the id {conversation_id}"))
    if offenders:
        raise ConflictError(
            "other_bucket",
            f"{len(offenders)} other transcript(s) on this host have the id of what would be captured",
            hint="remove or move them, or capture into a home of its own",
            offenders=offenders,
        )
    return notices


def _others(
    layout: TranscriptLayout, paths: Iterable[PurePosixPath], wanted: Mapping[str, PurePosixPath]
) -> Iterable[tuple[str, PurePosixPath]]:
    for path in sorted(paths):
        conversation_id = layout.conversation_id(path)
        if conversation_id is not None and wanted.get(conversation_id, path) != path:
            yield conversation_id, path
