"""A line of JSON that an agent printed, read without trusting it.

The one rule: whatever stands there, reading it returns a value of the type that was asked for, or raises `ValueError`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_COUNT = 1 << 63


class Fields:
    """A JSON object. What is missing, or of another type than it should be, is empty."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def text(self, name: str) -> str:
        """Return a string."""
        value = self._members.get(name)
        return value if isinstance(value, str) else ""

    def is_true(self, name: str) -> bool:
        """Tell whether it is `true`."""
        return self._members.get(name) is True

    def count(self, name: str) -> int | None:
        """Return a number of things; None: it is no such number."""
        value = self._members.get(name)
        return value if type(value) is int and 0 <= value < _MAX_COUNT else None

    def child(self, name: str) -> Fields:
        """Return an object."""
        value = self._members.get(name)
        return Fields(value if isinstance(value, dict) else {})

    def children(self, name: str) -> Sequence[Fields]:
        """Return the objects of a list, or of all members of an object."""
        value = self._members.get(name)
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [Fields(one) for one in values if isinstance(one, dict)]

    def shown(self, name: str) -> str:
        """Return a value in words: a string as it is, anything else as JSON, nothing as nothing."""
        value = self._members.get(name)
        if value is None or isinstance(value, str):
            return value or ""
        return json.dumps(value, ensure_ascii=False)


def parsed(line: str) -> Fields:
    """Read a line.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004  one kind of error for every line that cannot be read
    return Fields(value)
