"""Progress as people see it: lines in a pipe, a bar in a terminal, never on standard output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from host_client.cli import progress as shown
from host_client.errors import UnavailableError
from host_client.sandbox.progress import Progress
from host_client.stores.delivery import Delivery, DeliveryProgress
from support.outcome import outcome

if TYPE_CHECKING:
    import pytest

HALF = Progress(1, 2, 512 << 10, 1 << 20)
RESTORED = DeliveryProgress(1, 4, 0, 1 << 20, 0.25, Delivery("unix:/a", outcome(1 << 20)))
FAILED = DeliveryProgress(
    2, 4, 1, 1 << 20, 0.5, Delivery("unix:/b", error=UnavailableError("unreachable", "nobody is \x1b[31mthere"))
)


def test_lines_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A line says what is done of how much; a second one comes only after a second."""
    now_seconds = 100.0
    monkeypatch.setattr("host_client.cli.progress.time.monotonic", lambda: now_seconds)
    with shown.shown_progress("capturing S1", as_json=False) as tell:
        for now_seconds in (100.5, 101.0, 101.9, 102.0):  # noqa: B007 - the clock reads it
            tell(HALF)
    printed = capsys.readouterr()
    assert printed.err == "capturing S1: 1 of 2 files, 512.0 KiB of 1.0 MiB\n" * 2
    assert printed.out == ""


def test_no_line_before_the_size_is_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`0 of 0 files` tells nobody anything."""
    monkeypatch.setattr(shown, "_LINE_SECONDS", 0.0)
    with shown.shown_progress("capturing S1", as_json=False) as tell:
        tell(Progress(0, 0, 0, 0))
        tell(HALF)
    assert capsys.readouterr().err == "capturing S1: 1 of 2 files, 512.0 KiB of 1.0 MiB\n"


def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The bar is on standard error; a name in it is text and no markup."""
    monkeypatch.setattr(shown, "is_terminal", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with shown.shown_progress("capturing [red]S1", as_json=False) as tell:
        tell(HALF)
    printed = capsys.readouterr()
    assert "capturing [red]S1" in printed.err
    assert "0.5/1.0 MiB" in printed.err
    assert printed.out == ""


def test_many_targets_are_lines_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A failure is told at once and escaped, the state of all once a second."""
    now_seconds = 100.0
    monkeypatch.setattr("host_client.cli.progress.time.monotonic", lambda: now_seconds)
    with shown.shown_targets("restoring S1", as_json=False) as tell:
        tell(RESTORED)
        tell(FAILED)
        now_seconds = 101.0
        tell(FAILED)
    failure = "FAILED unix:/b: unavailable/unreachable: nobody is \\x1b[31mthere\n"
    printed = capsys.readouterr()
    assert printed.err == f"{failure}{failure}restoring S1: 2 of 4 targets, 1 failed, 1.0 MiB\n"
    assert printed.out == ""


def test_many_targets_are_one_bar_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One bar for all; above it a line of each target that failed, in which nothing is markup."""
    monkeypatch.setattr(shown, "is_terminal", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with shown.shown_targets("restoring [red]S1", as_json=False) as tell:
        tell(FAILED)
    printed = capsys.readouterr()
    assert "restoring [red]S1" in printed.err
    assert "2 of 4 targets, 1 failed, 1.0 MiB" in printed.err
    assert "FAILED unix:/b: unavailable/unreachable: nobody is \\x1b[31mthere" in printed.err
    assert printed.out == ""


def test_many_targets_are_records_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object a line; it names the target that has just ended, and how."""
    with shown.shown_targets("restoring S1", as_json=True) as tell:
        tell(RESTORED)
        tell(FAILED)
        tell(DeliveryProgress(2, 4, 1, 2 << 20, 0.99999))
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert told[0] == {
        "progress": "restoring S1",
        "targets": 1,
        "targets_total": 4,
        "failed": 0,
        "bytes": 1 << 20,
        "share": 0.25,
        "target": "unix:/a",
        "state": "restored",
    }
    assert [(record["target"], record["state"]) for record in told[1:]] == [("unix:/b", "failed"), (None, None)]
    assert told[2]["share"] < 1  # which means that all have ended
