"""Messages that several services share, to plain types and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from sandbox_agent.core.sandbox import Place
from sandbox_api.names import check_conversation_id
from sandbox_api.v1 import payload_pb2
from sandbox_api.wire import unpack_profile

if TYPE_CHECKING:
    from typing import Protocol

    from sandbox_api.v1 import bundle_pb2

    class Owned(Protocol):
        """A header that may name an owner."""

        owner: payload_pb2.Owner

        def HasField(self, name: str) -> bool: ...  # noqa: N802, D102  protobuf's name

    PlaceOfAll = bundle_pb2.ListRequest | bundle_pb2.ListRecoveryRequest | bundle_pb2.PruneRecoveryRequest


def timestamp(moment_ns: int) -> Timestamp:
    """Return the wire form of nanoseconds since the epoch."""
    return Timestamp(seconds=moment_ns // 10**9, nanos=moment_ns % 10**9)


def is_full(durability: int) -> bool:
    """Tell whether what is written must survive a power loss; a word this version does not know means yes."""
    return durability != payload_pb2.DURABILITY_NONE


def owner_of(header: Owned) -> tuple[int, int] | None:
    """Return the owner a header names, or None for the daemon's own user."""
    return (header.owner.uid, header.owner.gid) if header.HasField("owner") else None


def place_of(message: bundle_pb2.Place) -> Place:
    """Return the checked place of one session.

    Raises:
        ConfigurationError: `invalid_profile`, `invalid_id`.
    """
    return Place(
        profile=unpack_profile(message.profile),
        conversation_id=check_conversation_id(message.id),
        variables=dict(message.variables),
        follow_root_link=message.follow_root_link,
    )


def place_of_all(message: PlaceOfAll, conversation_id: str = "") -> Place:
    """Return the checked place of a format's sessions.

    Raises:
        ConfigurationError: `invalid_profile`, `invalid_id`.
    """
    return Place(
        profile=unpack_profile(message.profile),
        conversation_id=check_conversation_id(conversation_id) if conversation_id else "",
        variables=dict(message.variables),
        follow_root_link=message.follow_root_link,
    )
