"""What a daemon is asked to run, checked before it is asked.

The one rule: no message about a bad request tells an argument or a variable's value, which may be secrets.
"""

from __future__ import annotations

import math
import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

from host_client.errors import ConfigurationError, printable
from host_client.sandbox.request import expressible
from sandbox_api.limits import CHUNK_BYTES, MAX_MESSAGE_BYTES
from sandbox_api.names import check_process_id
from sandbox_api.v1 import process_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Word: TypeAlias = "str | bytes"

MAX_INPUT_BYTES = CHUNK_BYTES
"""Most input that is sent with the start."""

_FRAME_BYTES = 4096
"""More than what a request has beside its content."""


def start_request(
    process_id: str,
    argv: Sequence[Word],
    *,
    cwd: PurePosixPath | str | None,
    variables: Mapping[str, str],
    input: bytes,  # noqa: A002 - what subprocess calls it
    open_input: bool,
    terminal: tuple[int, int] | None,
    deadline_seconds: float,
    idle_seconds: float,
    grace_seconds: float,
    max_output_bytes: int,
    keep_bytes: int,
    hold_seconds: float,
) -> process_pb2.StartProcessRequest:
    """Return the request; `input` may be at most `MAX_INPUT_BYTES`. See `Sandbox.run`.

    Raises:
        ConfigurationError: `invalid_id`, `invalid_argument`.
    """
    check_process_id(process_id)
    if isinstance(argv, (str, bytes)) or not argv:
        raise ConfigurationError("invalid_argument", "a command is a sequence of words, the first its program")
    with expressible():
        words = [os.fsencode(word) for word in argv]
    if not words[0] or any(b"\0" in word for word in words):
        raise ConfigurationError("invalid_argument", "a command has no program, or a NUL in one of its words")
    for name, seconds in (
        ("deadline_seconds", deadline_seconds),
        ("idle_seconds", idle_seconds),
        ("grace_seconds", grace_seconds),
        ("hold_seconds", hold_seconds),
    ):
        if not 0 <= seconds < math.inf:
            raise ConfigurationError("invalid_argument", f"{name} cannot be {seconds}")
    if len(input) > MAX_INPUT_BYTES:
        hint = "open the input and write it while the output is read, or await the run"
        raise ConfigurationError("invalid_argument", f"input has more than {MAX_INPUT_BYTES} bytes", hint=hint)
    with expressible():
        request = process_pb2.StartProcessRequest(
            id=process_id,
            argv=words,
            cwd=os.fsencode(cwd) if cwd is not None else b"",
            variables=packed_variables(variables),
            input=input,
            open_input=open_input,
            deadline_seconds=deadline_seconds,
            idle_seconds=idle_seconds,
            grace_seconds=grace_seconds,
            max_output_bytes=max_output_bytes,
            keep_bytes=keep_bytes,
            hold_seconds=hold_seconds,
        )
        if terminal is not None:
            request.terminal.CopyFrom(packed_terminal(*terminal))
    if request.ByteSize() > MAX_MESSAGE_BYTES - _FRAME_BYTES:
        raise ConfigurationError("invalid_argument", "command, variables and input together are too large")
    return request


def packed_variables(variables: Mapping[str, str]) -> Iterator[process_pb2.Variable]:
    """Yield the variables of an environment as messages.

    Raises:
        ConfigurationError: `invalid_argument`.
    """
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise ConfigurationError(
                "invalid_argument", f"the variable '{printable(name[:200])}' has an impossible name, or a NUL"
            )
        yield process_pb2.Variable(name=os.fsencode(name), value=os.fsencode(value))


def packed_terminal(rows: int, columns: int) -> process_pb2.Terminal:
    """Return the size of a terminal as a message.

    Raises:
        ConfigurationError: `invalid_argument`.
    """
    if not (0 < rows < 1 << 16 and 0 < columns < 1 << 16):
        raise ConfigurationError("invalid_argument", f"a terminal cannot have {rows} rows and {columns} columns")
    return process_pb2.Terminal(rows=rows, columns=columns)


def program_name(argv: Sequence[Word]) -> str:
    """Return the name of a command's program for messages."""
    return printable(PurePosixPath(os.fsdecode(argv[0])).name[:200])
