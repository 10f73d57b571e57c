"""A namespace of a store as a whole: which conversations it has, whether they are whole, and removing what is old.

The one rule: it works on the objects of the archive alone, so it needs no store of conversations and no sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError, SessionError, printable
from host_client.sandbox.task import in_thread
from host_client.stores.archive_codec import Codec
from host_client.stores.archive_key import archive_key
from host_client.stores.archive_layout import Layout
from host_client.stores.archive_prune import GRACE_SECONDS, Pruning
from host_client.stores.archive_retention import PruneRules
from host_client.stores.archive_stats import measure
from host_client.stores.archive_survey import Survey
from host_client.stores.archive_verify import Verification
from host_client.stores.in_order import CONCURRENCY_COUNT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from host_client.stores.archive_index import Snapshot
    from host_client.stores.archive_key import ArchiveKey
    from host_client.stores.archive_prune import PruneReport
    from host_client.stores.archive_stats import ArchiveStats
    from host_client.stores.archive_survey import ConversationName, Listed
    from host_client.stores.archive_verify import VerifyReport
    from host_client.transports.contract import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedConversation:
    """A conversation of an archive.

    Attributes:
        format: Its format.
        id: Its id in the archive.
        native_id: The id by which its CLI knows it; another one after a fork.
        snapshots_count: Its snapshots.
        newest: The newest of them.
    """

    format: str
    id: str
    native_id: str
    snapshots_count: int
    newest: Snapshot


class ConversationArchive:
    """All conversations of a namespace, of whatever format.

    Every method may raise what the transport raises, and:
        SessionError: `corrupt`, `tampered`, `digest_mismatch`, `missing_object`: an index or a manifest that it needs.
            `verify` reports those instead.
        ConfigurationError: `wrong_key`; `not_supported`: written by a newer version.

    Args:
        transport: The store.
        namespace: The namespace.
        key: Of an encrypted namespace: the key, or a function that returns its 32 bytes and may block; None: it is not
            encrypted.

    Raises:
        ConfigurationError: `invalid_key`: not a namespace.
    """

    def __init__(
        self, transport: Transport, namespace: str, key: ArchiveKey | Callable[[], bytes] | None = None
    ) -> None:
        self._transport = transport
        self._layout = Layout(namespace)
        self._key = key

    async def conversations(self) -> AsyncIterator[ArchivedConversation]:
        """Yield the conversations by format and id."""
        survey = await self._survey()
        for name, listed in (await survey.conversations()).items():
            read = await survey.index(name) if listed.index else None
            if read is not None:
                index = read.index
                yield ArchivedConversation(
                    format=name.format,
                    id=name.id,
                    native_id=index.native_id,
                    snapshots_count=len(index.entries),
                    newest=index.head,
                )

    async def verify(
        self,
        format_name: str | None = None,
        ids: Collection[str] | None = None,
        *,
        read_data: bool = True,
        concurrency_count: int = CONCURRENCY_COUNT,
    ) -> VerifyReport:
        """Check all that snapshots name, and tell everything that is wrong. Changes nothing.

        Every data object is read once, apart from those that files have in different orders; its content is hashed, and
        so is every file of every snapshot.

        Args:
            format_name: Only conversations of this format; None: of all.
            ids: Only those; None: all.
            read_data: False: data is only looked for, not read.
            concurrency_count: Reads that are under way or wait in memory at a time, each of 8 MiB at most.

        Raises:
            SessionError: `not_found`: one of the ids is not there.
            ConfigurationError: `invalid_argument`: a count below 1.
        """
        if concurrency_count < 1:
            raise ConfigurationError("invalid_argument", "concurrency_count is less than 1")
        survey = await self._survey()
        listed = _selected(await survey.conversations(), format_name, ids)
        verification = Verification(survey, concurrency_count=concurrency_count)
        return await verification.run(
            listed, read_data=read_data, count_unreferenced=format_name is None and ids is None
        )

    async def prune(
        self,
        *,
        keep_last: int | None = None,
        younger_than_seconds: float | None = None,
        garbage_only: bool = False,
        grace_seconds: float = GRACE_SECONDS,
        dry_run: bool = False,
    ) -> PruneReport:
        """Remove snapshots that no rule keeps, and in time the data that no snapshot needs.

        Data goes in two steps, in two runs: what nobody needs and is older than the grace period is marked; what was
        marked longer ago than that and is still not needed is removed. Others may archive meanwhile. A run that was
        killed leaves an archive that is whole; the next one goes on.

        Args:
            keep_last: Keep so many of the newest snapshots of each conversation; at least 1.
            younger_than_seconds: Keep snapshots that were written less long ago, by the clock of the store. Any rule
                keeps, and the newest of each conversation stays in any case.
            garbage_only: Keep all snapshots.
            grace_seconds: Longer than a push to the namespace takes, or more than ten minutes: a push that lasts longer
                than five looks itself; 0: nobody writes to it now, and everything goes in this run.
            dry_run: Tell what would be done. Nothing changes, but for an object that is written to learn the store's
                time, and removed.

        Raises:
            ConfigurationError: `invalid_argument`: no rule, or a number out of its range.
        """
        rules = PruneRules(keep_last=keep_last, younger_than_seconds=younger_than_seconds, garbage_only=garbage_only)
        pruning = Pruning(await self._survey(), rules, grace_seconds=grace_seconds, dry_run=dry_run)
        return await pruning.run()

    async def stats(self) -> ArchiveStats:
        """Measure the namespace, without reading data."""
        return await measure(await self._survey())

    async def _survey(self) -> Survey:
        key = await in_thread(archive_key, self._key)
        return Survey(self._transport, self._layout, Codec(key))


def _selected(
    listed: dict[ConversationName, Listed], format_name: str | None, ids: Collection[str] | None
) -> dict[ConversationName, Listed]:
    """Return the conversations that a caller means."""
    found = {
        name: conversation
        for name, conversation in listed.items()
        if format_name in (None, name.format) and (ids is None or name.id in ids)
    }
    for conversation_id in ids or ():
        if not any(name.id == conversation_id for name in found):
            raise SessionError("not_found", f"the archive has no conversation '{printable(conversation_id)}'")
    return found
