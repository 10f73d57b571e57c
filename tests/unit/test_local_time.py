"""Times that somebody else wrote, told to a person."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from host_client.cli.local_time import local_time

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["America/New_York", "Asia/Tokyo"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have this process in a zone on either side of UTC."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize(
    "told",
    [
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=23, minutes=59))),
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=23, minutes=59))),
    ],
)
def test_a_time_at_the_end_of_all_times_is_told(told: datetime) -> None:
    """What has no place in this host's zone is told in its own, and is no fault of the command."""
    assert int(local_time(told, "%Y")) in (1, 9999)


@pytest.mark.usefixtures("_zone")
def test_other_times_are_told_in_the_zone_of_this_host() -> None:
    """A time of another zone is told as a clock here shows it."""
    told = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    hour = {"EST": "2026-01-01 22:04:05", "JST": "2026-01-02 12:04:05"}
    assert local_time(told) == hour[time.tzname[0]]
