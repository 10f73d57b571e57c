"""Files by which a running CLI shows that it has a conversation open: what to look for, one rule for both halves."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandbox_api.errors import ConfigurationError, printable
from sandbox_api.names import path_problem

HEAD_BYTES = 64 << 10
"""How much of a file is looked at for `contains`."""

MAX_SIGNS_COUNT = 64
_MAX_PATTERN_LENGTH = 1000
_ATOM = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""What stands for one character, so that a parenthesis in it is none."""

_REPEATED_GROUP = re.compile(r"\)\s*[*+{]")


@dataclass(frozen=True, slots=True)
class LockSign:
    """One kind of such files.

    Attributes:
        directory: Folder below the CLI home that they lie in directly.
        pattern: Regular expression searched in their names. It repeats no group, since a name that a sandbox chose
            could then keep the search busy for hours. The process of its named group `pid` must run, and have run
            when the file was written; without that group some process must hold an exclusive lock on the file.
        contains: The file must have this in its first 64 KiB; empty: anything.

    Raises:
        ConfigurationError: `invalid_argument`.
    """

    directory: str
    pattern: str
    contains: bytes = b""

    def __post_init__(self) -> None:
        if problem := path_problem(self.directory.encode("utf-8", "surrogateescape")):
            raise _refusal(f"the folder '{printable(self.directory)}' {problem}")
        try:
            re.compile(self.pattern)
        except (re.error, OverflowError, RecursionError):
            raise _refusal(f"'{printable(self.pattern)[:200]}' is no regular expression") from None
        if len(self.pattern) > _MAX_PATTERN_LENGTH or _REPEATED_GROUP.search(_ATOM.sub("x", self.pattern)):
            raise _refusal(f"'{printable(self.pattern)[:200]}' repeats a group, or is too long")
        if len(self.contains) > HEAD_BYTES:
            raise _refusal("the content looked for is larger than what is looked at")


def _refusal(problem: str) -> ConfigurationError:
    return ConfigurationError(
        "invalid_argument", f"a sign of an open conversation is wrong: {problem}", hint="see LockSign"
    )
