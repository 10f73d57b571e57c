"""gRPC channels to daemons: how they are set up and what their failures mean.

Every failure becomes an `OutpostError`: the one the daemon described, or a row of `_FALLBACK` when it described none
that the table knows. No text of gRPC is passed on.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from host_client.errors import DeadlineError, OutpostError, SessionError, UnavailableError
from host_client.sandbox import reply
from sandbox_api.limits import MAX_MESSAGE_BYTES, MAX_METADATA_BYTES
from sandbox_api.wire import STATUS_KEY, unpack_status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KEEPALIVE_SECONDS = 60
"""A connection with a call on it is probed after that much silence, so that a host that vanished is noticed."""

KEEPALIVE_TIMEOUT_SECONDS = 20

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_SECONDS * 1000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # A daemon is on this host or at the end of a tunnel: the proxy of the environment is not meant for it.
    ("grpc.enable_http_proxy", 0),
    # Or else gRPC waits up to two minutes before it tries again to reach a daemon that was away.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A connection of its own: no back-off and no state is shared with other users of the same address.
    ("grpc.use_local_subchannel_pool", 1),
)

_UNREACHABLE = (UnavailableError, "unreachable", "the daemon at {} cannot be reached or went away")
_INTERNAL = (UnavailableError, "internal", "the daemon at {} failed without saying why")
_FALLBACK: dict[grpc.StatusCode, tuple[type[OutpostError], str, str]] = {
    grpc.StatusCode.UNAVAILABLE: _UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: (DeadlineError, "deadline", "the daemon at {} did not answer in time"),
    grpc.StatusCode.CANCELLED: (UnavailableError, "cancelled", "the call to the daemon at {} was cancelled"),
    grpc.StatusCode.UNIMPLEMENTED: (UnavailableError, "unsupported", "the daemon at {} does not know the call"),
    # Without details this is gRPC itself refusing a message or its metadata for their size, on either side.
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        SessionError,
        "protocol",
        "a message to or from the daemon at {} is too large",
    ),
}

_UPDATE_HINT = "the daemon is older than this client: update outpost-sandbox in the sandbox"


def open_channel(address: str) -> grpc.aio.Channel:
    """Open a channel; nothing is connected before the first call."""
    # Teaches glibc's malloc, which learns from the largest block freed so far, to keep the memory of messages. Or else
    # each is mapped, faulted in page by page and unmapped again: a third of the time of a capture (measured).
    _ = bytes(2 * MAX_MESSAGE_BYTES)
    return grpc.aio.insecure_channel(address, options=_OPTIONS)


def failure_of(code: grpc.StatusCode, metadata: Iterable[Any] | None, target: str) -> OutpostError:
    """Return the failure that a call's final status means.

    Args:
        code: The status, not OK.
        metadata: The trailing metadata, where the daemon puts the details.
        target: Names the daemon in messages.
    """
    for key, value in metadata or ():
        if key == STATUS_KEY and isinstance(value, bytes) and (failure := unpack_status(value)):
            return reply.failure(failure)
    family, reason, message = _FALLBACK.get(code, _INTERNAL)
    hint = _UPDATE_HINT if code is grpc.StatusCode.UNIMPLEMENTED else ""
    return family(reason, message.format(target), hint=hint, facts={"grpc_status": code.name, "target": target})


@contextmanager
def translated(target: str) -> Iterator[None]:
    """Raise what gRPC raises in the block as an `OutpostError`; a cancel of the running task stays a cancel."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise failure_of(error.code(), error.trailing_metadata(), target) from None
    except TimeoutError:
        raise failure_of(grpc.StatusCode.DEADLINE_EXCEEDED, None, target) from None
    except grpc.aio.UsageError:  # the channel was closed
        raise failure_of(grpc.StatusCode.CANCELLED, None, target) from None
    except asyncio.CancelledError:
        # gRPC raises this as well when the daemon, or a closed channel, cancelled the call.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise failure_of(grpc.StatusCode.CANCELLED, None, target) from None
