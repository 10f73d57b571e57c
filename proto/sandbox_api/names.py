"""Rules for conversation ids, format names and paths inside a bundle; one definition for both halves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sandbox_api.errors import ConfigurationError, printable
from sandbox_api.limits import MAX_DEPTH_COUNT, MAX_NAME_BYTES, MAX_PATH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

CONVERSATION_ID = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)
PROCESS_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
RESTORE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
KEY_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}", re.ASCII)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

# Most paths are of this kind, which breaks no rule; what is not, is looked at segment by segment.
_ORDINARY_PATH = re.compile(rb"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}+(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}+){0,63}")

STAGING_PREFIX = ".outpost-session-"
RECOVERY_DIRECTORY = ".outpost-recovery"


def check_conversation_id(conversation_id: str) -> str:
    """Return the id unchanged, or refuse it before any path is built from it.

    Raises:
        ConfigurationError: `invalid_id`.
    """
    return _checked_id(conversation_id, CONVERSATION_ID, "conversation", 128)


def check_process_id(process_id: str) -> str:
    """Return the id unchanged, or refuse it.

    Raises:
        ConfigurationError: `invalid_id`.
    """
    return _checked_id(process_id, PROCESS_ID, "process", 64)


def check_restore_id(restore_id: str) -> str:
    """Return the id unchanged, or refuse it. Empty: there is none.

    Raises:
        ConfigurationError: `invalid_id`.
    """
    return _checked_id(restore_id, RESTORE_ID, "restore", 64) if restore_id else restore_id


def check_format(name: str) -> str:
    """Return the format name unchanged, or refuse it.

    Raises:
        ConfigurationError: `invalid_profile`.
    """
    if not KEY_SEGMENT.fullmatch(name):
        raise ConfigurationError(
            "invalid_profile",
            f"'{printable(name[:140])}' is not a format name",
            hint="1 to 128 letters, digits, '_', '-' or '.', not starting with '.'",
        )
    return name


def name_problem(name: bytes) -> str | None:
    """Tell why one path segment cannot be part of a bundle, or None when it can."""
    if name in (b"", b".", b".."):
        return "empty or a relative step"
    if name.lower() == b".git":
        return "is a git directory name"
    if b"\\" in name or b"\0" in name or b"/" in name:
        return "has a backslash, a slash or a NUL"
    if len(name) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        return "is not UTF-8"
    return None


def path_problem(path: bytes) -> str | None:
    """Tell why a session-relative path cannot be part of a bundle, or None when it can."""
    if len(path) > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    if _ORDINARY_PATH.fullmatch(path):
        return None
    segments = path.split(b"/")
    if len(segments) > MAX_DEPTH_COUNT:
        return f"is nested deeper than {MAX_DEPTH_COUNT}"
    for segment in segments:
        if problem := name_problem(segment):
            return problem
    return None


def order_problem(paths: Iterable[bytes]) -> tuple[bytes, str] | None:
    """Find the first path that breaks the order of a manifest.

    Paths are strictly increasing as bytes, hence without duplicates, and none is a file and a directory at once.
    """
    previous = b""
    checked = b""
    files: set[bytes] = set()
    for path in paths:
        if path <= previous:
            return path, "is a duplicate or out of order"
        parent = path[: max(0, path.rfind(b"/"))]
        # A directory's files come after any file of its name, so that one look at each run of neighbours is enough.
        if parent != checked:
            checked = parent
            while parent:
                if parent in files:
                    return path, "lies below a file of the same manifest"
                parent = parent[: max(0, parent.rfind(b"/"))]
        files.add(path)
        previous = path
    return None


def _checked_id(identifier: str, pattern: re.Pattern[str], what: str, max_chars: int) -> str:
    if not pattern.fullmatch(identifier):
        raise ConfigurationError(
            "invalid_id",
            f"'{printable(identifier[:140])}' is not a {what} id",
            hint=f"an id has 1 to {max_chars} letters, digits, '_' or '-'",
        )
    return identifier
