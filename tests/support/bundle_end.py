"""The two ends of a bundle in memory, a sink that checks what a real one checks and a source; and sessions on disk."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING

from sandbox_api.errors import SessionError
from sandbox_api.manifest import Entry
from sandbox_api.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path, PurePosixPath

PROFILE = Profile(
    format="plain",
    root_variable="",
    root_directory=".plain",
    sessions="sessions",
    buckets=False,
    include=re.compile(""),
    exclude=None,
    required=("a",),
    relocated=(),
    validate="",
    bucket="",
    relocate="",
    lock=None,
)


class MemorySink:
    """Keeps a capture in memory.

    Attributes:
        calls: Names of the methods that ran, in order.
        contents: Content by path, once verified.
    """

    def __init__(self, held: Mapping[bytes, bytes] | None = None) -> None:
        self.held = dict(held or {})
        self.calls: list[str] = []
        self.contents: dict[bytes, bytes] = {}
        self.source: PurePosixPath | None = None
        self._entries: Sequence[Entry] = ()
        self._parts: dict[int, bytearray] = {}

    @property
    def aborted(self) -> bool:
        """Whether the last thing it was told is to abort, and only once."""
        return self.calls.count("abort") == 1 and self.calls[-1] == "abort"

    def begin(self, source: PurePosixPath, entries: Sequence[Entry]) -> None:
        """Take the manifest."""
        self.calls.append("begin")
        self.source, self._entries = source, entries
        for entry in entries:
            if entry.sha256:
                self.contents[entry.path] = self.held[entry.path]

    def whole(self, index: int, content: memoryview, sha256: bytes) -> None:
        """Take and check a file."""
        if content:
            self.data(index, content)
        self.end(index, sha256)

    def data(self, index: int, piece: memoryview) -> None:
        """Take a part of a file."""
        self.calls.append("data")
        self._part(index).extend(piece)

    def end(self, index: int, sha256: bytes) -> None:
        """Check a file."""
        self.calls.append("end")
        content = bytes(self._part(index))
        if hashlib.sha256(content).digest() != sha256:
            raise SessionError("digest_mismatch", "the content is not what was promised")
        self.contents[self._entries[index].path] = content

    def abort(self) -> None:
        """Forget everything."""
        self.calls.append("abort")
        self.contents.clear()

    def _part(self, index: int) -> bytearray:
        entry = self._entries[index]
        start = self.held[entry.path][: entry.from_offset] if entry.from_offset else b""
        return self._parts.setdefault(index, bytearray(start))


class MemorySource:
    """Gives a bundle from memory.

    Args:
        contents: Content by path.
        promised: Content the manifest is made of, where that is another.
    """

    def __init__(self, contents: Mapping[bytes, bytes], promised: Mapping[bytes, bytes] | None = None) -> None:
        self._contents = dict(contents)
        self.entries = entries_of(promised or contents)

    def pieces(self, index: int, room: Callable[[], int]) -> Iterator[bytes]:
        """Yield the content of a file."""
        content = self._contents[self.entries[index].path]
        start = 0
        while start < len(content):
            piece = content[start : start + room()]
            start += len(piece)
            yield piece


def entries_of(contents: Mapping[bytes, bytes]) -> list[Entry]:
    """Return the manifest of contents, complete."""
    return [Entry(path, len(content), hashlib.sha256(content).digest()) for path, content in sorted(contents.items())]


def write_session(home: Path, contents: dict[bytes, bytes], name: str = "S1") -> Path:
    """Write a session of the plain format and return its directory."""
    session = home / ".plain" / "sessions" / name
    for path, content in contents.items():
        file = session / os.fsdecode(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return session


def read_session(home: Path, name: str = "S1") -> dict[bytes, bytes]:
    """Return the files of a session."""
    session = home / ".plain" / "sessions" / name
    return {os.fsencode(path.relative_to(session)): path.read_bytes() for path in session.rglob("*") if path.is_file()}
