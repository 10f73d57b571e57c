"""Attempts at one target: which failures are tried again, how often, and after which pauses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, ConflictError, OutpostError, UnavailableError
from host_client.fleet.retry import Attempts, Retry
from sandbox_api.errors import FAMILIES, TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox_api.errors import Row

pytestmark = pytest.mark.anyio


class Trying:
    """An attempt that fails as it is told to; notes pauses and does not wait."""

    def __init__(self, *failures: OutpostError) -> None:
        self.failures = list(failures)
        self.pauses_seconds: list[float] = []

    async def attempt(self) -> str:
        """Fail while there are failures left."""
        if self.failures:
            raise self.failures.pop(0)
        return "done"

    async def sleep(self, seconds: float) -> None:
        """Note a pause."""
        self.pauses_seconds.append(seconds)

    def attempts(self, retry: Retry, draw: Callable[[float, float], float] = max) -> Attempts:
        """Return attempts whose pauses are the longest there may be."""
        return Attempts(retry, sleep=self.sleep, draw=draw)


def _away() -> OutpostError:
    return UnavailableError("unreachable", "nobody is there")


async def test_what_passes_is_tried_again_after_longer_and_longer_pauses() -> None:
    """The bound doubles up to the largest one, and the pause is drawn from nothing to there."""
    trying = Trying(*(_away() for _ in range(5)))
    drawn: list[tuple[float, float]] = []
    attempts = trying.attempts(
        Retry(attempts_count=6, base_seconds=0.5, max_seconds=3.0),
        lambda *bounds: drawn.append(bounds) or bounds[1] / 2,
    )
    assert await attempts.run(trying.attempt) == "done"
    assert attempts.count == 6
    assert drawn == [(0.0, 0.5), (0.0, 1.0), (0.0, 2.0), (0.0, 3.0), (0.0, 3.0)]
    assert trying.pauses_seconds == [0.25, 0.5, 1.0, 1.5, 1.5]


async def test_the_last_failure_comes_out() -> None:
    """No attempt more than was asked for, and no pause after the last."""
    last = _away()
    trying = Trying(_away(), last, _away())
    attempts = trying.attempts(Retry(attempts_count=2))
    with pytest.raises(UnavailableError) as caught:
        await attempts.run(trying.attempt)
    assert caught.value is last is attempts.last_error
    assert (attempts.count, len(trying.pauses_seconds)) == (2, 1)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.code}-{row.reason}")
async def test_only_what_is_retryable_is_tried_again(row: Row) -> None:
    """The table decides for every reason; what needs a decision comes out of the first attempt."""
    failure = FAMILIES[row.code](row.reason, "it failed")
    trying = Trying(failure)
    attempts = trying.attempts(Retry())
    if row.retryable:
        assert await attempts.run(trying.attempt) == "done"
    else:
        with pytest.raises(OutpostError) as caught:
            await attempts.run(trying.attempt)
        assert caught.value is failure
    assert attempts.count == (2 if row.retryable else 1)


async def test_of_conflicts_only_those_that_pass_are_retryable() -> None:
    """A session that somebody changed is never tried again without a decision."""
    assert {row.reason for row in TABLE if row.code == "conflict" and row.retryable} == {"busy", "stale_revision"}
    assert not ConflictError("target_changed", "somebody was faster").retryable


@pytest.mark.parametrize(
    "given",
    [
        {"attempts_count": 0},
        {"base_seconds": -1.0},
        {"max_seconds": math.inf},
        {"base_seconds": math.nan},
    ],
)
def test_impossible_numbers_are_refused(given: dict[str, float]) -> None:
    """No attempt at all, or a pause that is negative or has no end."""
    with pytest.raises(ConfigurationError) as caught:
        Retry(**given)  # type: ignore[arg-type]
    assert caught.value.reason == "invalid_argument"


def test_many_failures_do_not_overflow() -> None:
    """A bound is a number after any count of failures."""
    assert Retry(base_seconds=1.0).bound_seconds(1_000_000) == 10.0
