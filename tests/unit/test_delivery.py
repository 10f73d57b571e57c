"""The progress of many targets: added up, told at every end, and else seldom enough to cost nothing."""

from __future__ import annotations

from host_client.errors import UnavailableError
from host_client.sandbox.progress import Progress
from host_client.stores.delivery import Delivery, DeliveryProgress, DeliveryTally
from support.outcome import outcome


class Clock:
    """A clock that stands."""

    now_seconds = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_seconds


def test_bytes_and_shares_of_all_are_added_up() -> None:
    """Ended targets count whole, running ones by their bytes, failed ones as done and with the bytes that came."""
    told: list[DeliveryProgress] = []
    clock = Clock()
    tally = DeliveryTally(4, told.append, clock)
    first, second = tally.watch(0), tally.watch(1)
    assert first
    assert second
    first(Progress(0, 2, 50, 100))
    clock.now_seconds = 1.0
    second(Progress(0, 2, 25, 100))
    assert (told[-1].bytes_count, told[-1].share, told[-1].ended) == (75, 0.75 / 4, None)
    good, bad = Delivery("a", outcome(100)), Delivery("b", error=UnavailableError("unreachable", "gone"))
    tally.end(0, good)
    assert told[-1] == DeliveryProgress(1, 4, 0, 125, 1.25 / 4, good)
    tally.end(1, bad)
    assert told[-1] == DeliveryProgress(2, 4, 1, 125, 2 / 4, bad)


def test_nothing_falls_and_all_is_done_only_at_the_end() -> None:
    """A further attempt begins at 0, a target that has everything has not committed, and one fails after all came."""
    told: list[DeliveryProgress] = []
    clock = Clock()
    tally = DeliveryTally(2, told.append, clock)
    notes = tally.watch(0), tally.watch(1)
    for number, bytes_count in ((0, 80), (0, 0), (0, 100), (1, 100)):
        clock.now_seconds += 1.0
        note = notes[number]
        assert note
        note(Progress(0, 1, bytes_count, 100))
    assert [one.bytes_count for one in told] == [80, 80, 100, 200]
    assert told[-1].share == 0.99
    tally.end(0, Delivery("a", error=UnavailableError("unreachable", "gone")))
    assert (told[-1].bytes_count, told[-1].share) == (200, 1.99 / 2)
    tally.end(1, Delivery("b", outcome(100)))
    assert (told[-1].bytes_count, told[-1].share) == (200, 1.0)
    assert sorted(one.share for one in told) == [one.share for one in told]


def test_ends_are_told_at_once_and_bytes_at_most_ten_times_a_second() -> None:
    """Of many reports of one moment the first is told, of ends all."""
    told: list[DeliveryProgress] = []
    clock = Clock()
    tally = DeliveryTally(9, told.append, clock)
    note = tally.watch(0)
    assert note
    for at_seconds in (0.0, 0.05, 0.09, 0.1, 0.15):
        clock.now_seconds = at_seconds
        note(Progress(0, 1, 1, 2))
    assert len(told) == 2
    for number in range(3):
        tally.end(number, Delivery(str(number), outcome(1)))
    assert [one.targets_count for one in told[2:]] == [1, 2, 3]


def test_without_a_callback_nothing_is_watched() -> None:
    """Nobody's progress costs nothing."""
    tally = DeliveryTally(1, None)
    assert tally.watch(0) is None
    tally.end(0, Delivery("a", outcome(1)))
