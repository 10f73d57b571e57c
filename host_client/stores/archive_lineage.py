"""Whether a capture goes on from the newest snapshot of an archive.

The one rule: only what begins with the bytes of the newest snapshot, or what the base store says to be the same or
ahead where relocation changed bytes, comes after it without being told to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import ConflictError, SessionError
from host_client.sandbox.task import in_thread
from host_client.stores.archive_content import decides, opened_content
from host_client.stores.content_comparison import combined, compare_contents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from host_client.stores.archive_content import ContentFile
    from host_client.stores.archive_index import Snapshot
    from host_client.stores.archive_manifest import Manifest
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import Comparison, ConversationRecord, ConversationStore

    _Contents = Mapping[str, Callable[[], Iterator[bytes]]]


def asked_sizes(base: ConversationStore, newest: Manifest | None) -> Mapping[str, int]:
    """Return how much of the beginning of which file must be hashed to tell whether it goes on from a snapshot."""
    if newest is None:
        return {}
    sizes = {file.path: file.size for file in newest.files}
    return {path: sizes[path] for path in decides(base, newest.conversation_id, sizes)}


def goes_on(base: ConversationStore, newest: Manifest, files: Sequence[ContentFile]) -> bool:
    """Tell whether captured files begin with those of a snapshot, as far as those count that decide.

    Args:
        base: Knows which files decide: a small one that is another after each turn does not.
        newest: The snapshot.
        files: What was captured, opened with `asked_sizes`.
    """
    old = {file.path: file.sha256 for file in newest.files}
    new = {file.path: file.beginning for file in files}
    deciding = decides(base, newest.conversation_id, old.keys() | new.keys())
    return all((new.get(path) or b"").hex() == old[path] for path in deciding & old.keys())


async def compare_files(
    base: ConversationStore, record: ConversationRecord, kept: ConversationContext, scratch: ConversationContext
) -> Comparison:
    """Tell what a sandbox has of a kept conversation, for a store that cannot: by all of its files.

    Args:
        base: The store.
        record: The conversation.
        kept: The context of the record.
        scratch: The same with an empty conversation home, which is left with what the sandbox has.

    Raises:
        OutpostError: those of the base's `capture`.
    """
    try:
        captured = await base.capture(record.conversation_id, scratch)
    except SessionError as error:
        if error.reason != "not_found":
            raise
        return "absent"
    if captured.digest == record.digest:
        return "same"
    async with (
        opened_content(base, record, kept, {}) as our_files,
        opened_content(base, captured, scratch, {}) as their_files,
    ):
        ours = {file.path: file.pieces for file in our_files}
        theirs = {file.path: file.pieces for file in their_files}
        return await in_thread(lambda: combined(_compared(ours, theirs)))


def _compared(ours: _Contents, theirs: _Contents) -> Iterator[Comparison]:
    for path in ours.keys() | theirs.keys():
        if path not in ours or path not in theirs:
            yield "ahead" if path in theirs else "behind"
        else:
            yield compare_contents(ours[path](), theirs[path]())


def check_comparison(comparison: Comparison, archive_id: str, newest: Snapshot) -> None:
    """Refuse what does not go on from the newest snapshot, as the base store compared them.

    Raises:
        ConflictError: `behind`, `diverged`.
    """
    facts = {"conversation": archive_id, "snapshot": newest.snapshot_id}
    if comparison == "behind":
        raise ConflictError(
            "behind",
            f"the sandbox has less of {archive_id} than the archive's newest snapshot",
            hint="restore the newest snapshot into the sandbox to go on from it; force= (--force) archives the older "
            "state in front of it all the same, which stays in the history",
            facts=facts,
        )
    if comparison not in ("same", "ahead"):
        raise ConflictError(
            "diverged",
            f"what the sandbox has of {archive_id} does not go on from the archive's newest snapshot",
            hint="to keep both, fork the archive at the snapshot that both went on from, and capture into the fork; or "
            "force= (--force) archives it in front of the newest snapshot, which stays in the history",
            facts=facts,
        )
