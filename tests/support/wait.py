"""Wait for what another process does and does not report."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MAX_SECONDS = 30.0
_LOOK_SECONDS = 0.01


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Return as soon as something holds; fail when it does not within `MAX_SECONDS`."""
    deadline = time.monotonic() + MAX_SECONDS
    never = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        never.wait(_LOOK_SECONDS)


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Do the same in an event loop, for something that has to be asked for."""
    deadline = time.monotonic() + MAX_SECONDS
    while not await holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(_LOOK_SECONDS)
