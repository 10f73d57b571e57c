"""Tokens of a conversation from its CLI's own records, one line for each request to a model."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from host_client.agents.output_line import parsed
from host_client.agents.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from host_client.agents.output_line import Fields

_COUNTERS = tuple(field.name for field in fields(Usage) if field.name != "complete")


def printing(kind: str, files: str) -> str:
    """Return the shell script that prints a session's records, and before them the first line of all its files.

    That line tells a session in which nothing was recorded yet from one that cannot be read.

    Args:
        kind: Type of the records.
        files: The session's files, as the shell is to expand them.
    """
    return f"""exec sed -n -e '1{{p;d;}}' -e '/"{kind}"/p' {files}"""


def total(text: str, read: Callable[[Fields], Usage | None]) -> Usage | None:
    """Add records up; None when no line can be read, zeros when none of those that can is a record.

    A counter that one of them lacks is not known. A line that cannot be read is passed over: it is the last one of a
    CLI that was killed while it wrote.

    Args:
        text: The lines.
        read: Returns what a line says was used; None: it is no record.
    """
    found, readable_count = [], 0
    for line in text.split("\n"):
        try:
            used = read(parsed(line))
        except ValueError:
            continue
        readable_count += 1
        if used is not None:
            found.append(used)
    if not found:
        # A conversation whose first request was not answered yet, or not written down: its CLI was killed.
        return Usage(input_tokens=0, output_tokens=0) if readable_count else None
    counters: dict[str, int | None] = {}
    for name in _COUNTERS:
        counts = [getattr(used, name) for used in found]
        counters[name] = None if None in counts else sum(counts)
    return Usage(**counters, complete=True)
