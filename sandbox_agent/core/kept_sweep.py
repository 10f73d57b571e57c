"""The thread that removes what no attempt at a restore went on with in time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_agent.core.kept import Kept


class KeptSweep:
    """Runs from now until `close`, after which nothing waits.

    Args:
        kept: What waits.
        sweep: Removes what need not wait any longer; raises nothing.
    """

    def __init__(self, kept: Kept, sweep: Callable[[], None]) -> None:
        self._kept = kept
        self._sweep = sweep
        self._thread = threading.Thread(target=self._run, name="kept", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Remove what waits, and end."""
        is_waited_for = self._kept.end()
        self._thread.join()
        if is_waited_for:
            self._sweep()

    def _run(self) -> None:
        while over := self._kept.wait():
            self._sweep()
            self._kept.forget_over(over)
