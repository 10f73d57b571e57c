"""The files of a folder as a layout asks for them, read in the simplest way."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class HostTree:
    """A `ConversationFiles` for folders of the tests' own."""

    home: Path

    async def find(
        self, directory: PurePosixPath, pattern: str = "*", *, contains: bytes = b""
    ) -> Sequence[PurePosixPath]:
        """Walk the folder."""
        return [
            PurePosixPath(path.relative_to(self.home))
            for path in sorted((self.home / directory).rglob("*"))
            if path.is_file() and fnmatch.fnmatchcase(path.name, pattern) and contains in path.read_bytes()
        ]

    async def exists(self, path: PurePosixPath) -> bool:
        """Look."""
        return (self.home / path).is_file()

    async def first_line(self, path: PurePosixPath) -> bytes:
        """Read; nothing here is compressed."""
        return (self.home / path).read_bytes().partition(b"\n")[0]
