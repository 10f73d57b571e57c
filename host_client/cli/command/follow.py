"""`outpost follow`: the copy of a session on this host, kept up to date while the session goes on."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import click

from host_client.agents.registry import builtin_format
from host_client.cli.options import (
    durability_option,
    host_options,
    json_option,
    limit_options,
    limits,
    place_options,
)
from host_client.cli.output import Output, size
from host_client.cli.record import capture_notes, record_document
from host_client.cli.redaction import redaction_options
from host_client.sandbox.sandbox import connect
from host_client.stores.context import ConversationContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from host_client.session.redaction import Redaction
    from host_client.stores.contract import FollowUpdate

_LINE_SECONDS = 1.0
"""Least time between two lines about growth."""


@click.command(short_help="Keep the copy of a session of TARGET up to date.")
@click.argument("target")
@click.argument("format_name", metavar="FORMAT")
@click.argument("conversation_id", metavar="ID")
@host_options
@place_options
@limit_options
@durability_option
@redaction_options
@click.option("--skip-links", is_flag=True, help="Leave symbolic links out and name them, instead of refusing them.")
@click.option("--allow-empty", is_flag=True, help="Follow a transcript in which nothing was said yet.")
@click.option(
    "--interval",
    "interval_seconds",
    type=click.FloatRange(0, 60, min_open=True),
    help="Least seconds between two updates (default 0.5 for transcripts, 10 for session directories).",
)
@click.option(
    "--patience",
    "patience_seconds",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for a sandbox that is away.",
)
@json_option
async def follow(
    target: str,
    format_name: str,
    conversation_id: str,
    *,
    repository: Path,
    home: Path | None,
    variables: Sequence[tuple[str, str]],
    follow_root_link: bool,
    max_bytes: int | None,
    max_files: int | None,
    durability: Literal["full", "none"],
    redaction: Redaction | None,
    skip_links: bool,
    allow_empty: bool,
    interval_seconds: float | None,
    patience_seconds: float,
    as_json: bool,
) -> None:
    """Capture session ID of FORMAT out of TARGET and keep the copy up to date until interrupted (Ctrl-C).

    An interrupt is its normal end: the copy is whole, and the exit status 0. With --json there is one document a line.
    """
    store = builtin_format(format_name)
    shown = _Shown(Output(as_json))
    options = {} if interval_seconds is None else {"interval_seconds": interval_seconds}
    try:
        async with connect(target, limits=limits(max_bytes, max_files, format_name)) as sandbox:
            context = ConversationContext(
                sandbox=sandbox,
                repository=repository,
                conversation_home=home,
                variables=dict(variables),
                follow_root_link=follow_root_link,
                limits=limits(max_bytes, max_files, format_name),
                durability=durability,
                redaction=redaction,
                skip_links=skip_links,
                allow_empty=allow_empty,
            )
            updates = store.follow(conversation_id, context, patience_seconds=patience_seconds, **options)
            async with aclosing(updates):
                async for update in updates:
                    shown.show(update)
    except asyncio.CancelledError:
        if not shown.has_begun:
            raise
    shown.finish()


@dataclass
class _Shown:
    """What was told of a follow, and what is still to be told of growth.

    Attributes:
        output: Where it is told.
        clock: Tells the time, in seconds.
        has_begun: Whether a copy is kept.
    """

    output: Output
    clock: Callable[[], float] = time.monotonic
    has_begun: bool = False
    _next_line: float = field(default=0.0, init=False)
    _bytes_count: int = field(default=0, init=False)
    _lines_count: int = field(default=0, init=False)
    _total_bytes: int = field(default=0, init=False)
    _total_lines: int = field(default=0, init=False)
    _captures_count: int = field(default=0, init=False)

    def show(self, update: FollowUpdate) -> None:
        """Tell an update: a capture, or all growth since the last line once that is a second old."""
        if update.record is not None:
            self._captures_count += 1
            self._flush()
            for note in capture_notes(update.record):
                self.output.note(note)
            document = {"event": "capture", **record_document(update.record)}
            files = f"{update.record.files_count} files, {size(update.record.bytes_count)}"
            again = "captured" if not self.has_begun else "captured again"
            self.output.result(document, [f"{again} {files}: {update.path}"])
            self.has_begun = True
            return
        self._bytes_count += update.appended_bytes
        self._lines_count += update.lines_count
        self._total_bytes += update.appended_bytes
        self._total_lines += update.lines_count
        if self.output.as_json:
            self.output.result(
                {
                    "event": "append",
                    "path": str(update.path),
                    "appended_bytes": update.appended_bytes,
                    "lines": update.lines_count,
                    "bytes": update.size_bytes,
                },
                (),
            )
        elif self.clock() >= self._next_line:
            self._flush()

    def finish(self) -> None:
        """Tell all in all."""
        self._flush()
        document = {
            "event": "end",
            "captures": self._captures_count,
            "appended_bytes": self._total_bytes,
            "lines": self._total_lines,
        }
        followed = f"followed: {self._total_lines} lines, {size(self._total_bytes)}, {self._captures_count} captures"
        self.output.result(document, [followed])

    def _flush(self) -> None:
        if self._lines_count and not self.output.as_json:
            self.output.result({}, [f"added {self._lines_count} lines, {size(self._bytes_count)}"])
            self._next_line = self.clock() + _LINE_SECONDS
        self._bytes_count = self._lines_count = 0
