"""Streams of a capture as a daemon would send them, right in themselves, for tests to break."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from host_client.errors import OutpostError
from host_client.sandbox.place import Place
from sandbox_api.framing import Batcher
from sandbox_api.manifest import Entry, bundle_digest
from sandbox_api.v1 import bundle_pb2, payload_pb2
from sandbox_api.wire import pack_manifest
from support.bundle_end import PROFILE, entries_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

PLACE = Place(PROFILE, "S1")
CONTENTS = {b"a": b"first", b"b/c": b"second" * 1000, b"empty": b""}
HANG_SECONDS = 20
"""No test of lies waits for anything but the daemon's next one."""


@dataclass
class Lie:
    """A capture stream as a proper daemon would send it, with parts for a test to replace."""

    entries: Sequence[Entry]
    header: bundle_pb2.CaptureHeader
    payload: bytes
    trailer: bundle_pb2.CaptureTrailer

    def messages(self) -> list[bundle_pb2.CaptureResponse]:
        """Return the stream."""
        return [
            bundle_pb2.CaptureResponse(header=self.header),
            *chunks(self.payload),
            bundle_pb2.CaptureResponse(trailer=self.trailer),
        ]


def chunks(payload: bytes) -> list[bundle_pb2.CaptureResponse]:
    """Return a payload as messages."""
    batcher = Batcher()
    batcher.add(payload)
    return [
        bundle_pb2.CaptureResponse(chunk=payload_pb2.Chunk(offset=offset, data=b"".join(parts)))
        for offset, parts in batcher.rest()
    ]


def told(entries: Sequence[Entry], contents: Mapping[bytes, bytes], **header: Any) -> Lie:
    """Return a stream that is right in itself, for a manifest that may not be."""
    manifest = pack_manifest(entries)
    whole = [entry._replace(sha256=hashlib.sha256(contents[entry.path]).digest()) for entry in entries]
    payload = manifest + b"".join(
        contents[entry.path][entry.from_offset :] + done.sha256
        for entry, done in zip(entries, whole, strict=True)
        if not entry.sha256
    )
    proper = {
        "source": b"/home/agent/.plain/sessions/S1",
        "manifest_bytes": len(manifest),
        "files_count": len(entries),
        "bytes_count": sum(entry.size for entry in entries),
        "payload_bytes": len(payload),
    }
    trailer = payload_pb2.Trailer(size=len(payload), sha256=bundle_digest(whole))
    return Lie(
        entries,
        bundle_pb2.CaptureHeader(**{**proper, **header}),
        payload,
        bundle_pb2.CaptureTrailer(payload=trailer),
    )


def honest(contents: Mapping[bytes, bytes] = CONTENTS) -> Lie:
    """Return a stream without any lie."""
    return told([entry._replace(sha256=b"") for entry in entries_of(contents)], contents)


def named(*paths: bytes) -> Lie:
    """Return a stream whose manifest has these paths in this order."""
    return told([Entry(path, 1) for path in paths], dict.fromkeys(paths, b"x"))


async def refusal(call: Awaitable[Any]) -> str:
    """Return code and reason of the failure of a call."""
    with pytest.raises(OutpostError) as caught:
        await call
    return f"{caught.value.code}/{caught.value.reason}"
