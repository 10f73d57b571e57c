"""The errors of the product: one table, one exception class per family, one wire form.

A failure has a *code* (its family, one exception class and one exit status) and a *reason* (a stable machine word).
Both are part of the contract: clients branch on them, so a row of the table is never renamed or removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DOMAIN = "sandbox-api.outpost"
"""Domain of the `google.rpc.ErrorInfo` that every error status carries."""

MAX_OFFENDERS_COUNT = 32
"""Offending entries named in one failure; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the error table."""

    code: str
    reason: str
    grpc_status: str
    """Name of the gRPC status code that carries it."""
    meaning: str
    retryable: bool = False
    """True when the same call may succeed later without any change by the caller."""


TABLE: tuple[Row, ...] = (
    Row("session", "not_found", "NOT_FOUND", "no session of that id is there"),
    Row("session", "ambiguous", "FAILED_PRECONDITION", "several sessions have that id; all are listed"),
    Row("session", "symlink", "FAILED_PRECONDITION", "a symbolic link on the way to the session or in it"),
    Row("session", "root_symlink", "FAILED_PRECONDITION", "the CLI home itself is a symbolic link"),
    Row("session", "special_file", "FAILED_PRECONDITION", "an entry is neither a file nor a directory"),
    Row("session", "unsafe_name", "FAILED_PRECONDITION", "an entry has a name a bundle cannot hold"),
    Row("session", "changed", "ABORTED", "the session changed while it was read", retryable=True),
    Row("session", "missing_required", "FAILED_PRECONDITION", "a required file of the format is missing"),
    Row("session", "empty", "FAILED_PRECONDITION", "nothing of the session is selected by its profile"),
    Row("session", "invalid", "FAILED_PRECONDITION", "the format's validate hook refused the session"),
    Row("session", "live_database", "FAILED_PRECONDITION", "an SQLite file has changes outside its main file"),
    Row("session", "hook_failed", "FAILED_PRECONDITION", "a hook raised an error or returned the wrong type"),
    Row("session", "hook_timeout", "FAILED_PRECONDITION", "a hook took longer than its limit"),
    Row("session", "hook_memory", "FAILED_PRECONDITION", "a hook used more memory than its limit"),
    Row("session", "hook_crashed", "FAILED_PRECONDITION", "a hook ended its interpreter or broke its protocol"),
    Row("session", "corrupt", "DATA_LOSS", "a saved bundle, or an archived object, breaks the rules of its format"),
    Row("session", "tampered", "DATA_LOSS", "an encrypted object is undamaged, and was not made with the key"),
    Row("session", "missing_object", "DATA_LOSS", "an archive names an object that its store has not got"),
    Row("session", "digest_mismatch", "DATA_LOSS", "content does not have the SHA-256 that was promised"),
    Row("session", "incomplete", "DATA_LOSS", "a stream ended before its trailer", retryable=True),
    Row("session", "protocol", "DATA_LOSS", "the other side broke the rules of the stream"),
    Row(
        "session", "redaction_unsupported", "FAILED_PRECONDITION", "files that cannot be redacted: no text, or by name"
    ),
    Row("conflict", "in_use", "FAILED_PRECONDITION", "a running process has the session open"),
    Row("conflict", "other_bucket", "ALREADY_EXISTS", "the id exists under another directory of the CLI home"),
    Row(
        "conflict", "diverged", "FAILED_PRECONDITION", "sandbox and host went on differently from the same conversation"
    ),
    Row("conflict", "behind", "FAILED_PRECONDITION", "an older state of a conversation than the archive's newest"),
    Row("conflict", "stale_revision", "ABORTED", "somebody else wrote to the archive meanwhile", retryable=True),
    Row("conflict", "target_changed", "ABORTED", "another restore or process replaced the session meanwhile"),
    Row(
        "conflict",
        "busy",
        "ABORTED",
        "another operation holds the session's folder, or the restore's id",
        retryable=True,
    ),
    Row("conflict", "exists", "ALREADY_EXISTS", "the path exists and must not"),
    Row(
        "workspace",
        "unsafe_path",
        "PERMISSION_DENIED",
        "a path has a link, a parent step or an unusable name",
    ),
    Row("workspace", "outside_roots", "PERMISSION_DENIED", "a path lies in none of the daemon's roots"),
    Row("workspace", "not_found", "NOT_FOUND", "no file is at that path"),
    Row(
        "workspace",
        "not_a_file",
        "FAILED_PRECONDITION",
        "the path names something that is not a regular file",
    ),
    Row("workspace", "access", "PERMISSION_DENIED", "the file system refuses the access"),
    Row("workspace", "mounted", "FAILED_PRECONDITION", "a mount point cannot be replaced or removed"),
    Row("workspace", "changed", "ABORTED", "the file changed while it was read", retryable=True),
    Row("limit", "max_bytes", "RESOURCE_EXHAUSTED", "more bytes than the smaller of both sides' limits"),
    Row("limit", "max_files", "RESOURCE_EXHAUSTED", "more files than the smaller of both sides' limits"),
    Row("limit", "max_depth", "RESOURCE_EXHAUSTED", "directories nested deeper than the limit"),
    Row("limit", "max_manifest_bytes", "RESOURCE_EXHAUSTED", "a manifest larger than the limit"),
    Row(
        "limit",
        "max_processes",
        "RESOURCE_EXHAUSTED",
        "more processes at a time than the daemon's limit",
        retryable=True,
    ),
    Row("limit", "max_output_bytes", "RESOURCE_EXHAUSTED", "a process printed more than it may"),
    Row("limit", "max_spool_bytes", "RESOURCE_EXHAUSTED", "a target fell further behind than a relay may wait"),
    Row("limit", "disk_full", "RESOURCE_EXHAUSTED", "no space or quota is left on the device"),
    Row("limit", "descriptors", "RESOURCE_EXHAUSTED", "no file descriptor is left", retryable=True),
    Row("limit", "read_only", "FAILED_PRECONDITION", "the file system is mounted read-only"),
    Row("configuration", "invalid_id", "INVALID_ARGUMENT", "a conversation id breaks the id rule"),
    Row("configuration", "invalid_profile", "INVALID_ARGUMENT", "a profile breaks its rules"),
    Row("configuration", "invalid_hook", "INVALID_ARGUMENT", "a hook cannot run from its source text"),
    Row("configuration", "invalid_bucket", "INVALID_ARGUMENT", "the bucket hook's result is not a plain name"),
    Row("configuration", "invalid_argument", "INVALID_ARGUMENT", "a request or option is malformed"),
    Row("configuration", "format_mismatch", "INVALID_ARGUMENT", "a record of another format"),
    Row("configuration", "unknown_format", "INVALID_ARGUMENT", "no format of that name is built in"),
    Row(
        "configuration", "unknown_agent", "INVALID_ARGUMENT", "no agent, or installable tool, of that name is built in"
    ),
    Row("configuration", "variable_collision", "INVALID_ARGUMENT", "provider and agent both set a variable"),
    Row("configuration", "not_supported", "INVALID_ARGUMENT", "the agent, store or version cannot do what was asked"),
    Row(
        "configuration", "no_conversation", "INVALID_ARGUMENT", "a turn without a known conversation cannot be resumed"
    ),
    Row("configuration", "invalid_target", "INVALID_ARGUMENT", "a target that names no daemon"),
    Row("configuration", "invalid_key", "INVALID_ARGUMENT", "a name that no object or namespace can have"),
    Row("configuration", "invalid_store", "INVALID_ARGUMENT", "a URL that names no store of archives"),
    Row("configuration", "no_such_store", "NOT_FOUND", "the bucket or directory of a store is not there"),
    Row("configuration", "store_access", "PERMISSION_DENIED", "a store refuses the credentials, or the access"),
    Row(
        "configuration",
        "no_conditional_writes",
        "FAILED_PRECONDITION",
        "a store that cannot tell who of two writers was first",
    ),
    Row("configuration", "wrong_key", "PERMISSION_DENIED", "an encrypted archive was opened without its key"),
    Row("configuration", "owner", "PERMISSION_DENIED", "the daemon may not give files to that owner"),
    Row("configuration", "listen", "INVALID_ARGUMENT", "an address the daemon must not or cannot listen on"),
    Row("timeout", "deadline", "DEADLINE_EXCEEDED", "the call took longer than its deadline", retryable=True),
    Row("timeout", "idle", "DEADLINE_EXCEEDED", "a process printed nothing for as long as it may"),
    Row("process", "start_failed", "FAILED_PRECONDITION", "a process could not be started"),
    Row("process", "no_such_program", "NOT_FOUND", "no program of that name is in the sandbox"),
    Row("process", "not_executable", "FAILED_PRECONDITION", "the program may not be executed, or is none"),
    Row("process", "no_such_directory", "FAILED_PRECONDITION", "the working directory of a process is not there"),
    Row("process", "unknown", "NOT_FOUND", "the daemon knows no process of that id; a restarted one knows none"),
    Row("process", "output_lost", "OUT_OF_RANGE", "output that was asked for is no longer kept"),
    Row("process", "failed", "FAILED_PRECONDITION", "a command ended with a status other than 0, or by a signal"),
    Row("process", "reported_failure", "FAILED_PRECONDITION", "the agent's output says that its turn failed"),
    Row("process", "unfinished", "FAILED_PRECONDITION", "the agent ended without the event that ends its turns"),
    Row("process", "oversized_event", "FAILED_PRECONDITION", "a line of the agent's output is too long"),
    Row("process", "install_failed", "FAILED_PRECONDITION", "an agent's CLI could not be installed in the sandbox"),
    Row(
        "unavailable",
        "unreachable",
        "UNAVAILABLE",
        "the daemon cannot be reached or went away",
        retryable=True,
    ),
    Row(
        "unavailable",
        "store_unreachable",
        "UNAVAILABLE",
        "a store of archives cannot be reached or fails",
        retryable=True,
    ),
    Row("unavailable", "cancelled", "CANCELLED", "the call was cancelled", retryable=True),
    Row("unavailable", "unsupported", "UNIMPLEMENTED", "the daemon does not know the call"),
    Row("unavailable", "internal", "INTERNAL", "an unforeseen error; its log has the incident number"),
    Row("unavailable", "io", "INTERNAL", "the operating system reported an error on a device"),
)

ROWS: Mapping[tuple[str, str], Row] = {(row.code, row.reason): row for row in TABLE}


@dataclass(frozen=True, slots=True)
class Offender:
    """One entry that made an operation fail: its path, escaped for printing, and what is wrong with it."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def printable(path: bytes | str) -> str:
    r"""Return a path for people: valid UTF-8 as it is, control characters and other bytes as `\xNN`.

    Args:
        path: Bytes, or text in which the file system's foreign bytes are surrogates, as in `os.fsdecode`.
    """
    text = path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


class OutpostError(Exception):
    """A failure of the product; the base of all its exceptions.

    OutpostError
    ├── SessionError         `session`        the session's content or state      exit status 10
    ├── ProcessError         `process`        a command that was run              exit status 11
    ├── ConfigurationError   `configuration`  what the caller asked for           exit status 12
    ├── ConflictError        `conflict`       someone else's change is in the way exit status 13
    ├── WorkspaceError       `workspace`      an unsafe or unusable path          exit status 14
    ├── LimitError           `limit`          a limit of ours or of the machine   exit status 15
    ├── DeadlineError        `timeout`        time ran out                        exit status 16
    └── UnavailableError     `unavailable`    the daemon cannot be used           exit status 17

    Args:
        reason: A reason of the class's family in `TABLE`.
        message: One sentence for people, without a final stop; names the thing.
        hint: What to do about it; may be empty.
        facts: Machine-readable details, text to text.
        offenders: Entries at fault. At most `MAX_OFFENDERS_COUNT` are kept; `offender_count` counts all.
        offender_count: Number of all entries at fault when `offenders` is already cut.
    """

    code: ClassVar[str] = ""
    exit_status: ClassVar[int] = 1

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        hint: str = "",
        facts: Mapping[str, str] | None = None,
        offenders: Iterable[Offender] = (),
        offender_count: int | None = None,
    ) -> None:
        row = ROWS[self.code, reason]
        named = tuple(offenders)
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.hint = hint
        self.facts: dict[str, str] = dict(facts or {})
        self.offenders = named[:MAX_OFFENDERS_COUNT]
        self.offender_count = max(offender_count or 0, len(named))
        self.grpc_status = row.grpc_status
        self.retryable = row.retryable

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy with all that is told of it, which the arguments of an exception are not."""
        return _remade, (type(self), self.message), self.__dict__

    def __str__(self) -> str:
        text = f"{self.message} ({self.code}/{self.reason})"
        for offender in self.offenders:
            text += f"\n  {offender}"
        if self.offender_count > len(self.offenders):
            text += f"\n  and {self.offender_count - len(self.offenders)} more"
        return f"{text}\n  hint: {self.hint}" if self.hint else text


def _remade(family: type[OutpostError], message: str) -> OutpostError:
    return family.__new__(family, message)  # what it knows beside the message comes as its state


class SessionError(OutpostError):
    """The session's content or state forbids the operation."""

    code, exit_status = "session", 10


class ProcessError(OutpostError):
    """A command failed to start or to end well."""

    code, exit_status = "process", 11


class ConfigurationError(OutpostError):
    """The caller asked for something that cannot be meant."""

    code, exit_status = "configuration", 12


class ConflictError(OutpostError):
    """Somebody else's state or change is in the way; nothing was overwritten."""

    code, exit_status = "conflict", 13


class WorkspaceError(OutpostError):
    """A path is unsafe or cannot be used."""

    code, exit_status = "workspace", 14


class LimitError(OutpostError):
    """A limit of the product or of the machine was reached."""

    code, exit_status = "limit", 15


class DeadlineError(OutpostError):
    """Time ran out."""

    code, exit_status = "timeout", 16


class UnavailableError(OutpostError):
    """The daemon cannot be used."""

    code, exit_status = "unavailable", 17


FAMILIES: Mapping[str, type[OutpostError]] = {
    family.code: family
    for family in (
        SessionError,
        ProcessError,
        ConfigurationError,
        ConflictError,
        WorkspaceError,
        LimitError,
        DeadlineError,
        UnavailableError,
    )
}
