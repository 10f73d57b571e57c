"""Translate between the wire messages of `v1` and the plain types of this package; used by both halves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2

from sandbox_api.errors import (
    DOMAIN,
    FAMILIES,
    ROWS,
    ConfigurationError,
    Offender,
    OutpostError,
    SessionError,
)
from sandbox_api.limits import Limits
from sandbox_api.lock import MAX_SIGNS_COUNT, LockSign
from sandbox_api.manifest import Entry
from sandbox_api.profile import Profile
from sandbox_api.v1 import bundle_pb2, error_pb2, payload_pb2, transcript_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STATUS_KEY = "grpc-status-details-bin"
"""Trailing metadata key of the serialized `google.rpc.Status`."""

MAX_STATUS_BYTES = 4096
"""Serialized status; with base64 and the other headers it stays below gRPC's 8 KiB for metadata."""

_HARMLESS_MANIFEST_BYTES = 1 << 20
"""A manifest up to this size takes some tens of MiB when it is decoded, whatever it holds."""

_ENTRY_TAG = bundle_pb2.Manifest.ENTRIES_FIELD_NUMBER << 3 | (_BYTES := 2)
_WITH_VARINT = (0, _BYTES)
_CHUNK_TAG = bundle_pb2.CaptureResponse.CHUNK_FIELD_NUMBER << 3 | _BYTES
_OFFSET_TAG = payload_pb2.Chunk.OFFSET_FIELD_NUMBER << 3
_DATA_TAG = payload_pb2.Chunk.DATA_FIELD_NUMBER << 3 | _BYTES
_FIXED_BYTES = {1: 8, 5: 4}

_FLAGS = {
    "ignore_case": re.IGNORECASE,
    "multi_line": re.MULTILINE,
    "dot_all": re.DOTALL,
    "verbose": re.VERBOSE,
    "ascii": re.ASCII,
}


def chunk_message(offset: int, parts: Sequence[bytes], *, tag: bytes = b"\x12") -> bytes:
    """Return a serialized message of any stream of `v1` that holds a chunk.

    Its data is copied once, here; a message object would copy it twice more.

    Args:
        offset: Of the data in all of it.
        parts: The data.
        tag: Says which field the chunk is: 2 in all streams of payloads; output of a process is of the same form.
    """
    size = sum(map(len, parts))
    head = (b"\x08" + _varint(offset) if offset else b"") + b"\x12" + _varint(size)
    return b"".join((tag + _varint(len(head) + size) + head, *parts))


def read_chunk(data: bytes) -> tuple[int, memoryview] | None:
    """Return offset and data of the chunk in a serialized message, as `chunk_message` spells it, without a copy.

    None stands for any other message, and for a chunk that is spelled in another way: both are to be decoded.
    """
    try:
        if data[0] != _CHUNK_TAG:
            return None
        size, at = _read_varint(data, 1)
        end = at + size
        offset = 0
        if data[at] == _OFFSET_TAG:
            offset, at = _read_varint(data, at + 1)
        if data[at] != _DATA_TAG:
            return None
        size, at = _read_varint(data, at + 1)
    except IndexError:
        return None
    return (offset, memoryview(data)[at:]) if at + size == end == len(data) else None


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def pack_status(error: OutpostError) -> bytes:
    """Return the serialized `google.rpc.Status` of a failure, cut to `MAX_STATUS_BYTES` by naming fewer offenders."""
    failure = error_pb2.Failure(
        code=error.code,
        reason=error.reason,
        message=error.message[:1024],
        hint=error.hint[:512],
        facts={key: value[:256] for key, value in list(error.facts.items())[:8]},
        offenders=[
            error_pb2.Failure.Offender(path=offender.path[:512], problem=offender.problem[:128])
            for offender in error.offenders
        ],
        offender_count=error.offender_count,
    )
    while True:
        data: bytes = _status(error, failure).SerializeToString()
        if len(data) <= MAX_STATUS_BYTES:
            return data
        if failure.offenders:
            del failure.offenders[len(failure.offenders) // 2 :]
        elif failure.facts:
            failure.facts.clear()
        else:
            failure.message, failure.hint = failure.message[:256], failure.hint[:128]


def _status(error: OutpostError, failure: error_pb2.Failure) -> status_pb2.Status:
    status = status_pb2.Status(code=code_pb2.Code.Value(error.grpc_status), message=failure.message)
    info = error_details_pb2.ErrorInfo(
        reason=f"{error.code}_{error.reason}".upper(),
        domain=DOMAIN,
        metadata={"code": error.code, "reason": error.reason},
    )
    for detail in (info, failure):
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def unpack_status(data: bytes) -> OutpostError | None:
    """Return the failure a daemon reported, or None when the bytes hold none that the table knows."""
    failure = error_pb2.Failure()
    try:
        status = status_pb2.Status.FromString(data)
        if not any(detail.Unpack(failure) for detail in status.details):
            return None
    except DecodeError:
        return None
    if (failure.code, failure.reason) not in ROWS:
        return None
    return FAMILIES[failure.code](
        failure.reason,
        failure.message,
        hint=failure.hint,
        facts=dict(failure.facts),
        offenders=[Offender(offender.path, offender.problem) for offender in failure.offenders],
        offender_count=failure.offender_count,
    )


def pack_manifest(entries: Iterable[Entry]) -> bytes:
    """Return the serialized manifest."""
    return bundle_pb2.Manifest(
        entries=[
            bundle_pb2.ManifestEntry(
                path=entry.path, size=entry.size, sha256=entry.sha256, from_offset=entry.from_offset
            )
            for entry in entries
        ]
    ).SerializeToString()


def unpack_manifest(data: bytes, *, max_files: int | None = None) -> list[Entry]:
    """Return the entries of a serialized manifest, unchecked but for their number.

    Args:
        data: The serialized manifest.
        max_files: Most entries to make; a small manifest can name millions of files. None: any number.

    Raises:
        SessionError: `protocol`: the bytes are no manifest.
        LimitError: `max_files`.
    """
    if max_files is not None and len(data) > _HARMLESS_MANIFEST_BYTES:
        Limits(max_files=max_files).check(bytes_count=0, files_count=_count_entries(data, max_files))
    try:
        manifest = bundle_pb2.Manifest.FromString(data)
    except DecodeError:
        raise SessionError("protocol", "the manifest cannot be decoded") from None
    if max_files is not None:
        Limits(max_files=max_files).check(bytes_count=0, files_count=len(manifest.entries))
    return [Entry(entry.path, entry.size, entry.sha256, entry.from_offset) for entry in manifest.entries]


def _count_entries(data: bytes, most: int) -> int:
    """Count the entries of a serialized manifest without making them; the count ends soon after `most`.

    Bytes that are no manifest end it as well: decoding will refuse them.
    """
    count = offset = 0
    try:
        while offset < len(data) and count <= most:
            tag, offset = _read_varint(data, offset)
            kind = tag & 7
            if kind in _FIXED_BYTES:
                offset += _FIXED_BYTES[kind]
            elif kind in _WITH_VARINT:
                value, offset = _read_varint(data, offset)
                offset += value if kind == _BYTES else 0
                count += tag == _ENTRY_TAG
    except IndexError:
        pass
    return count


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return a number and the offset after it; `IndexError` where there is none."""
    value = 0
    for shift in range(0, 64, 7):
        byte = data[offset + shift // 7]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  the bit that says that more follow
            return value, offset + shift // 7 + 1
    raise IndexError(offset)


def pack_pattern(pattern: re.Pattern[str]) -> bundle_pb2.Pattern:
    """Return the wire form of a compiled text pattern."""
    flags = {name: bool(pattern.flags & flag) for name, flag in _FLAGS.items()}
    return bundle_pb2.Pattern(source=pattern.pattern, **flags)


def unpack_pattern(message: bundle_pb2.Pattern) -> re.Pattern[str]:
    """Compile a pattern from the wire.

    Raises:
        ConfigurationError: `invalid_profile`.
    """
    flags = re.NOFLAG
    for name, flag in _FLAGS.items():
        if getattr(message, name):
            flags |= flag
    try:
        return re.compile(message.source, flags)
    except (re.error, ValueError, RecursionError, OverflowError):  # ValueError: flags that exclude each other
        raise ConfigurationError("invalid_profile", f"the pattern {message.source[:200]!r} does not compile") from None


def pack_limits(limits: Limits | None) -> bundle_pb2.BundleLimits:
    """Return the wire form; None leaves both numbers to the daemon."""
    if limits is None:
        return bundle_pb2.BundleLimits()
    return bundle_pb2.BundleLimits(max_bytes=limits.max_bytes, max_files=limits.max_files)


def unpack_limits(message: bundle_pb2.BundleLimits, own: Limits) -> Limits:
    """Return the smaller of the caller's limits and our own."""
    return own.smaller(Limits(message.max_bytes or own.max_bytes, message.max_files or own.max_files))


def pack_locks(signs: Iterable[LockSign]) -> list[transcript_pb2.LockSign]:
    """Return the wire form of the signs of an open conversation."""
    return [
        transcript_pb2.LockSign(
            directory=sign.directory.encode("utf-8", "surrogateescape"), pattern=sign.pattern, contains=sign.contains
        )
        for sign in signs
    ]


def unpack_locks(messages: Sequence[transcript_pb2.LockSign]) -> list[LockSign]:
    """Return what `pack_locks` packed.

    Raises:
        ConfigurationError: `invalid_argument`.
    """
    if len(messages) > MAX_SIGNS_COUNT:
        raise ConfigurationError("invalid_argument", f"more than {MAX_SIGNS_COUNT} signs are to be looked for")
    return [
        LockSign(message.directory.decode("utf-8", "surrogateescape"), message.pattern, message.contains)
        for message in messages
    ]


def pack_profile(profile: Profile) -> bundle_pb2.Profile:
    """Return the wire form of a profile."""
    return bundle_pb2.Profile(
        format=profile.format,
        root_variable=profile.root_variable,
        root_directory=profile.root_directory,
        sessions=profile.sessions,
        buckets=profile.buckets,
        include=pack_pattern(profile.include),
        exclude=pack_pattern(profile.exclude) if profile.exclude else None,
        required=profile.required,
        relocated=profile.relocated,
        validate=profile.validate,
        bucket=profile.bucket,
        relocate=profile.relocate,
        lock=pack_pattern(profile.lock) if profile.lock else None,
    )


def unpack_profile(message: bundle_pb2.Profile) -> Profile:
    """Return the checked profile.

    Raises:
        ConfigurationError: `invalid_profile`.
    """
    if not message.HasField("include"):
        raise ConfigurationError("invalid_profile", "the profile has no include pattern")
    return Profile(
        format=message.format,
        root_variable=message.root_variable,
        root_directory=message.root_directory,
        sessions=message.sessions,
        buckets=message.buckets,
        include=unpack_pattern(message.include),
        exclude=unpack_pattern(message.exclude) if message.HasField("exclude") else None,
        required=tuple(message.required),
        relocated=tuple(message.relocated),
        validate=message.validate,
        bucket=message.bucket,
        relocate=message.relocate,
        lock=unpack_pattern(message.lock) if message.HasField("lock") else None,
    ).check()
