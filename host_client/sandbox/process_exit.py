"""How a process ended, what it printed, and what a daemon tells of it: the values, checked.

The one rule: an end is a value, also a bad one. It becomes an exception only where somebody asks for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from host_client.errors import DeadlineError, LimitError, ProcessError, SessionError, UnavailableError, printable
from host_client.sandbox import reply
from sandbox_api.v1 import process_pb2

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Self

    from host_client.errors import OutpostError

Cause = Literal["itself", "signal", "deadline", "idle", "output", "shutdown"]

_CAUSES: dict[int, Cause] = {
    process_pb2.ProcessExit.CAUSE_ITSELF: "itself",
    process_pb2.ProcessExit.CAUSE_SIGNAL: "signal",
    process_pb2.ProcessExit.CAUSE_DEADLINE: "deadline",
    process_pb2.ProcessExit.CAUSE_IDLE: "idle",
    process_pb2.ProcessExit.CAUSE_OUTPUT: "output",
    process_pb2.ProcessExit.CAUSE_SHUTDOWN: "shutdown",
}

_MAX_STATUS, _MAX_SIGNAL = 255, 64
_SHELL_SIGNAL_STATUS = 128
_TAIL_BYTES = 2048
"""How much of standard error a failure tells."""


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of what a process printed.

    Attributes:
        stream: `stdout` or `stderr`; of a process on a terminal all is `stdout`.
        offset: Where in all of that stream it begins, in bytes.
        data: The bytes; never empty.
    """

    stream: Literal["stdout", "stderr"]
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended.

    Attributes:
        status: Exit status of a process that ended by itself.
        signal: Number of the signal that ended it; 0: it ended by itself.
        cause: Why: `itself` (or somebody else in the sandbox), `signal` (one that was asked for), `deadline`, `idle`,
            `output` (it printed more than it may) or `shutdown` (of the daemon).
        duration_seconds: From its start.
        stdout_bytes: All that it printed.
        stderr_bytes: The same of standard error.
    """

    status: int
    signal: int
    cause: Cause
    duration_seconds: float
    stdout_bytes: int
    stderr_bytes: int

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with status 0."""
        return not self.status and not self.signal and self.cause == "itself"

    @property
    def shell_status(self) -> int:
        """The status that a shell would tell: 128 and the signal's number for an end by a signal."""
        return _SHELL_SIGNAL_STATUS + self.signal if self.signal else self.status

    def failure(self, what: str) -> OutpostError | None:
        """Return what a bad end is as an exception; None for a good one.

        Args:
            what: Names the process in the message, such as `git`. Never its arguments: they may hold secrets.
        """
        facts = {"status": str(self.status), "signal": str(self.signal), "cause": self.cause}
        after = f"after {self.duration_seconds:.1f} s"
        match self.cause:
            case "deadline":
                return DeadlineError("deadline", f"{what} was ended at its deadline, {after}", facts=facts)
            case "idle":
                return DeadlineError("idle", f"{what} was ended because it printed nothing, {after}", facts=facts)
            case "output":
                return LimitError("max_output_bytes", f"{what} was ended because it printed too much", facts=facts)
            case "shutdown":
                return UnavailableError("unreachable", f"{what} was ended with its daemon, {after}", facts=facts)
        if self.ok:
            return None
        how = f"by signal {self.signal}" if self.signal else f"with status {self.status}"
        return ProcessError("failed", f"{what} ended {how}", facts=facts)


@dataclass(frozen=True, slots=True)
class Completed:
    """A process that is over, with all it printed.

    Attributes:
        program: The name of its program.
        exit: How it ended.
        stdout: Its standard output.
        stderr: Its standard error.
    """

    program: str
    exit: Exit
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with status 0."""
        return self.exit.ok

    def check(self) -> Self:
        """Return this when the process ended well.

        Raises:
            ProcessError: `failed`; the fact `stderr` has the end of what it said.
            DeadlineError: `deadline`, `idle`.
            LimitError: `max_output_bytes`.
            UnavailableError: `unreachable`: its daemon ended.
        """
        if failure := self.exit.failure(self.program):
            failure.facts["stderr"] = self.stderr[-_TAIL_BYTES:].decode("utf-8", "replace")
            raise failure
        return self


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What a daemon knows of a process.

    Attributes:
        id: Its id.
        pid: Its number in the sandbox, for people.
        program: The name of its program.
        started: When, by the sandbox's clock.
        exit: How it ended; None: it runs.
        stdout_bytes: What it printed so far.
        stderr_bytes: The same of standard error.
    """

    id: str
    pid: int
    program: str
    started: datetime
    exit: Exit | None
    stdout_bytes: int
    stderr_bytes: int


def checked_exit(message: process_pb2.ProcessExit) -> Exit:
    """Return an end that can be.

    Raises:
        SessionError: `protocol`.
    """
    cause = _CAUSES.get(message.cause)
    is_possible = (
        message.status <= _MAX_STATUS and message.signal <= _MAX_SIGNAL and not message.status * message.signal
    )
    if cause is None or not is_possible or not 0 <= message.duration_seconds < math.inf:
        raise SessionError("protocol", "the daemon told an end of a process that cannot be")
    return Exit(
        message.status,
        message.signal,
        cause,
        message.duration_seconds,
        message.stdout_bytes,
        message.stderr_bytes,
    )


def checked_state(message: process_pb2.ProcessState) -> ProcessState:
    """Return what a daemon lists of one process.

    Raises:
        SessionError: `protocol`.
    """
    return ProcessState(
        id=reply.process_id(message.id),
        pid=message.pid,
        program=printable(message.program[: reply.MAX_TEXT_CHARS]),
        started=reply.moment(message.started),
        exit=checked_exit(message.exit) if message.HasField("exit") else None,
        stdout_bytes=message.stdout_bytes,
        stderr_bytes=message.stderr_bytes,
    )
