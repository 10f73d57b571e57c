"""Tokens of a turn: added up, replaced by totals, and incomplete when something is missing."""

from __future__ import annotations

import pytest

from host_client.agents.event import UsageEvent
from host_client.agents.usage import Usage
from host_client.turns.account import UNKNOWN, Account, difference


def account(*events: UsageEvent) -> Account:
    """Return the account of events."""
    made = Account()
    for event in events:
        made.add(event)
    return made


def used(sent: int | None, received: int | None, *, cumulative: bool = False) -> UsageEvent:
    """Return an event."""
    return UsageEvent(Usage(input_tokens=sent, output_tokens=received), cumulative=cumulative)


def test_steps_are_added() -> None:
    """Every step counts, and counters that one of them has not are those of the others."""
    steps = (used(1, 10), UsageEvent(Usage(input_tokens=2, output_tokens=20, cache_read_tokens=5)))
    expected = Usage(input_tokens=3, output_tokens=30, cache_read_tokens=5)
    assert account(*steps).usage("events") == expected


def test_a_total_replaces_what_came_before() -> None:
    """The last total holds, with the steps that follow it."""
    made = account(used(1, None), used(5, 5, cumulative=True), used(9, 8, cumulative=True), used(1, 1))
    assert made.usage("events") == Usage(input_tokens=10, output_tokens=9)


@pytest.mark.parametrize(
    "events",
    [
        (),
        (used(1, None),),
        (used(1, 1), used(None, 2)),
        (UsageEvent(Usage(input_tokens=1, output_tokens=1, complete=False)),),
    ],
)
def test_what_is_missing_makes_events_incomplete(events: tuple[UsageEvent, ...]) -> None:
    """No event, one without a counter that every agent has, or one that says so itself: incomplete."""
    usage = account(*events).usage("events")
    assert usage is not None
    assert not usage.complete


def test_without_a_mode_nothing_is_checked() -> None:
    """What was told is counted; nothing told is nothing."""
    assert account().usage(None) is None
    assert account(used(1, None), used(2, None)).usage(None) == Usage(input_tokens=3)


def test_unavailable_records_nothing() -> None:
    """Whatever the agent tells."""
    assert account(used(1, 1)).usage("unavailable") is None


def test_a_difference_is_what_came_between() -> None:
    """Counter by counter; one that was not there before began at nothing."""
    before = Usage(input_tokens=10, output_tokens=1)
    after = Usage(input_tokens=12, output_tokens=4, cache_read_tokens=7)
    assert difference(after, before) == Usage(input_tokens=2, output_tokens=3, cache_read_tokens=7)


@pytest.mark.parametrize(
    ("after", "before"),
    [
        (None, Usage(input_tokens=1, output_tokens=1)),
        (Usage(input_tokens=1, output_tokens=1), None),
        (Usage(input_tokens=1, output_tokens=5), Usage(input_tokens=2, output_tokens=1)),
        (Usage(input_tokens=5), Usage(input_tokens=2)),
        (Usage(input_tokens=5, output_tokens=2, complete=False), Usage(input_tokens=2, output_tokens=1)),
    ],
)
def test_a_difference_of_what_is_not_known_is_incomplete(after: Usage | None, before: Usage | None) -> None:
    """A total that could not be read, went back or lacks a counter leaves the turn's share unknown."""
    assert not difference(after, before).complete


def test_counters_that_went_back_are_not_made_up() -> None:
    """Of a counter that is smaller than before nothing is told."""
    after, before = Usage(input_tokens=1, output_tokens=5), Usage(input_tokens=2, output_tokens=1)
    assert difference(after, before) == Usage(output_tokens=4, complete=False)
    assert difference(None, before) == UNKNOWN
