"""Progress of one or many transfers: a bar in a terminal, lines in a pipe, JSON records with `--json`."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from host_client.cli.output import is_terminal, size
from sandbox_api.errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from host_client.sandbox.progress import Progress

_LINE_SECONDS = 1.0
"""Least time between two lines of one transfer in a pipe."""


@contextmanager
def shown_progress(title: str, *, as_json: bool) -> Iterator[Callable[[Progress], None]]:
    """Give a callback that shows a transfer's progress on standard error."""
    if as_json:
        yield lambda progress: click.echo(json.dumps(_record(title, progress)), err=True)
    elif is_terminal():
        with Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as bars:
            task = bars.add_task(printable(title), total=None)
            yield lambda progress: bars.update(task, completed=progress.bytes_count, total=progress.bytes_total)
    else:
        yield _lines(title)


def _lines(title: str) -> Callable[[Progress], None]:
    last_seconds = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal last_seconds
        now = time.monotonic()
        if progress.files_total and now - last_seconds >= _LINE_SECONDS:
            last_seconds = now
            click.echo(
                f"{title}: {progress.files_count} of {progress.files_total} files, "
                f"{size(progress.bytes_count)} of {size(progress.bytes_total)}",
                err=True,
            )

    return show


def _record(title: str, progress: Progress) -> dict[str, object]:
    return {
        "progress": title,
        "files": progress.files_count,
        "files_total": progress.files_total,
        "bytes": progress.bytes_count,
        "bytes_total": progress.bytes_total,
    }
