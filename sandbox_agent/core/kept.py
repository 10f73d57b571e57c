"""Which stagings wait to be gone on with after the stream of their restore broke.

The one rule: what waits is bounded in number and in time, and the time runs by a clock that nobody sets. What a killed
daemon left gets the whole time from when the next one first sees it.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox_api.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
    from typing import TypeAlias

Over: TypeAlias = "Mapping[bytes, tuple[int, float]]"
"""What need not wait any longer."""

MAX_KEPT_COUNT = 8
"""Stagings that wait at the same time; the oldest go first."""

MAX_KEPT_SECONDS = 600.0
"""How long one waits, unless the operator says otherwise."""

MAX_WAIT_SECONDS = 5.0
"""How long an attempt waits for the one before it, which may not know yet that its client is gone."""


class Kept:
    """What waits, by the names of the journal's files; for all calls of a daemon, from any thread.

    Args:
        max_seconds: How long each waits.
        max_count: How many wait.
        now: Gives seconds of a clock that only goes forward.
        max_wait_seconds: How long an attempt waits for another of its id to end.

    Attributes:
        changed: Guards everything here, and told when there is something new. Whoever looks at journal files of
            restores that may go on holds it, so that no look is taken for a restore at work.
    """

    def __init__(
        self,
        max_seconds: float = MAX_KEPT_SECONDS,
        max_count: int = MAX_KEPT_COUNT,
        now: Callable[[], float] = time.monotonic,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        self._max_wait_seconds = max_wait_seconds
        self._max_seconds = max_seconds
        self._max_count = max_count
        self._now = now
        self._claimed: set[Hashable] = set()
        self._until: dict[bytes, tuple[int, float]] = {}
        self._is_ended = False
        self.changed = threading.Condition()

    @contextmanager
    def claimed(self, restore_id: str, place: Hashable) -> Iterator[None]:
        """Hold a restore id at a place for one restore.

        One that has it is waited for a while: it may be the last attempt, whose broken stream is being cleaned up.

        Raises:
            ConflictError: `busy`: another one of this daemon has it.
        """
        key = (restore_id, place)
        with self.changed:
            if not self.changed.wait_for(lambda: key not in self._claimed, self._max_wait_seconds):
                raise busy(restore_id)
            self._claimed.add(key)
        try:
            yield
        finally:
            with self.changed:
                self._claimed.discard(key)
                self.changed.notify_all()

    def is_waiting(self, name: bytes, changed_ns: int) -> bool:
        """Tell whether a staging may wait on; the first time it is asked about in a state, its time begins.

        Args:
            name: Of its journal file, which nobody has locked.
            changed_ns: When that file changed last.
        """
        with self.changed:
            now = self._now()
            if self._until.get(name, (0, 0.0))[0] != changed_ns:
                self._until.pop(name, None)
                self._until[name] = (changed_ns, now + self._max_seconds)
                for surplus in list(self._until)[: -self._max_count]:
                    self._until[surplus] = (self._until[surplus][0], now)
                self.changed.notify_all()
            if self._until[name][1] > now:
                return True
            del self._until[name]
            return False

    def forget(self, name: bytes) -> None:
        """Take note that a restore goes on with a staging, or that it is gone."""
        with self.changed:
            self._until.pop(name, None)

    def forget_all_but(self, names: Collection[bytes]) -> None:
        """Take note that there are only these journal files."""
        with self.changed:
            self._until = {name: until for name, until in self._until.items() if name in names}

    def give_up(self) -> bool:
        """Let nothing wait any longer that waits now, and tell whether anything did; a sweep removes it."""
        with self.changed:
            now = self._now()
            self._until = {name: (changed_ns, now) for name, (changed_ns, _) in self._until.items()}
            self.changed.notify_all()
            return bool(self._until)

    def wait(self) -> Over | None:
        """Block until the time of something is over, and tell what that is; None: the daemon ends."""
        with self.changed:
            while not self._is_ended:
                now = self._now()
                if over := {name: until for name, until in self._until.items() if until[1] <= now}:
                    return over
                self.changed.wait(min((until - now for _, until in self._until.values()), default=None))
            return None

    def forget_over(self, over: Over) -> None:
        """Take note that a sweep has done what it could about what was over; the rest is for another start."""
        with self.changed:
            self._until = {name: until for name, until in self._until.items() if over.get(name) != until}

    def end(self) -> bool:
        """Let nothing wait from now on; tell whether anything did."""
        with self.changed:
            was_waiting = bool(self._until)
            self._is_ended = True
            self._max_seconds = 0.0
            self._until.clear()
            self.changed.notify_all()
            return was_waiting


def busy(restore_id: str) -> ConflictError:
    """Return the failure of a restore whose id another one is using."""
    return ConflictError(
        "busy",
        f"the restore {restore_id} is at work already",
        hint="wait for it, or use an id of its own for each restore",
        facts={"restore_id": restore_id},
    )
