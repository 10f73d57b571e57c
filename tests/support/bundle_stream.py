"""The streams of BundleService, a message at a time, for tests by raw stubs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from sandbox_api.manifest import DIGEST_BYTES, Entry, bundle_digest
from sandbox_api.v1 import bundle_pb2, bundle_pb2_grpc, payload_pb2
from sandbox_api.wire import pack_manifest, pack_profile, unpack_manifest
from support.restoring import entries_of
from support.sandbox import FLAT, ID
from support.stream import Requests

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


CHUNK_BYTES = 1 << 20
CALL_SECONDS = 60.0

FILES = {"state.json": b"{}", "a/b.txt": b"bee", "a.txt": b"", "large": bytes(range(256)) * 10_000}
"""In the order of a manifest: a.txt, a/b.txt, large, state.json."""


def place_of(conversation_id: str = ID, **fields: Any) -> bundle_pb2.Place:
    """Name a session of the made-up format."""
    return bundle_pb2.Place(**{"profile": pack_profile(FLAT), "id": conversation_id, **fields})


def chunks_of(payload: bytes, start: int = 0) -> list[payload_pb2.Chunk]:
    """Return a payload, or its part from `start` on, as chunks."""
    return [
        payload_pb2.Chunk(offset=start + offset, data=payload[offset : offset + CHUNK_BYTES])
        for offset in range(0, len(payload), CHUNK_BYTES)
    ]


class CapturedStream:
    """A captured stream, checked as a client must."""

    def __init__(
        self, messages: Iterator[bundle_pb2.CaptureResponse], held: Mapping[bytes, bytes] | None = None
    ) -> None:
        first, *chunks, last = messages
        self.header, self.trailer = first.header, last.trailer
        payload = b""
        for message in chunks:
            assert message.chunk.offset == len(payload)
            assert 0 < len(message.chunk.data) <= CHUNK_BYTES
            payload += message.chunk.data
        assert len(payload) == self.header.payload_bytes == self.trailer.payload.size
        self.entries = unpack_manifest(payload[: self.header.manifest_bytes])
        self.content_bytes = len(payload) - self.header.manifest_bytes
        self.files: dict[str, bytes] = {}
        whole: list[Entry] = []
        position = self.header.manifest_bytes
        for entry in self.entries:
            content, sha256 = held.get(entry.path, b"")[: entry.from_offset], entry.sha256
            if not sha256:
                content += payload[position : position + entry.sent_bytes]
                position += entry.sent_bytes
                sha256 = payload[position : position + DIGEST_BYTES]
                position += DIGEST_BYTES
            assert hashlib.sha256(content).digest() == sha256
            self.files[entry.path.decode()] = content
            whole.append(entry._replace(sha256=sha256, from_offset=0))
        assert position == len(payload)
        assert self.header.files_count == len(whole)
        assert self.header.bytes_count == sum(entry.size for entry in whole)
        assert self.trailer.payload.sha256 == bundle_digest(whole)


class RestoreCall:
    """One restore, a message at a time; `bare`: its manifest has no digests."""

    def __init__(
        self,
        bundles: bundle_pb2_grpc.BundleServiceStub,
        files: Mapping[str, bytes],
        *,
        bare: bool = False,
        **fields: Any,
    ) -> None:
        self.files = files
        self.entries = entries_of(files)
        self.manifest = pack_manifest([entry._replace(sha256=b"") for entry in self.entries] if bare else self.entries)
        self.digest = bundle_digest(self.entries)
        header = {"place": place_of(), "manifest_bytes": len(self.manifest), "digest": self.digest, **fields}
        self.requests: Requests[bundle_pb2.RestoreRequest] = Requests()
        self.requests.send(bundle_pb2.RestoreRequest(header=bundle_pb2.RestoreHeader(**header)))
        self.send(*chunks_of(self.manifest))
        self.call = bundles.Restore(self.requests, timeout=CALL_SECONDS)

    def send(self, *chunks: payload_pb2.Chunk) -> None:
        """Send chunks."""
        self.requests.send(*(bundle_pb2.RestoreRequest(chunk=chunk) for chunk in chunks))

    def need(self) -> list[str]:
        """Return the files the daemon asks for."""
        bits = next(self.call).need.lacking
        assert len(bits) == (len(self.entries) + 7) // 8
        lacking = [bool(bits[index // 8] >> index % 8 & 1) for index in range(len(self.entries))]
        return [entry.path.decode() for entry, is_lacking in zip(self.entries, lacking, strict=True) if is_lacking]

    def content(self, needed: list[str]) -> list[payload_pb2.Chunk]:
        """Return the chunks of the files it asked for."""
        return chunks_of(b"".join(self.files[path] for path in needed), len(self.manifest))

    def end(self, size: int | None = None, digest: bytes | None = None) -> None:
        """Send the trailer and close."""
        trailer = payload_pb2.Trailer(size=size or 0, sha256=digest or self.digest)
        self.requests.send(bundle_pb2.RestoreRequest(trailer=trailer))
        self.requests.end()

    def finish(self) -> tuple[list[str], bundle_pb2.RestoreResult]:
        """Do all that is left of a restore; return what was needed and the result."""
        needed = self.need()
        chunks = self.content(needed)
        self.send(*chunks)
        self.end(len(self.manifest) + sum(len(chunk.data) for chunk in chunks))
        (answer,) = self.call
        return needed, answer.result
