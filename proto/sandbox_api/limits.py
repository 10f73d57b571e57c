"""Default limits, one definition for both halves.

Each side enforces the smaller of its own limit and the other's wish; both can be raised.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandbox_api.errors import ConfigurationError, LimitError

MIB = 1 << 20

CHUNK_BYTES = MIB
"""Payload carried by one message: many small files share it, a large file fills several."""

MAX_MESSAGE_BYTES = 4 * MIB
"""Largest message either side accepts; a chunk and a message of known files stay well below."""

MAX_METADATA_BYTES = 16 << 10
"""Trailing metadata of a call; error details are cut to fit (`wire.pack`)."""

MAX_MANIFEST_ENTRY_BYTES = 4096 + 128
"""Upper bound of one serialized manifest entry: the longest path and its numbers."""

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255
MAX_DEPTH_COUNT = 64
"""Directories below a session directory."""

MAX_FILES_COUNT = 65_536
"""Files of a conversation that lie among those of others, and files that a search may tell or a call may follow; one
bundle may have fewer."""

HOOK_SECONDS = 10.0
HOOK_MEMORY_BYTES = 512 * MIB


@dataclass(frozen=True, slots=True)
class Limits:
    """What one bundle may hold.

    Attributes:
        max_bytes: Sum of the file sizes, in bytes.
        max_files: Number of files.

    Raises:
        ConfigurationError: `invalid_argument`: a number that is not positive or has more than 64 bits.
    """

    max_bytes: int = 64 * MIB
    max_files: int = 4096

    def __post_init__(self) -> None:
        for name, value in (("max_bytes", self.max_bytes), ("max_files", self.max_files)):
            if not 0 < value < 1 << 64:
                raise ConfigurationError(
                    "invalid_argument", f"{name} cannot be {value}", hint="give a number of 64 bits"
                )

    def smaller(self, other: Limits) -> Limits:
        """Return the stricter of both in each number."""
        return Limits(min(self.max_bytes, other.max_bytes), min(self.max_files, other.max_files))

    @property
    def max_manifest_bytes(self) -> int:
        """Largest serialized manifest that `max_files` entries can need."""
        return self.max_files * MAX_MANIFEST_ENTRY_BYTES

    @property
    def max_found_count(self) -> int:
        """Most files of a home that a search tells, or that are followed: it has more files than one bundle."""
        return max(self.max_files, MAX_FILES_COUNT)

    def check(self, *, bytes_count: int, files_count: int) -> None:
        """Refuse a bundle of that size.

        Raises:
            LimitError: `max_bytes` or `max_files`.
        """
        if files_count > self.max_files:
            raise LimitError(
                "max_files",
                f"the session has more than {self.max_files} files",
                hint="raise max_files on both sides, or narrow the profile",
                facts={"max_files": str(self.max_files)},
            )
        if bytes_count > self.max_bytes:
            raise LimitError(
                "max_bytes",
                f"the session has more than {self.max_bytes} bytes",
                hint="raise max_bytes on both sides, or narrow the profile",
                facts={"max_bytes": str(self.max_bytes)},
            )
