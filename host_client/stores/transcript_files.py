"""The files of a sandbox below the home of a layout, as a layout asks for them."""

from __future__ import annotations

import re
from fnmatch import translate
from typing import TYPE_CHECKING, TypeAlias

from host_client.errors import SessionError, WorkspaceError, printable
from host_client.sandbox.reply import MAX_LISTED_COUNT
from host_client.session.compression import Decompressor, is_compressed
from host_client.stores.transcript_home import FIRST_LINE_BYTES
from host_client.stores.transcript_member import is_own

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import PurePosixPath

    from host_client.sandbox.file import FileInfo, Files
    from host_client.stores.transcript_member import Members

_HEAD_BYTES = 32 << 10
"""Enough for the first line of most transcripts: that of Codex 0.171.0 has about 20 KiB."""
_MAX_REMEMBERED_BYTES = 16 << 20

Version: TypeAlias = "tuple[int, datetime] | None"
"""Size and modification time of a file; None: not known."""


class SandboxFiles:
    """The `ConversationFiles` of a sandbox.

    What was found and read is remembered, since a layout and the capture ask for the same.

    Args:
        files: The sandbox's files.
        home: The home of the layout there.

    Attributes:
        sizes: Sizes in bytes of the files found so far, by path.
        modified: Their modification times.
        received_bytes: What was read so far.
    """

    def __init__(self, files: Files, home: PurePosixPath) -> None:
        self._files = files
        self._home = home
        self._first_lines: dict[PurePosixPath, bytes] = {}
        self._remembered_bytes = 0
        self.sizes: dict[PurePosixPath, int] = {}
        self.modified: dict[PurePosixPath, datetime] = {}
        self.received_bytes = 0

    async def find(
        self, directory: PurePosixPath, pattern: str = "*", *, contains: bytes = b""
    ) -> Sequence[PurePosixPath]:
        """Return files; see `ConversationFiles`.

        Raises:
            SessionError: `protocol`: the daemon found files where it did not look.
            LimitError: `max_files`, `max_depth`.
            WorkspaceError: `unsafe_path`, `access`.
        """
        found = []
        async for path, info in found_below(self._files, self._home, self._home / directory, pattern, contains):
            self._note(path, info)
            found.append(path)
        return sorted(found)

    async def exists(self, path: PurePosixPath) -> bool:
        """Tell whether a regular file is there; see `ConversationFiles`."""
        try:
            info = await self._files.stat(self._home / path)
        except WorkspaceError as error:
            if error.reason != "not_found":
                raise
            return False
        self._note(path, info)
        return info.kind == "file"

    async def first_line(self, path: PurePosixPath) -> bytes:
        """Return the first line; see `ConversationFiles`.

        Raises:
            WorkspaceError: `not_found`, `not_a_file`, `changed`.
            SessionError: `corrupt`: a compressed file is damaged.
        """
        if path in self._first_lines:
            return self._first_lines[path]
        for max_bytes in (_HEAD_BYTES, FIRST_LINE_BYTES):
            head = await self._files.head(self._home / path, max_bytes)
            self.received_bytes += len(head)
            text = _unpacked(head) if is_compressed(path) else head
            line, newline, _ = text[:FIRST_LINE_BYTES].partition(b"\n")
            if newline or len(head) < max_bytes or len(text) >= FIRST_LINE_BYTES:
                break
        if self._remembered_bytes + len(line) <= _MAX_REMEMBERED_BYTES:
            self._first_lines[path] = line
            self._remembered_bytes += len(line)
        return line

    def _note(self, path: PurePosixPath, info: FileInfo) -> None:
        self.sizes[path] = info.size
        self.modified[path] = info.modified


async def found_below(
    files: Files, home: PurePosixPath, root: PurePosixPath, pattern: str, contains: bytes = b""
) -> AsyncIterator[tuple[PurePosixPath, FileInfo]]:
    """Yield what a sandbox has below a directory of a home, by its path below the home.

    What lies in a recovery or staging folder is passed over.

    Raises:
        SessionError: `protocol`: the daemon found files where it did not look, or of other names.
        LimitError: `max_files`, `max_depth`.
    """
    matches = re.compile(translate(pattern)).match
    async for info in files.find(root, pattern, max_files=MAX_LISTED_COUNT, contains=contains):
        if not info.path.is_relative_to(root) or info.path == root:
            raise SessionError("protocol", f"the daemon found {printable(str(info.path))} where it did not look")
        if not matches(info.path.name):
            raise SessionError("protocol", f"the daemon found {printable(str(info.path))}, which was not asked for")
        path = info.path.relative_to(home)
        if not is_own(path):
            yield path, info


def versions(named: Members, files: SandboxFiles) -> Mapping[PurePosixPath, Version]:
    """Return what the files of a conversation beside its main transcript looked like when they were found."""

    def version(path: PurePosixPath) -> Version:
        return (files.sizes[path], files.modified[path]) if path in files.sizes else None

    return {member.path: version(member.path) for member in named.related}


def _unpacked(head: bytes) -> bytes:
    """Unpack the beginning of a compressed file, as far as a first line may reach."""
    text = bytearray()
    for piece in Decompressor().feed(head):
        text += piece
        if b"\n" in piece or len(text) >= FIRST_LINE_BYTES:
            break
    return bytes(text)
