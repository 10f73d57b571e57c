"""What a sandbox has of a session directory, beside the bundle that this host keeps of it.

The one rule: neither side changes. What the sandbox has is captured into a folder of its own, as far as the host's
bundle does not have it already, and that folder is gone when the answer is known.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from host_client.errors import SessionError
from host_client.sandbox.place import Place
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.session.bundle import SavedBundle
from host_client.stores.content_comparison import combined, compare_contents
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Mapping

    from host_client.sandbox.sandbox import Sandbox
    from host_client.stores.bundle import SessionBundleConversations
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import Comparison, ConversationRecord

    Contents = Mapping[str, Callable[[], Iterator[bytes]]]

_WITHOUT_CAPTURE: Mapping[str, Comparison] = {
    "not_found": "absent",
    "empty": "absent",
    # Something is there by that name, and it is not the session that the host has.
    "missing_required": "diverged",
    "invalid": "diverged",
}


async def compare(
    store: SessionBundleConversations, record: ConversationRecord, context: ConversationContext
) -> Comparison:
    """Compare a kept session with the sandbox's; see `SessionBundleConversations.compare`."""
    conversation_id, limits = record.checked_id(store.format), context.effective_limits
    async with (
        opened_in_thread(tempfile.TemporaryDirectory, prefix="outpost-") as directory,
        opened_in_thread(SavedBundle.open, record.path, store.profile, conversation_id, limits) as ours,
    ):
        store.check_digest(ours, record)
        scratch = Path(directory)
        there = replace(context, conversation_home=scratch, durability="none", progress=None)
        await in_thread(_lay_out, record.path, store.destination(conversation_id, there))
        try:
            captured = await store.capture(conversation_id, there)
        except SessionError as error:
            if error.reason not in _WITHOUT_CAPTURE:
                raise
            return _WITHOUT_CAPTURE[error.reason]
        if captured.digest == record.digest:
            return "same"
        async with opened_in_thread(SavedBundle.open, captured.path, store.profile, conversation_id, limits) as theirs:
            as_kept = await in_thread(_compared, _of_bundle(ours), _of_bundle(theirs), store.logs)
            if as_kept != "diverged" or not store.profile.relocate:
                return as_kept
            return await _Relocation(store, scratch, context).compared(ours, theirs)


@dataclass(frozen=True, slots=True)
class _Relocation:
    """Both sessions put into one place of this host, so that they differ in no working directory.

    Attributes:
        store: Knows the format.
        scratch: The home and workspace of a private daemon.
        context: Has the limits.
    """

    store: SessionBundleConversations
    scratch: Path
    context: ConversationContext

    async def compared(self, ours: SavedBundle, theirs: SavedBundle) -> Comparison:
        target = LocalTarget(self.scratch, self.scratch)
        async with connect(target, limits=self.context.effective_limits) as sandbox:
            ours_at = self.scratch / "ours"
            # Both go to the very same place, since its name is in what is relocated.
            await in_thread((await self._placed(sandbox, ours)).rename, ours_at)
            theirs_at = await self._placed(sandbox, theirs)
        return await in_thread(_compared, _of_directory(ours_at), _of_directory(theirs_at), self.store.logs)

    async def _placed(self, sandbox: Sandbox, saved: SavedBundle) -> Path:
        profile = self.store.profile
        # This host's own variable must not lead into the user's CLI home.
        variables = {profile.root_variable: str(self.scratch / profile.root_directory)} if profile.root_variable else {}
        place = Place(profile, saved.conversation_id, variables)
        limits = self.context.effective_limits
        restored = await sandbox.bundles.restore(place, saved, limits=limits, full_durability=False)
        return Path(restored.target)


def _lay_out(saved_path: Path, scratch_path: Path) -> None:
    """Give a capture what the host has already, so that this need not come again."""
    scratch_path.parent.mkdir(mode=0o700, parents=True)
    shutil.copyfile(saved_path, scratch_path)


def _compared(ours: Contents, theirs: Contents, logs: re.Pattern[str] | None) -> Comparison:
    """Compare two sessions by their logs, or by all of their files where none is known to be a log.

    A log is only ever added to: it alone tells which side has more. A small file beside it, with the time of the last
    turn, is another one after each.
    """
    paths = ours.keys() | theirs.keys()
    deciding = {path for path in paths if logs is not None and logs.search(path)} or paths
    return combined(_file_compared(ours.get(path), theirs.get(path)) for path in sorted(deciding))


def _file_compared(
    ours: Callable[[], Iterator[bytes]] | None, theirs: Callable[[], Iterator[bytes]] | None
) -> Comparison:
    if ours is None:
        return "ahead"
    return "behind" if theirs is None else compare_contents(ours(), theirs())


def _of_bundle(saved: SavedBundle) -> Contents:
    return {
        os.fsdecode(entry.path): partial(saved.pieces, index, lambda: CHUNK_BYTES)
        for index, entry in enumerate(saved.entries)
    }


def _of_directory(directory: Path) -> Contents:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): partial(_pieces, path) for path in files}


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece
