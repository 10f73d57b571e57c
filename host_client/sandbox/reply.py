"""Check what a daemon answers, field by field, before it becomes a value of ours.

A daemon may be replaced by whatever runs in its sandbox: nothing it says is trusted. Texts are bounded and made
printable, paths are absolute and without relative steps, times are possible. All refusals are `session`/`protocol`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from host_client.errors import LimitError, OutpostError, SessionError, printable
from sandbox_api.limits import MAX_PATH_BYTES
from sandbox_api.manifest import DIGEST_BYTES
from sandbox_api.names import CONVERSATION_ID, PROCESS_ID, path_problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from google.protobuf.timestamp_pb2 import Timestamp

    from host_client.sandbox.connection import Stream

R = TypeVar("R", bound=Message)

MAX_TEXT_CHARS = 1024
MAX_LISTED_COUNT = 100_000
"""Most items of a list that a daemon streams."""

MAX_NAMED_COUNT = 100
"""Most paths of a list of which only the first are named."""


def sandbox_path(data: bytes, what: str) -> PurePosixPath:
    """Return an absolute path; bytes that are not UTF-8 are kept as surrogate escapes."""
    segments = data.split(b"/")
    is_absolute = data.startswith(b"/") and len(data) <= MAX_PATH_BYTES
    if not is_absolute or b"\0" in data or {b".", b".."} & set(segments):
        raise SessionError("protocol", f"the daemon's {what} '{printable(data[:200])}' is no absolute path")
    return PurePosixPath(data.decode("utf-8", "surrogateescape"))


def relative_path(data: bytes) -> PurePosixPath:
    """Return a path below a home that keeps the rules of paths in a manifest."""
    if problem := path_problem(data):
        raise SessionError("protocol", f"the daemon's path '{printable(data[:200])}' {problem}")
    return PurePosixPath(data.decode())


def relative_paths(items: Sequence[bytes]) -> tuple[PurePosixPath, ...]:
    """Return the paths of a list of which a daemon names the first hundred, each once."""
    if len(items) > MAX_NAMED_COUNT or len(set(items)) < len(items):
        raise SessionError("protocol", f"the daemon names the same path twice or more than {MAX_NAMED_COUNT} paths")
    return tuple(map(relative_path, items))


def printable_path(data: bytes) -> str:
    """Return a path for people."""
    return printable(data[:MAX_PATH_BYTES])


async def listed(stream: Stream[R], *, more_seconds: float = 0.0) -> AsyncIterator[R]:
    """Yield the items of a streamed list.

    Args:
        stream: The call.
        more_seconds: As for `Stream.read`.

    Raises:
        LimitError: `max_files`: the list does not end.
    """
    count = 0
    while (item := await stream.read(more_seconds=more_seconds)) is not None:
        count += 1
        if count > MAX_LISTED_COUNT:
            raise LimitError("max_files", f"the daemon lists more than {MAX_LISTED_COUNT} items")
        yield item


def text(value: str) -> str:
    """Return a text of the daemon for people: one line, printable, bounded."""
    return printable(value[:MAX_TEXT_CHARS])


def conversation_id(value: str) -> str:
    """Return a conversation id that keeps the id rule."""
    if not CONVERSATION_ID.fullmatch(value):
        raise SessionError("protocol", f"the daemon's id '{printable(value[:140])}' is no conversation id")
    return value


def process_id(value: str) -> str:
    """Return the id of a process."""
    if not PROCESS_ID.fullmatch(value):
        raise SessionError("protocol", f"the daemon's id '{printable(value[:140])}' is no process id")
    return value


def name(value: str) -> str:
    """Return a plain file name, such as a recovery entry's."""
    if not value or len(value) > MAX_TEXT_CHARS or value in (".", "..") or "/" in value or not value.isprintable():
        raise SessionError("protocol", f"the daemon's name '{printable(value[:140])}' is no plain name")
    return value


def recovery_name(value: str, of_conversation: str) -> str:
    """Return the name of a recovery entry of a conversation: the id, "-" and more."""
    if not name(value).startswith(f"{of_conversation}-"):
        raise SessionError("protocol", f"the daemon's recovery entry '{value[:200]}' is not of {of_conversation}")
    return value


def digest(data: bytes) -> bytes:
    """Return a SHA-256."""
    if len(data) != DIGEST_BYTES:
        raise SessionError("protocol", f"the daemon's digest has {len(data)} bytes instead of {DIGEST_BYTES}")
    return data


def moment(value: Timestamp) -> datetime:
    """Return a time in UTC."""
    try:
        return value.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise SessionError("protocol", "the daemon told a time that cannot be") from None


def failure(error: OutpostError) -> OutpostError:
    """Return a failure the daemon reported with texts that are safe to print."""
    error.message = text(error.message)
    error.args = (error.message,)
    error.hint = text(error.hint)
    error.facts = {text(key): text(value) for key, value in error.facts.items()}
    error.offenders = tuple(type(item)(text(item.path), text(item.problem)) for item in error.offenders)
    return error
