"""Times of others for people, in this host's zone."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


def local_time(time: datetime, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Tell a time in this host's zone; one so close to an end of all times that it has none there, in its own."""
    with suppress(OverflowError, ValueError, OSError):
        time = time.astimezone()
    return time.strftime(form)
