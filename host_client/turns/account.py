"""Tokens of one turn, from what the agent told of them.

The one rule: a number that is not known is never made up; what is missing makes the whole incomplete.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from host_client.agents.usage import Usage

if TYPE_CHECKING:
    from host_client.agents.adapter import UsageMode
    from host_client.agents.event import UsageEvent

_COUNTERS = tuple(field.name for field in fields(Usage) if field.name != "complete")
_NEEDED = ("input_tokens", "output_tokens")
UNKNOWN = Usage(complete=False)


class Account:
    """Adds up usage events: steps are added, and a total so far replaces all that came before it."""

    def __init__(self) -> None:
        self._total: Usage | None = None
        self._has_gaps = False

    def add(self, event: UsageEvent) -> None:
        """Take one event."""
        has_gaps = not checked(event.tokens).complete
        if self._total is None or event.cumulative:
            self._total, self._has_gaps = event.tokens, has_gaps
        else:
            self._total, self._has_gaps = _sum(self._total, event.tokens), self._has_gaps or has_gaps

    def usage(self, mode: UsageMode | None) -> Usage | None:
        """Return the tokens of all events; None: nothing is recorded, or nothing was told where nothing must be."""
        if mode == "unavailable":
            return None
        if mode is None or self._total is None:
            return self._total if mode is None else UNKNOWN
        return replace(self._total, complete=not self._has_gaps)


def is_sound(usage: object) -> bool:
    """Tell whether what an adapter calls a usage is one: counters are whole numbers of 0 or more, or None."""
    if not isinstance(usage, Usage) or not isinstance(usage.complete, bool):
        return False
    counts = [getattr(usage, name) for name in _COUNTERS]
    return all(count is None or (type(count) is int and count >= 0) for count in counts)


def checked(usage: Usage) -> Usage:
    """Return the usage, incomplete when a counter that every agent has is missing."""
    is_complete = usage.complete and all(getattr(usage, name) is not None for name in _NEEDED)
    return replace(usage, complete=is_complete)


def difference(after: Usage | None, before: Usage | None) -> Usage:
    """Return what was used between two totals. A counter that is not in both, or went back, is not known.

    Args:
        after: All that the conversation used; None: it could not be learned.
        before: The same, earlier; None: the same.
    """
    if after is None or before is None:
        return UNKNOWN
    counters: dict[str, int | None] = {}
    is_complete = after.complete and before.complete
    for name in _COUNTERS:
        now, then = getattr(after, name), getattr(before, name)
        if now is None:
            counters[name] = None
            continue
        # A counter that the conversation did not have yet has counted nothing.
        used = now - (then or 0)
        is_complete = is_complete and used >= 0
        counters[name] = used if used >= 0 else None
    return checked(Usage(**counters, complete=is_complete))


def _sum(one: Usage, other: Usage) -> Usage:
    counters: dict[str, int | None] = {}
    for name in _COUNTERS:
        known = [count for count in (getattr(one, name), getattr(other, name)) if count is not None]
        counters[name] = sum(known) if known else None
    return Usage(**counters, complete=one.complete and other.complete)
