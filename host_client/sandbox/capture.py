"""The receiving half of a capture: a daemon's stream, checked, to a sink.

Pure of gRPC and of the event loop. The sink learns of a file only after the whole manifest has passed its checks, and
nothing counts before `finish`: until then every file of it may be a lie.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from google.protobuf.message import DecodeError

from host_client.errors import LimitError, SessionError, printable
from host_client.sandbox import reply
from host_client.sandbox.arrival import Arrival
from host_client.sandbox.place import Captured, LeftOut
from host_client.sandbox.progress import Progress
from sandbox_api.framing import PayloadCheck
from sandbox_api.manifest import DIGEST_BYTES, Entry, bundle_digest, check_entries
from sandbox_api.v1 import bundle_pb2
from sandbox_api.wire import read_chunk, unpack_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import PurePosixPath

    from sandbox_api.limits import Limits

MAX_HELD_BYTES = 3 << 20
"""Most bytes of a request that name files the host holds."""

_MAX_HELD_FRAME_BYTES = 64
"""Most bytes that naming a file takes beside its path: digest, size, tags and lengths."""

MAX_LEFT_OUT_COUNT = 100


class CaptureSink(Protocol):
    """Takes the content of a capture, in the order of the manifest.

    Its methods block; they run in threads, one at a time.

    A failed or cancelled capture ends with `abort`, after which no method runs. A capture that succeeded calls no last
    method: the caller has its result and makes the content visible.
    """

    def begin(self, source: PurePosixPath, entries: Sequence[Entry]) -> None:
        """Take the checked manifest: safe paths in order, within the limits; a digest for unchanged files only."""

    def whole(self, index: int, content: memoryview, sha256: bytes) -> None:
        """Take all that is sent of an entry and verify its whole content: `data` and `end` in one step.

        The content is valid in this call only.

        Raises:
            SessionError: `digest_mismatch`.
        """

    def data(self, index: int, piece: memoryview) -> None:
        """Take the next part of an entry's content, from its `from_offset` on. The piece is valid in this call only."""

    def end(self, index: int, sha256: bytes) -> None:
        """Verify the whole content of an entry, the part that was held included.

        Raises:
            SessionError: `digest_mismatch`.
        """

    def abort(self) -> None:
        """Drop everything that was taken."""


def held_files(entries: Iterable[Entry]) -> dict[bytes, Entry]:
    """Return the entries to name in a request: the largest files, as many as `MAX_HELD_BYTES` take."""
    chosen: dict[bytes, Entry] = {}
    left_bytes = MAX_HELD_BYTES
    for entry in sorted(entries, key=lambda entry: entry.size, reverse=True):
        left_bytes -= len(entry.path) + _MAX_HELD_FRAME_BYTES
        if left_bytes < 0:
            break
        chosen[entry.path] = entry
    return chosen


class Reception:
    """Checks one capture as it arrives. Blocking; used by one thread at a time.

    Args:
        sink: Where content goes.
        limits: The smaller of both sides' limits.
        held: The files that were named in the request, by path.
    """

    def __init__(self, sink: CaptureSink, limits: Limits, held: Mapping[bytes, Entry]) -> None:
        self._sink = sink
        self._limits = limits
        self._held = held
        self._payload = PayloadCheck()
        self._manifest = bytearray()
        self._header: bundle_pb2.CaptureHeader | None = None
        self._source: PurePosixPath
        self._entries: list[Entry] = []
        self._sent: list[int] = []
        self._arrival: Arrival | None = None
        self._captured: Captured | None = None
        self.progress = Progress(0, 0, 0, 0)

    def accept(self, data: bytes) -> None:
        """Take the next message of the stream, serialized.

        Raises:
            SessionError: `protocol`, `unsafe_name`, `empty`, `incomplete`, `digest_mismatch`.
            LimitError: `max_bytes`, `max_files`, `max_manifest_bytes`.
        """
        chunk = read_chunk(data)
        if chunk is None:
            self._accept_decoded(data)
        else:
            self._accept_chunk(*chunk)

    def _accept_decoded(self, data: bytes) -> None:
        try:
            message = bundle_pb2.CaptureResponse.FromString(data)
        except DecodeError:
            raise SessionError("protocol", "the daemon sent a message that cannot be decoded") from None
        part = message.WhichOneof("part")
        if part == "chunk":
            self._accept_chunk(message.chunk.offset, memoryview(message.chunk.data))
        elif part == "header" and self._header is None:
            self._begin(message.header)
        elif part == "trailer" and self._header is not None and self._captured is None:
            self._captured = self._end(message.trailer)
        else:
            raise _misplaced(part)

    def _accept_chunk(self, offset: int, data: memoryview) -> None:
        if self._header is None or self._captured is not None:
            raise _misplaced("chunk")
        self._payload.note(offset, len(data))
        self._chunk(data)

    def finish(self) -> Captured:
        """Return the result of a stream that has ended with success.

        Raises:
            SessionError: `incomplete`: it ended before its trailer.
        """
        if self._captured is None:
            raise SessionError("incomplete", "the stream of the capture ended before its trailer")
        return self._captured

    def _begin(self, header: bundle_pb2.CaptureHeader) -> None:
        self._limits.check(bytes_count=header.bytes_count, files_count=header.files_count)
        max_manifest_bytes = self._limits.max_manifest_bytes
        if header.manifest_bytes > max_manifest_bytes:
            raise LimitError("max_manifest_bytes", f"the manifest is larger than {max_manifest_bytes} bytes")
        most = header.manifest_bytes + header.bytes_count + header.files_count * DIGEST_BYTES
        if not header.manifest_bytes or not header.manifest_bytes <= header.payload_bytes <= most:
            raise SessionError("protocol", "the sizes in the header of the capture do not fit each other")
        self._source = reply.sandbox_path(header.source, "session path")
        self._payload.max_bytes = header.payload_bytes
        self._header = header

    def _chunk(self, data: memoryview) -> None:
        if self._arrival is None:
            lacking = self._require_header().manifest_bytes - len(self._manifest)
            self._manifest += data[:lacking]
            if len(data) < lacking:
                return
            data = data[lacking:]
            self._arrival = self._open_manifest()
        before_files, before_bytes = len(self._arrival.sha256s), self._arrival.bytes_count
        self._arrival.feed(data)
        self.progress = replace(
            self.progress,
            files_count=self.progress.files_count + len(self._arrival.sha256s) - before_files,
            bytes_count=self.progress.bytes_count + self._arrival.bytes_count - before_bytes,
        )

    def _open_manifest(self) -> Arrival:
        header = self._require_header()
        entries = unpack_manifest(bytes(self._manifest), max_files=self._limits.max_files)
        self._manifest.clear()
        check_entries(entries, self._limits, complete=False)
        for entry in entries:
            self._check_held(entry)
        self._sent = [index for index, entry in enumerate(entries) if not entry.sha256]
        payload_bytes = sum(entries[index].sent_bytes + DIGEST_BYTES for index in self._sent)
        bytes_total = sum(entry.size for entry in entries)
        announced = (header.files_count, header.bytes_count, header.payload_bytes)
        if announced != (len(entries), bytes_total, header.manifest_bytes + payload_bytes):
            raise SessionError("protocol", "the manifest of the capture is not the one its header announced")
        self._entries = entries
        self._sink.begin(self._source, tuple(entries))
        self.progress = Progress(
            len(entries) - len(self._sent), len(entries), sum(entry.from_offset for entry in entries), bytes_total
        )
        return Arrival(self._sink, entries, self._sent)

    def _check_held(self, entry: Entry) -> None:
        if not entry.sha256 and not entry.from_offset:
            return
        held = self._held.get(entry.path)
        unchanged = bool(entry.sha256)
        if (
            held is None
            or held.size != entry.from_offset
            or (unchanged and (entry.sha256 != held.sha256 or entry.from_offset != entry.size))
        ):
            raise SessionError("protocol", f"the daemon counts on content of {printable(entry.path)!r} not held here")

    def _end(self, trailer: bundle_pb2.CaptureTrailer) -> Captured:
        self._payload.finish(trailer.payload.size)
        if self._arrival is None or self._payload.size != self._require_header().payload_bytes:
            raise SessionError("incomplete", f"the capture ended after {self._payload.size} bytes of its payload")
        digests = iter(self._arrival.sha256s)
        entries = tuple(Entry(path, size, sha256 or next(digests)) for path, size, sha256, _ in self._entries)
        if bundle_digest(entries) != trailer.payload.sha256:
            raise SessionError("digest_mismatch", "the bundle does not have the digest its trailer says")
        if len(trailer.left_out) > min(MAX_LEFT_OUT_COUNT, trailer.left_out_count):
            raise SessionError("protocol", "the trailer of the capture names more entries than were left out")
        return Captured(
            source=self._source,
            entries=entries,
            digest=trailer.payload.sha256,
            received_bytes=self._payload.size,
            left_out=tuple(_left_out(item) for item in trailer.left_out),
            left_out_count=trailer.left_out_count,
            in_use_pid=trailer.in_use_pid,
        )

    def _require_header(self) -> bundle_pb2.CaptureHeader:
        if self._header is None:
            raise SessionError("protocol", "the capture has no header")
        return self._header


def _misplaced(part: str | None) -> SessionError:
    return SessionError("protocol", f"the daemon sent {part or 'an unknown part'} where it cannot be")


def _left_out(item: bundle_pb2.LeftOut) -> LeftOut:
    is_link = item.why == bundle_pb2.LeftOut.Why.WHY_SYMLINK
    return LeftOut(printable(item.path[:4096]), "symlink" if is_link else "not_selected")
