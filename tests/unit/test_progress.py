"""Progress: at most ten reports a second, and always the last."""

from __future__ import annotations

from host_client.sandbox.progress import Progress, Reporter


def test_reports_are_bounded_in_rate_and_the_last_is_told() -> None:
    """Of a thousand reports within a second ten are told, in order, and the last one beside them."""
    now = [0.0]
    told: list[Progress] = []
    reporter = Reporter(told.append, lambda: now[0])
    for count in range(1024):
        now[0] = count / 1024  # exact in binary
        reporter.report(Progress(0, 1, count, 1024))
    reporter.finish(Progress(1, 1, 1024, 1024))
    assert len(told) == 11
    assert told == sorted(told, key=lambda progress: progress.bytes_count)
    assert told[-1].is_complete


def test_last_report_is_told_once() -> None:
    """A last report that was told already is not told again."""
    told: list[Progress] = []
    reporter = Reporter(told.append)
    done = Progress(1, 1, 5, 5)
    reporter.report(done)
    reporter.finish(done)
    assert told == [done]


def test_without_a_callback_nothing_happens() -> None:
    """A call without progress costs nothing and fails nowhere."""
    reporter = Reporter(None)
    reporter.report(Progress(0, 1, 0, 1))
    reporter.finish(Progress(1, 1, 1, 1))


def test_completeness() -> None:
    """Only files and bytes together make it complete: an empty file is a file."""
    assert not Progress(0, 1, 0, 0).is_complete
    assert not Progress(1, 1, 0, 1).is_complete
    assert Progress(1, 1, 1, 1).is_complete
