"""Messages of followed files, as a daemon sends them."""

from __future__ import annotations

from sandbox_api.v1 import transcript_pb2

MAIN = b"projects/p/S1.jsonl"
BEAT = transcript_pb2.FollowResponse(beat=transcript_pb2.FollowBeat())


def begin(number: int, path: bytes = MAIN, offset: int = 0) -> transcript_pb2.FollowResponse:
    """Return the beginning of a file."""
    return transcript_pb2.FollowResponse(begin=transcript_pb2.FollowBegin(number=number, path=path, offset=offset))


def data(number: int, offset: int, content: bytes, mark: bytes = b"") -> transcript_pb2.FollowResponse:
    """Return a part of a file, with a mark behind it when its digest is given."""
    part = transcript_pb2.FollowData(number=number, offset=offset, data=content, mark_sha256=mark)
    return transcript_pb2.FollowResponse(data=part)


def mark(number: int, size: int, sha256: bytes) -> transcript_pb2.FollowResponse:
    """Return the mark behind a file's data."""
    return transcript_pb2.FollowResponse(mark=transcript_pb2.FollowMark(number=number, size=size, sha256=sha256))
