"""Who reads what a process prints: where it is in each stream, and what it takes next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox_agent.core.process_window import LostError
from sandbox_api.errors import ConfigurationError, ProcessError
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sandbox_agent.core.process_window import Window

    Piece = tuple[int, int, bytes]
    """Number of the stream, offset, data."""


class Reader:
    """A place in the output of one process.

    Attributes:
        sent: Offset, in each stream, up to which everything has been sent.
        wake: What to call when there may be more.

    Args:
        windows: The streams.
        offsets: Where to begin.
        wake: See above.
        on_moved: Called when `sent` has changed.
        on_closed: Called with this object by `close`.

    Raises:
        ProcessError: `output_lost`.
        ConfigurationError: `invalid_argument`.
    """

    def __init__(
        self,
        windows: Sequence[Window],
        offsets: Sequence[int],
        wake: Callable[[], None],
        *,
        on_moved: Callable[[], None],
        on_closed: Callable[[Reader], None],
    ) -> None:
        self._windows = windows
        self._next = list(offsets[: len(windows)])
        self.sent = list(self._next)
        self.wake = wake
        self._on_moved = on_moved
        self._on_closed = on_closed
        if any(offset > window.end for offset, window in zip(self._next, windows, strict=True)) or any(
            offsets[len(windows) :]
        ):
            raise ConfigurationError("invalid_argument", "an offset lies behind the end of the output")
        if any(offset < window.start for offset, window in zip(self._next, windows, strict=True)):
            raise self._lost()

    @property
    def has_more(self) -> bool:
        """Whether `take` would give something."""
        return any(offset != window.end for offset, window in zip(self._next, self._windows, strict=True))

    def take(self) -> list[Piece]:
        """Return what comes next, about a chunk of it; empty: there is no more yet. Blocks for the disk.

        Raises:
            ProcessError: `output_lost`: it was dropped before it was taken.
        """
        pieces: list[Piece] = []
        for number, window in enumerate(self._windows):
            offset = self._next[number]
            if offset == window.end:
                continue
            try:
                data = window.read(offset, CHUNK_BYTES)
            except LostError:
                raise self._lost() from None
            if data:
                pieces.append((number, offset, data))
                self._next[number] = offset + len(data)
        return pieces

    def confirm(self, pieces: Sequence[Piece]) -> None:
        """Tell that pieces have been sent."""
        for number, offset, data in pieces:
            self.sent[number] = offset + len(data)
        self._on_moved()

    def close(self) -> None:
        """Read no more."""
        self._on_closed(self)

    def _lost(self) -> ProcessError:
        starts = [window.start for window in self._windows] + [0]
        return ProcessError(
            "output_lost",
            "output that was asked for is not kept any more",
            hint="read while the process runs, or have it keep more",
            facts={"stdout_start": str(starts[0]), "stderr_start": str(starts[1])},
        )
