"""Files of a sandbox as they grow: what is asked for, what comes, and the checks in between.

Pure of gRPC's calls. Nothing of a message is passed on before all of it has been checked; the content itself is only
sure when the receiver's own SHA-256 equals that of a mark.
"""

from __future__ import annotations

import fnmatch
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from host_client.errors import ConfigurationError, LimitError, SessionError, printable
from host_client.sandbox import reply
from host_client.sandbox.capture import MAX_HELD_BYTES
from host_client.sandbox.request import expressible
from sandbox_api.framing import PayloadCheck
from sandbox_api.manifest import DIGEST_BYTES
from sandbox_api.v1 import transcript_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import PurePosixPath

FollowPart: TypeAlias = "FollowBegin | FollowData | FollowMark | FollowBeat"

MAX_INTERVAL_SECONDS = 60.0

_MAX_HELD_FRAME_BYTES = 32
_MAX_PART_BYTES = DIGEST_BYTES + 10
"""What a part takes in a request: its digest, and a size."""


@dataclass(frozen=True, slots=True)
class FollowHeld:
    """What the host holds of a file: its first bytes.

    Attributes:
        path: Below the home.
        parts: Sizes in bytes and SHA-256 of the parts that they came in: at first, and then between the offset of each
            beginning and a mark.
    """

    path: PurePosixPath
    parts: Sequence[tuple[int, bytes]]

    @property
    def size(self) -> int:
        """How much it is, in bytes."""
        return sum(size for size, _ in self.parts)


@dataclass(frozen=True, slots=True)
class FollowPattern:
    """Files to follow: those at any depth below a directory whose names match a glob, now or later.

    Of several patterns that match a file the first one counts.

    Attributes:
        directory: Below the home; it may be missing.
        pattern: `*`, `?` and `[...]`; other characters stand for themselves.
        whole_lines: What follows the last newline waits until its own has been written.
    """

    directory: PurePosixPath
    pattern: str
    whole_lines: bool


@dataclass(frozen=True, slots=True)
class FollowBegin:
    """A file begins, or begins again; what came of it under an older number counts no more.

    Attributes:
        number: Its number in what follows.
        path: Below the home.
        offset: Where its data starts: the size that is held, or 0.
    """

    number: int
    path: PurePosixPath
    offset: int


@dataclass(frozen=True, slots=True)
class FollowData:
    """The next bytes of a file; at most 1 MiB."""

    number: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FollowMark:
    """All of a file as of now has come.

    Attributes:
        number: The file.
        size: Bytes of it so far, the held ones included.
        sha256: SHA-256 of those that came since the file began, as the daemon says: whoever has them compares it.
    """

    number: int
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class FollowBeat:
    """Nothing was told for ten seconds."""


def follow_request(
    home: PurePosixPath, held: Sequence[FollowHeld], patterns: Sequence[FollowPattern], interval_seconds: float
) -> tuple[transcript_pb2.FollowRequest, Following]:
    """Return the request and the checks of its answers.

    When the names of what is held take more than a request can, only the largest files are named; the others begin
    at 0.

    Raises:
        ConfigurationError: `invalid_argument`.
    """
    if not 0 < interval_seconds <= MAX_INTERVAL_SECONDS:
        raise ConfigurationError("invalid_argument", f"files cannot be told every {interval_seconds} seconds")
    named = _named(held)
    with expressible():
        request = transcript_pb2.FollowRequest(
            home=os.fsencode(home), interval_milliseconds=max(1, round(interval_seconds * 1000))
        )
        for path, item in named.items():
            sizes = [size for size, _ in item.parts]
            sha256 = b"".join(sha256 for _, sha256 in item.parts)
            request.held.add(path=path, size=item.size, sha256=sha256, prefix_sizes=sizes if len(sizes) > 1 else ())
        for followed in patterns:
            directory = os.fsencode(followed.directory) if followed.directory.parts else b""  # "": the home itself
            request.patterns.add(directory=directory, pattern=followed.pattern, whole_lines=followed.whole_lines)
    return request, Following({path: item.size for path, item in named.items()}, patterns)


def _named(held: Sequence[FollowHeld]) -> dict[bytes, FollowHeld]:
    """Return the files to name: the largest, as many as a request takes."""
    chosen: dict[bytes, FollowHeld] = {}
    left_bytes = MAX_HELD_BYTES
    for item in sorted((item for item in held if item.parts), key=lambda item: item.size, reverse=True):
        path = os.fsencode(item.path)
        left_bytes -= len(path) + _MAX_HELD_FRAME_BYTES + len(item.parts) * _MAX_PART_BYTES
        if left_bytes < 0:
            break
        chosen[path] = item
    return chosen


@dataclass(slots=True)
class _Arriving:
    """One file: its path, what came of it, and whether that must end, and ends, with a whole line."""

    path: bytes
    payload: PayloadCheck
    whole_lines: bool
    ends_line: bool = True


class Following:
    """Checks the answers of one call, in order.

    Args:
        held_sizes: Sizes of what was named as held, by path.
        patterns: What was asked for.
    """

    def __init__(self, held_sizes: dict[bytes, int], patterns: Sequence[FollowPattern]) -> None:
        self._held_sizes = held_sizes
        self._patterns = [(item, re.compile(fnmatch.translate(item.pattern))) for item in patterns]
        self._last_number = 0
        self._files: dict[int, _Arriving] = {}
        self._numbers: dict[bytes, int] = {}

    def accept(self, message: transcript_pb2.FollowResponse) -> Sequence[FollowPart]:
        """Return what a message tells.

        Raises:
            SessionError: `protocol`.
            LimitError: `max_files`: the daemon does not end to begin files.
        """
        match message.WhichOneof("part"):
            case "begin":
                return (self._begin(message.begin),)
            case "data":
                return self._data(message.data)
            case "mark":
                return (self._mark(message.mark.number, message.mark.size, message.mark.sha256),)
            case "beat":
                return (FollowBeat(),)
            case _:
                raise SessionError("protocol", "the daemon sent an unknown part of followed files")

    def _begin(self, begin: transcript_pb2.FollowBegin) -> FollowBegin:
        path = reply.relative_path(begin.path)
        if begin.number <= self._last_number:
            raise SessionError("protocol", f"the daemon's file {begin.number} comes after {self._last_number}")
        asked = (
            item for item, name in self._patterns if path.is_relative_to(item.directory) and name.fullmatch(path.name)
        )
        first = next(asked, None)
        if first is None:
            raise SessionError("protocol", f"the daemon follows '{printable(begin.path)}', which was not asked for")
        # What is held counts once: a file that begins again does so because its content is another.
        possible = {0, self._held_sizes.pop(begin.path, 0)}
        if begin.offset not in possible:
            raise SessionError("protocol", f"the daemon begins '{printable(begin.path)}' at {begin.offset}")
        self._last_number = begin.number
        self._files.pop(self._numbers.get(begin.path, 0), None)
        if len(self._files) >= reply.MAX_LISTED_COUNT:
            raise LimitError("max_files", f"the daemon follows more than {reply.MAX_LISTED_COUNT} files")
        payload = PayloadCheck()
        payload.size = begin.offset
        self._files[begin.number] = _Arriving(begin.path, payload, first.whole_lines)
        self._numbers[begin.path] = begin.number
        return FollowBegin(begin.number, path, begin.offset)

    def _data(self, message: transcript_pb2.FollowData) -> Sequence[FollowData | FollowMark]:
        file = self._file(message.number)
        file.payload.note(message.offset, len(message.data))
        file.ends_line = message.data.endswith(b"\n")
        data = FollowData(message.number, message.offset, message.data)
        if not message.mark_sha256:
            return (data,)
        return data, self._mark(message.number, file.payload.size, message.mark_sha256)

    def _mark(self, number: int, size: int, sha256: bytes) -> FollowMark:
        file = self._file(number)
        if size != file.payload.size:
            raise SessionError(
                "protocol", f"the daemon marks '{printable(file.path)}' at {size}, it is at {file.payload.size}"
            )
        if file.whole_lines and not file.ends_line:
            raise SessionError("protocol", f"the daemon marks '{printable(file.path)}' in the middle of a line")
        return FollowMark(number, size, reply.digest(sha256))

    def _file(self, number: int) -> _Arriving:
        file = self._files.get(number)
        if file is None:
            raise SessionError("protocol", f"the daemon's file {number} has not begun, or has begun again since")
        return file
