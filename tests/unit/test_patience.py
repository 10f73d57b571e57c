"""How long failures are borne: which, how often it is tried again, and what ends that."""

from __future__ import annotations

import pytest

from host_client.errors import (
    ConflictError,
    DeadlineError,
    LimitError,
    OutpostError,
    SessionError,
    UnavailableError,
    WorkspaceError,
)
from host_client.stores.patience import Patience

pytestmark = pytest.mark.anyio

AWAY = UnavailableError("unreachable", "away")


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        """Tell the time."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let it pass."""
        self.slept.append(round(seconds, 6))
        self.now += seconds

    def patience(self, seconds: float) -> Patience:
        """Return a patience by this clock."""
        return Patience(seconds, clock=self.clock, sleep=self.sleep)


async def test_failures_are_borne_for_so_long() -> None:
    """Attempts come ever less often, at most two seconds apart; the last is at the end of the time."""
    time = Time()
    patience = time.patience(6.0)
    for _ in range(7):
        await patience.bear(AWAY)
    assert time.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 0.9]
    with pytest.raises(UnavailableError) as caught:
        await patience.bear(AWAY)
    assert caught.value is AWAY


async def test_success_begins_anew() -> None:
    """After a success the next failure has all the time again, and the short pauses."""
    time = Time()
    patience = time.patience(1.0)
    for _ in range(10):
        await patience.bear(AWAY)
        await patience.bear(AWAY)
        patience.succeed()
    assert time.slept == [0.1, 0.2] * 10


PASSING: list[OutpostError] = [
    AWAY,
    DeadlineError("deadline", "silent"),
    SessionError("changed", ""),
    SessionError("empty", ""),
    SessionError("not_found", ""),
    WorkspaceError("changed", ""),
    WorkspaceError("not_found", ""),
]
LASTING: list[OutpostError] = [
    UnavailableError("unsupported", "too old"),
    UnavailableError("io", ""),
    SessionError("protocol", ""),
    SessionError("ambiguous", ""),
    WorkspaceError("access", ""),
    ConflictError("busy", ""),
    LimitError("disk_full", ""),
]


@pytest.mark.parametrize("error", PASSING, ids=str)
async def test_what_may_pass_is_waited_for(error: OutpostError) -> None:
    """A sandbox that is away, and a conversation that is being written anew."""
    time = Time()
    await time.patience(1.0).bear(error)
    assert time.slept == [0.1]


@pytest.mark.parametrize("error", LASTING, ids=str)
async def test_what_will_not_pass_comes_out_at_once(error: OutpostError) -> None:
    """Whatever waiting does not change."""
    time = Time()
    with pytest.raises(type(error)) as caught:
        await time.patience(1e9).bear(error)
    assert (caught.value, time.slept) == (error, [])
