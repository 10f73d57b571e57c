"""Where an object of a key lies, in a directory or in a bucket.

The one rule: no object's path is the folder of another, so that `a/b` and `a/b/c` both have room, also in object
stores that keep files. A segment that is followed by another is a folder of its name; the last one ends with `!`,
which no segment has. What is too long for a file's name goes on one folder deeper: `!!` ends what is continued.
"""

from __future__ import annotations

from typing import Final

from host_client.errors import ConfigurationError
from host_client.transports.contract import check_key

_MARK: Final = "!"
_CONTINUED: Final = "!!"
_PIECE_CHARACTERS_COUNT: Final = 200


def folders_of(key: str) -> tuple[str, ...]:
    """Return the folders that lead to what is below a key; none for the empty one."""
    return tuple(name for segment in key.split("/") for name in _pieces(segment)) if key else ()


def path_of(key: str) -> tuple[str, ...]:
    """Return the folders and, last, the name of the object of a key."""
    *folders, last = folders_of(key)
    return (*folders, last + _MARK)


def key_of(path: tuple[str, ...]) -> str | None:
    """Return the key of the object at a path; None when no object of a transport is there."""
    parts = [name.removesuffix(_CONTINUED) if name.endswith(_CONTINUED) else f"{name}/" for name in path]
    key = "".join(parts).removesuffix(f"{_MARK}/")
    try:
        return key if path_of(check_key(key)) == path else None
    except ConfigurationError:
        return None


def _pieces(segment: str) -> list[str]:
    count = _PIECE_CHARACTERS_COUNT
    *continued, last = [segment[at : at + count] for at in range(0, len(segment), count)]
    return [*(piece + _CONTINUED for piece in continued), last]
