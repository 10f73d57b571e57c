"""What a capture of a transcript conversation counts: how much came, how much is kept, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.sandbox.progress import Progress, Reporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_api.limits import Limits


class Tally:
    """Counts one capture and reports it. All methods but `check` belong to the thread of the event loop.

    Args:
        limits: What the conversation may hold.
        callback: Told how far the capture is; None: nobody is.

    Attributes:
        limits: What the conversation may hold.
        received_bytes: What was sent.
    """

    def __init__(self, limits: Limits, callback: Callable[[Progress], None] | None) -> None:
        self.limits = limits
        self.received_bytes = 0
        self._reporter = Reporter(callback)
        self._kept_bytes = 0
        self._files_count = self._files_total = 0
        self._bytes_count = self._bytes_total = 0

    def expect(self, *, files_count: int, bytes_count: int) -> None:
        """Tell how much there is in all, as far as it is known.

        Raises:
            LimitError: `max_files`, `max_bytes`.
        """
        self.limits.check(bytes_count=bytes_count, files_count=files_count)
        self._files_total, self._bytes_total = files_count, bytes_count

    def add(self, bytes_count: int) -> None:
        """Count bytes that came."""
        self.received_bytes += bytes_count
        self.skip(bytes_count)

    def skip(self, bytes_count: int) -> None:
        """Count bytes that need not come."""
        self._bytes_count += bytes_count
        self._reporter.report(self._progress())

    def end_file(self, kept_bytes: int) -> None:
        """Count a file that is complete, and what of it is kept.

        Raises:
            LimitError: `max_bytes`.
        """
        self._files_count += 1
        self._kept_bytes += kept_bytes
        self.check(0)
        self._reporter.report(self._progress())

    def check(self, bytes_count: int) -> None:
        """Refuse a file that has become so large, beside those that are complete.

        Raises:
            LimitError: `max_bytes`.
        """
        self.limits.check(bytes_count=self._kept_bytes + bytes_count, files_count=0)

    def finish(self) -> None:
        """Report that all is done."""
        self._reporter.finish(Progress(self._files_count, self._files_count, self._bytes_count, self._bytes_count))

    def _progress(self) -> Progress:
        # What grew, or was not told of before, comes on top of what was expected.
        files_total, bytes_total = max(self._files_total, self._files_count), max(self._bytes_total, self._bytes_count)
        return Progress(self._files_count, files_total, self._bytes_count, bytes_total)
