"""The failure in a raw gRPC error."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc
import pytest

from sandbox_api.wire import STATUS_KEY, unpack_status

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def fails(code: str, reason: str) -> Iterator[None]:
    """Expect a call inside to fail with that code and reason of the table."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    details = dict(caught.value.trailing_metadata()).get(STATUS_KEY)
    failure = unpack_status(details) if isinstance(details, bytes) else None
    assert failure is not None, f"no failure of ours: {caught.value}"
    assert (failure.code, failure.reason) == (code, reason), str(failure)
    assert caught.value.code().name == failure.grpc_status
