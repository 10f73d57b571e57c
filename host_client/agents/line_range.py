"""Lines of a transcript that belong together, by their numbers."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class LineRanges:
    """A set of line numbers, as ranges that do not touch each other.

    Args:
        ranges: First and last line of each, in any order; they may overlap.
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(ranges):
            if self._lasts and first <= self._lasts[-1]:
                self._lasts[-1] = max(self._lasts[-1], last)
            else:
                self._firsts.append(first)
                self._lasts.append(last)

    def __contains__(self, line: int) -> bool:
        at = bisect_right(self._firsts, line) - 1
        return at >= 0 and line <= self._lasts[at]
