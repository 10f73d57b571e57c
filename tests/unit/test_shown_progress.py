"""Progress as people see it: lines in a pipe, a bar in a terminal, never on standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.cli import progress as shown
from host_client.sandbox.progress import Progress

if TYPE_CHECKING:
    import pytest

HALF = Progress(1, 2, 512 << 10, 1 << 20)


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
