"""What became of a call: whether its stream broke, or it failed by itself."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import grpc.aio

from sandbox_api.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandbox_agent.services.incoming import Incoming


class _Restore(Protocol):
    def keep(self) -> None: ...


@contextmanager
def kept_when_broken(restore: _Restore, incoming: Incoming) -> Iterator[None]:
    """Leave what is staged to the next attempt when the stream broke, and for no other failure."""
    try:
        yield
    except (asyncio.CancelledError, grpc.aio.BaseError):
        restore.keep()
        raise
    except SessionError:
        if incoming.is_cut:
            restore.keep()
        raise
