"""`outpost doctor`: what would go wrong at a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from host_client.agents.registry import builtin_format, format_names
from host_client.cli.options import Variables, json_option
from host_client.cli.output import Output
from host_client.sandbox.daemon import Finding
from host_client.sandbox.sandbox import connect
from host_client.stores.transcript import TranscriptConversations

if TYPE_CHECKING:
    from collections.abc import Sequence

_TRANSCRIPTS = "transcript.restore"
_MARKS = {"ok": "ok      ", "warning": "warning ", "problem": "PROBLEM "}


@click.command(short_help="Tell what would go wrong at TARGET.")
@click.argument("target")
@click.argument("formats", metavar="[FORMAT]...", nargs=-1)
@click.option(
    "--variable",
    "variables",
    type=Variables(),
    multiple=True,
    help="Variable of the CLI's environment. May be repeated.",
)
@json_option
async def doctor(target: str, formats: Sequence[str], *, variables: Sequence[tuple[str, str]], as_json: bool) -> int:
    """Tell what would go wrong at TARGET, for the FORMATs named or for all.

    Exit status 1 when a capture or restore would fail.
    """
    stores = [builtin_format(name) for name in formats or format_names()]
    async with connect(target) as sandbox:
        findings = [*await sandbox.diagnose([store.profile for store in stores], dict(variables))]
        capabilities = (await sandbox.info()).capabilities
    if _TRANSCRIPTS not in capabilities:
        findings += [
            Finding("transcripts", store.format, "problem", "the daemon knows no transcripts", "update sandbox-agent")
            for store in stores
            if isinstance(store, TranscriptConversations)
        ]
    document: dict[str, object] = {
        "findings": [
            {
                "check": finding.check,
                "format": finding.format or None,
                "level": finding.level,
                "message": finding.message,
                "hint": finding.hint,
            }
            for finding in findings
        ]
    }
    lines = []
    for finding in findings:
        subject = f"{finding.format}: " if finding.format else ""
        lines.append(f"{_MARKS[finding.level]}{finding.check}: {subject}{finding.message}")
        if finding.hint:
            lines.append(f"        hint: {finding.hint}")
    Output(as_json).result(document, lines)
    return int(any(finding.level == "problem" for finding in findings))
