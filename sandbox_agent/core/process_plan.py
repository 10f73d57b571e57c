"""What a client asks to be run, checked, and the environment it gets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox_api.errors import ConfigurationError
from sandbox_api.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIN_KEEP_BYTES, KEEP_BYTES, MAX_KEEP_BYTES = 64 << 10, 64 * MIB, 1 << 30
MAX_INPUT_BYTES = MIB
MAX_SIZE_CELLS = 65_535
MAX_SECONDS = 10.0 * 365 * 86_400
"""Longest time that is told apart from never."""

MARK = b"OUTPOST_PROCESS"
"""Variable by which the processes of a daemon are known again, whatever group or session they have gone to."""

_SECRETS = (b"OUTPOST_TOKEN", b"OUTPOST_ARCHIVE_KEY", b"LISTEN_", b"NOTIFY_SOCKET")
"""Beginnings of variables that are between the daemon and who started it, or of secrets that are none of theirs."""
_OWN = (b"GRPC_VERBOSITY", b"OUTPOST_PROCESS")


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a terminal, in character cells."""

    rows: int
    columns: int

    def check(self) -> Size:
        """Return this size.

        Raises:
            ConfigurationError: `invalid_argument`.
        """
        if not (0 < self.rows <= MAX_SIZE_CELLS and 0 < self.columns <= MAX_SIZE_CELLS):
            raise ConfigurationError("invalid_argument", f"a terminal cannot have {self.rows} x {self.columns} cells")
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """One process to be started.

    Attributes:
        argv: Program and arguments.
        cwd: Absolute path of the working directory; empty: the workspace.
        variables: What its environment has over the daemon's own.
        input: What it reads first.
        open_input: Whether more input may follow.
        terminal: Size of the terminal it runs on; None: it has none.
        deadline_seconds: After which it is ended; 0: never.
        idle_seconds: Silence after which it is ended; 0: never.
        grace_seconds: From TERM to KILL.
        max_output_bytes: Output after which it is ended; 0: no limit.
        keep_bytes: Window of each stream.
        hold_seconds: How long a full window waits for a reader.
    """

    argv: Sequence[bytes]
    cwd: bytes = b""
    variables: Mapping[bytes, bytes] = field(default_factory=dict)
    input: bytes = b""
    open_input: bool = False
    terminal: Size | None = None
    deadline_seconds: float = 0.0
    idle_seconds: float = 0.0
    grace_seconds: float = 0.0
    max_output_bytes: int = 0
    keep_bytes: int = KEEP_BYTES
    hold_seconds: float = 0.0

    def check(self) -> Plan:
        """Return this plan.

        Raises:
            ConfigurationError: `invalid_argument`.
        """
        if not self.argv or not self.argv[0] or any(b"\0" in word for word in self.argv):
            raise ConfigurationError("invalid_argument", "a process needs a program, and arguments without NUL")
        check_variables(self.variables)
        for name in ("deadline_seconds", "idle_seconds", "grace_seconds", "hold_seconds"):
            check_seconds(name, getattr(self, name))
        if len(self.input) > MAX_INPUT_BYTES:
            raise ConfigurationError("invalid_argument", f"input of {len(self.input)} bytes does not fit one message")
        if not MIN_KEEP_BYTES <= self.keep_bytes <= MAX_KEEP_BYTES:
            raise ConfigurationError("invalid_argument", f"a window cannot have {self.keep_bytes} bytes")
        if self.terminal is not None:
            self.terminal.check()
        return self


def check_variables(variables: Mapping[bytes, bytes]) -> None:
    """Refuse what no environment can hold; values are not told.

    Raises:
        ConfigurationError: `invalid_argument`.
    """
    for name, value in variables.items():
        if not name or b"=" in name or b"\0" in name or b"\0" in value:
            raise ConfigurationError("invalid_argument", "a variable has no usable name, or a NUL in its value")


def check_seconds(name: str, seconds: float) -> float:
    """Return a time.

    Raises:
        ConfigurationError: `invalid_argument`: negative, or no number.
    """
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_SECONDS):
        raise ConfigurationError("invalid_argument", f"{name} cannot be {seconds}")
    return seconds


def environment_of(own: Mapping[bytes, bytes], home: bytes, variables: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the environment of a process: the daemon's own without its secrets, the agent home, and the variables.

    Args:
        own: Environment of the daemon.
        home: The agent home.
        variables: They win.
    """
    kept = {name: value for name, value in own.items() if not name.startswith(_SECRETS) and name not in _OWN}
    return {**kept, b"HOME": home, **variables}
