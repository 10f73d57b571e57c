"""What the two kinds of restores of a bundle have in common: how their call begins and how it is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import SessionError
from host_client.sandbox import reply
from host_client.sandbox.place import Restored
from host_client.sandbox.request import expressible
from sandbox_api.v1 import bundle_pb2, payload_pb2
from sandbox_api.wire import pack_limits

if TYPE_CHECKING:
    from host_client.sandbox.connection import Stream
    from host_client.sandbox.place import Place
    from host_client.sandbox.restore import Outgoing
    from host_client.sandbox.restore_stream import OutgoingStream
    from sandbox_api.limits import Limits


def header_of(
    place: Place,
    limits: Limits,
    manifest: bytes,
    *,
    full_durability: bool,
    owner: tuple[int, int] | None,
    force: bool,
) -> bundle_pb2.RestoreHeader:
    """Return the header of a restore; of its bundle it has the size of the manifest alone.

    Raises:
        ConfigurationError: `invalid_argument`, `invalid_id`.
    """
    with expressible():
        return bundle_pb2.RestoreHeader(
            place=place.packed(),
            limits=pack_limits(limits),
            manifest_bytes=len(manifest),
            durability=payload_pb2.DURABILITY_FULL if full_durability else payload_pb2.DURABILITY_NONE,
            owner=payload_pb2.Owner(uid=owner[0], gid=owner[1]) if owner else None,
            force=force,
        )


async def conclude(stream: Stream[bundle_pb2.RestoreResponse], outgoing: Outgoing | OutgoingStream) -> Restored:
    """Commit what was sent, and return what the daemon says of it, which ends the call.

    Raises:
        SessionError: `protocol`; what the daemon refused the commit for.
    """
    await stream.write(bundle_pb2.RestoreRequest(trailer=outgoing.trailer))
    await stream.finish_writing()
    result = (await answer_of(stream, "result", more_seconds=outgoing.commit_seconds)).result
    restored = Restored(
        target=reply.sandbox_path(result.target, "target"),
        unchanged=result.unchanged,
        recovery=reply.name(result.recovery) if result.recovery else "",
        files_count=result.files_count,
        bytes_count=result.bytes_count,
        sent_bytes=outgoing.sent_bytes,
        digest=reply.digest(result.digest),
        relocated=tuple(reply.printable_path(path) for path in result.relocated),
        not_atomic=result.not_atomic,
        resumed_bytes=outgoing.resumed_bytes,
    )
    await stream.end()
    return restored


async def answer_of(
    stream: Stream[bundle_pb2.RestoreResponse], part: str, *, more_seconds: float = 0.0
) -> bundle_pb2.RestoreResponse:
    """Return the daemon's next answer, which must be this part.

    Raises:
        SessionError: `protocol`.
        UnavailableError: `unreachable`: the stream ended.
    """
    answer = await stream.read(more_seconds=more_seconds)
    if answer is None:
        raise stream.cut()
    if answer.WhichOneof("part") != part:
        raise SessionError("protocol", f"the daemon sent {answer.WhichOneof('part')} where its {part} was due")
    return answer
