"""What the command prints: results on standard output, everything else on standard error.

With `--json` standard output holds exactly one JSON document, a result or an error, and standard error JSON lines of
progress.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sandbox_api.errors import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandbox_api.errors import OutpostError


@dataclass(frozen=True, slots=True)
class Output:
    """Where results, notes and errors go."""

    as_json: bool

    def result(self, document: Mapping[str, object], lines: Sequence[str]) -> None:
        """Print a result: the document with `--json`, else the lines for people."""
        if self.as_json:
            click.echo(json.dumps(document, ensure_ascii=False))
        else:
            for line in lines:
                click.echo(line)

    def note(self, text: str) -> None:
        """Tell people something beside the result; scripts find it in the document."""
        if not self.as_json:
            click.echo(text, err=True)

    def error(self, error: OutpostError) -> None:
        """Print a failure: one line with code and reason, the entries at fault, and what to do."""
        if self.as_json:
            click.echo(json.dumps({"error": error_document(error)}, ensure_ascii=False))
            return
        click.echo(f"outpost: {error.code}/{error.reason}: {printable(error.message)}", err=True)
        for offender in error.offenders:
            click.echo(f"  {printable(offender.path)}: {printable(offender.problem)}", err=True)
        if error.offender_count > len(error.offenders):
            click.echo(f"  and {error.offender_count - len(error.offenders)} more", err=True)
        if error.hint:
            click.echo(f"  hint: {printable(error.hint)}", err=True)


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


def is_terminal() -> bool:
    """Tell whether standard error is a person's terminal."""
    return sys.stderr.isatty()
