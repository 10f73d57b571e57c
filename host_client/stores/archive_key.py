"""The key of an encrypted archive: where it comes from, and what is derived from it.

The one rule: the key itself encrypts nothing and is shown nowhere; names, contents and its id have keys of their own.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import stat
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Self

from host_client.errors import ConfigurationError, WorkspaceError, printable
from host_client.session.failure import host_failures

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY_BYTES = 32
KEY_ID_BYTES = 8

_MAX_TEXT_BYTES = 1024


@dataclass(frozen=True)
class ArchiveKey:
    """The secret of an archive's namespace: whoever has it reads and writes everything there.

    There is no way back to what was encrypted when it is lost.

    Attributes:
        secret: 32 random bytes.

    Raises:
        ConfigurationError: `invalid_argument`: not 32 bytes.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise ConfigurationError(
                "invalid_argument",
                f"an archive's key does not have {KEY_BYTES} bytes",
                hint="make one with ArchiveKey.generate(), or `head -c 32 /dev/urandom | base64`",
            )

    @classmethod
    def generate(cls) -> Self:
        """Make a new key."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the key that a text says in base64; white space around it does not count.

        Raises:
            ConfigurationError: `invalid_argument`.
        """
        try:
            secret = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            secret = b""
        return cls(secret)

    @classmethod
    def from_file(cls, host_path: Path) -> Self:
        """Read a key from a file that holds its text; blocks.

        As with the keys of other programs, nobody but its owner may read the file; of one that belongs to root, the
        group may as well, as where an orchestrator puts secrets in place.

        Raises:
            ConfigurationError: `invalid_argument`: it holds no key.
            WorkspaceError: `access`: others may read the file, or we may not; `not_found`, `not_a_file`.
        """
        with host_failures(host_path), open(host_path, "rb", opener=_opened) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise WorkspaceError("not_a_file", f"no regular file is at {printable(str(host_path))}")
            if status.st_mode & (0o037 if status.st_uid == 0 else 0o077):
                raise WorkspaceError(
                    "access",
                    f"others may read the key in {printable(str(host_path))}",
                    hint="chmod 600 it, and make a new key if others may have read it",
                )
            return cls.from_text(file.read(_MAX_TEXT_BYTES).decode("ascii", "replace"))

    @classmethod
    def from_environment(cls, name: str = "OUTPOST_ARCHIVE_KEY") -> Self:
        """Read a key from a variable that holds its text.

        Raises:
            ConfigurationError: `invalid_argument`: it is not set, or holds no key.
        """
        text = os.environ.get(name)
        if text is None:
            raise ConfigurationError(
                "invalid_argument",
                f"the variable {printable(name)} with the archive's key is not set",
                hint="set it to 32 bytes in base64",
            )
        return cls.from_text(text)

    @property
    def text(self) -> str:
        """The key in base64, to be kept in a safe place."""
        return base64.b64encode(self.secret).decode()

    @cached_property
    def key_id(self) -> bytes:
        """What tells this key from others; tells nothing of the key itself."""
        return self._derived("id", KEY_ID_BYTES)

    @cached_property
    def name_key(self) -> bytes:
        """The key that names of objects are made with."""
        return self._derived("names", KEY_BYTES)

    @cached_property
    def content_key(self) -> bytes:
        """The key that contents are encrypted with."""
        return self._derived("contents", KEY_BYTES)

    def _derived(self, purpose: str, size: int) -> bytes:
        # Only archives with a key pay for loading these.
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415 - as above

        info = f"outpost archive {purpose} v1".encode()
        return HKDF(SHA256(), size, salt=None, info=info).derive(self.secret)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)  # not to wait for who writes to a pipe


def archive_key(given: ArchiveKey | Callable[[], bytes] | None) -> ArchiveKey | None:
    """Return the key that a caller gave: itself, or a function that has its bytes from elsewhere and may block.

    Raises:
        ConfigurationError: `invalid_argument`: the function did not return 32 bytes.
    """
    return given if given is None or isinstance(given, ArchiveKey) else ArchiveKey(given())
