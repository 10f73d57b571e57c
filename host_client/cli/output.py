"""What the command prints: results on standard output, everything else on standard error.

With `--json` standard output holds exactly one JSON document, a result or an error, and standard error JSON lines of
progress. Whatever is a name of somebody else's is printed escaped: a terminal must not run it.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandbox_api.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sandbox_api.errors import OutpostError


_OF_PROCESSES = ("process", "timeout", "limit")
"""Codes of failures that may be those of a process, whose complaints say why."""


class OutputLost(Exception):  # noqa: N818 - nothing of the product failed
    """Nobody can read what was to be printed: its reader went away, or its disk is full."""


@dataclass(frozen=True, slots=True)
class Output:
    """Where results, notes and errors go."""

    as_json: bool

    def result(self, document: Mapping[str, object], lines: Sequence[str]) -> None:
        """Print a result: the document with `--json`, else the lines for people."""
        if self.as_json:
            _print_document(document)
        else:
            for line in lines:
                _print(printable(line))

    def note(self, text: str) -> None:
        """Tell people something beside the result; scripts find it in the document."""
        if not self.as_json:
            _print(printable(text), is_error=True)

    def raw(self, data: bytes) -> None:
        """Print bytes of a result as they are; what is foreign in them was made visible before.

        Raises:
            OutputLost: nobody can read them.
        """
        _print(data)

    def error(self, error: OutpostError, *others: OutpostError) -> None:
        """Print a failure: one line with code and reason, the entries at fault, and what to do.

        Args:
            error: The failure.
            others: What failed after it, for example while a failed turn was wound up.
        """
        if self.as_json:
            also = {"also": [error_document(other) for other in others]} if others else {}
            _print_document({"error": error_document(error), **also})
            return
        for one in (error, *others):
            for line in error_lines(one):
                _print(printable(f"outpost: {line}" if not line.startswith(" ") else line), is_error=True)

    def fault(self, error: Exception) -> None:
        """Print an error that nobody foresaw: one line, and what a report of it needs."""
        message = f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)
        where = " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
        hint = f"this is a fault of outpost, please report it with these lines: {where}"
        if self.as_json:
            told = {"code": "internal", "reason": "unforeseen", "message": message, "hint": hint, "retryable": False}
            _print_document({"error": {**told, "facts": {}, "offenders": [], "offender_count": 0}})
            return
        _print(printable(f"outpost: internal/unforeseen: {message}"), is_error=True)
        _print(printable(f"  hint: {hint}"), is_error=True)


def error_lines(error: OutpostError) -> Iterator[str]:
    """Tell a failure to people: code, reason and message, the entries at fault, and what to do."""
    yield f"{error.code}/{error.reason}: {error.message}"
    for offender in error.offenders:
        yield f"  {offender.path}: {offender.problem}"
    if error.offender_count > len(error.offenders):
        yield f"  and {error.offender_count - len(error.offenders)} more"
    complaints = error.facts.get("stderr") if error.code in _OF_PROCESSES else None
    for said in (error.facts.get("error"), complaints):
        for number, line in enumerate(said.splitlines() if said else ()):
            yield f"{'           ' if number else '  it said: '}{line}"
    if error.hint:
        yield f"  hint: {error.hint}"


def error_document(error: OutpostError) -> dict[str, object]:
    """Return a failure as plain data."""
    return {
        "code": error.code,
        "reason": error.reason,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
        "facts": error.facts,
        "offenders": [{"path": offender.path, "problem": offender.problem} for offender in error.offenders],
        "offender_count": error.offender_count,
    }


def size(bytes_count: int) -> str:
    """Return a number of bytes for people, such as `1.5 MiB`."""
    value = float(bytes_count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":  # noqa: PLR2004 - the step between the units
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def _print_document(document: Mapping[str, object]) -> None:
    # ASCII: names that are not UTF-8 become escapes that JSON knows, in any locale.
    _print(json.dumps(document))


def _print(text: str | bytes, *, is_error: bool = False) -> None:
    try:
        click.echo(text, err=is_error, nl=isinstance(text, str))
    except OSError as error:
        raise OutputLost(error.strerror) from error


def is_terminal() -> bool:
    """Tell whether standard error is a person's terminal."""
    return sys.stderr.isatty()
