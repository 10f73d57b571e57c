"""Which snapshots prune keeps.

The one rule: the newest of each conversation always stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError

if TYPE_CHECKING:
    from datetime import datetime

    from host_client.stores.archive_index import Index, Snapshot
    from host_client.stores.archive_survey import Listed


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRules:
    """Which snapshots stay: those that any rule keeps, and the newest of each conversation in any case.

    Attributes:
        keep_last: So many of the newest of each conversation; None: no such rule.
        younger_than_seconds: Those written to the store less long ago; None: no such rule.
        garbage_only: All of them: only what no index names goes.

    Raises:
        ConfigurationError: `invalid_argument`: no rule, a rule beside `garbage_only`, or a number out of its range.
    """

    keep_last: int | None = None
    younger_than_seconds: float | None = None
    garbage_only: bool = False

    def __post_init__(self) -> None:
        has_rule = self.keep_last is not None or self.younger_than_seconds is not None
        if has_rule == self.garbage_only:
            raise ConfigurationError(
                "invalid_argument",
                "prune has no rule that says what to keep" if not has_rule else "a rule beside garbage_only",
                hint="give keep_last= (--keep-last), younger_than_seconds= (--younger-than) or both; or garbage_only= "
                "(--garbage-only), which keeps all snapshots",
            )
        if self.keep_last is not None and self.keep_last < 1:
            raise ConfigurationError("invalid_argument", "keep_last is less than 1")
        if self.younger_than_seconds is not None and not self.younger_than_seconds >= 0:
            raise ConfigurationError("invalid_argument", "younger_than_seconds is less than 0")

    def removed(self, index: Index, listed: Listed, now: datetime) -> list[str]:
        """Return the ids of the snapshots that go."""
        if self.garbage_only:
            return []
        last = self.keep_last or 1
        return [entry.snapshot_id for entry in index.entries[:-last] if not self._is_young(entry, listed, now)]

    def _is_young(self, entry: Snapshot, listed: Listed, now: datetime) -> bool:
        if self.younger_than_seconds is None:
            return False
        # By the store's clock: that of the host which made the snapshot may have been wrong.
        info = listed.manifests.get(entry.snapshot_id)
        return info is None or (now - info.modified).total_seconds() < self.younger_than_seconds
