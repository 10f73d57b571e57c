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

from host_client.cli.delivery import delivery_lines, delivery_state
from host_client.cli.output import is_terminal, size
from sandbox_api.errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from host_client.sandbox.progress import Progress
    from host_client.stores.delivery import DeliveryProgress

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


@contextmanager
def shown_targets(title: str, *, as_json: bool) -> Iterator[Callable[[DeliveryProgress], None]]:
    """Give a callback that shows the progress of many targets on standard error: all in one, failures as they come."""
    if as_json:
        yield lambda progress: click.echo(json.dumps(_targets_record(title, progress)), err=True)
    elif is_terminal():
        with Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[counts]}", markup=False),
            console=Console(stderr=True, markup=False, highlight=False),
            transient=True,
        ) as bars:
            task = bars.add_task(printable(title), total=1.0, counts="")

            def show(progress: DeliveryProgress) -> None:
                bars.update(task, completed=progress.share, counts=_counts(progress))
                for line in _failure(progress):
                    bars.console.print(line, soft_wrap=True)

            yield show
    else:
        yield _target_lines(title)


def _target_lines(title: str) -> Callable[[DeliveryProgress], None]:
    last_seconds = time.monotonic()

    def show(progress: DeliveryProgress) -> None:
        nonlocal last_seconds
        for line in _failure(progress):
            click.echo(line, err=True)
        now = time.monotonic()
        if now - last_seconds >= _LINE_SECONDS:
            last_seconds = now
            click.echo(f"{title}: {_counts(progress)}", err=True)

    return show


def _counts(progress: DeliveryProgress) -> str:
    failed = f", {progress.failed_count} failed" if progress.failed_count else ""
    return f"{progress.targets_count} of {progress.targets_total} targets{failed}, {size(progress.bytes_count)}"


def _failure(progress: DeliveryProgress) -> Iterator[str]:
    """Yield one line about a target that has just failed; the result tells the rest."""
    if progress.ended is not None and progress.ended.error is not None:
        yield printable(next(iter(delivery_lines(progress.ended))))


def _targets_record(title: str, progress: DeliveryProgress) -> dict[str, object]:
    ended = progress.ended
    return {
        "progress": title,
        "targets": progress.targets_count,
        "targets_total": progress.targets_total,
        "failed": progress.failed_count,
        "bytes": progress.bytes_count,
        "share": int(progress.share * 10_000) / 10_000,  # not rounded up: 1 means that all have ended
        "target": None if ended is None else str(ended.target),
        "state": None if ended is None else delivery_state(ended),
    }


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
