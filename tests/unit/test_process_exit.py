"""How a process ended: what is good, what a shell would say, and which failure a bad end is."""

from __future__ import annotations

import pytest

from host_client.errors import OutpostError
from host_client.sandbox.process_exit import Cause, Completed, Exit


def test_only_status_0_by_itself_is_good() -> None:
    """An end that was brought about is none, whatever the status."""
    assert Exit(0, 0, "itself", 1.0, 0, 0).ok
    assert not Exit(1, 0, "itself", 1.0, 0, 0).ok
    assert not Exit(0, 15, "signal", 1.0, 0, 0).ok
    assert not Exit(0, 0, "deadline", 1.0, 0, 0).ok


def test_a_signal_is_128_and_its_number_for_a_shell() -> None:
    """The status otherwise."""
    assert Exit(0, 15, "signal", 1.0, 0, 0).shell_status == 143
    assert Exit(7, 0, "itself", 1.0, 0, 0).shell_status == 7


@pytest.mark.parametrize(
    ("status", "signal", "cause", "named"),
    [
        (0, 0, "itself", None),
        (3, 0, "itself", "process/failed"),
        (0, 9, "itself", "process/failed"),
        (0, 15, "signal", "process/failed"),
        (0, 0, "signal", "process/failed"),
        (0, 15, "deadline", "timeout/deadline"),
        (0, 15, "idle", "timeout/idle"),
        (0, 15, "output", "limit/max_output_bytes"),
        (0, 15, "shutdown", "unavailable/unreachable"),
    ],
)
def test_a_bad_end_is_a_failure_by_its_cause(status: int, signal: int, cause: Cause, named: str | None) -> None:
    """With status, signal and cause as facts."""
    failure = Exit(status, signal, cause, 1.0, 0, 0).failure("git")
    assert (failure and f"{failure.code}/{failure.reason}") == named
    if failure is not None:
        assert failure.message.startswith("git ")
        assert failure.facts == {"status": str(status), "signal": str(signal), "cause": cause}


def test_check_raises_with_the_end_of_standard_error() -> None:
    """A good one is returned; of a bad one the last two kilobytes are told, whatever bytes they are."""
    good = Completed("git", Exit(0, 0, "itself", 1.0, 0, 0), b"out", b"")
    assert good.check() is good
    with pytest.raises(OutpostError) as caught:
        Completed("git", Exit(1, 0, "itself", 1.0, 0, 0), b"", b"x" * 5000 + b"\xffend").check()
    assert len(caught.value.facts["stderr"]) == 2048
    assert caught.value.facts["stderr"].endswith("\ufffdend")
