"""What the operator asked for: the command line, checked as far as that goes without touching anything."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sandbox_api.errors import ConfigurationError
from sandbox_api.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LogFormat = Literal["text", "json"]

STATE_DIRECTORY = ".outpost-agent"
"""Name, below the agent home, of the folder of what the daemon keeps across its starts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeConfig:
    """One run of the daemon.

    Attributes:
        listen: Address as written; empty: the default socket.
        home: Agent home as the operator named it, absolute.
        workspace: Directory the CLI works in, absolute.
        roots: Further directories below which the daemon may read and write, absolute.
        state: Folder of the journal, absolute.
        limits: The daemon's own limits of a bundle.
        max_processes: Most processes that run at a time.
        keep_seconds: How long what a broken restore staged waits for the next attempt.
        log_format: `text` or `json`.
        debug: Whether the log may name paths and messages.
        until_eof: Whether the end of standard input ends the daemon.
        drain_seconds: How long calls in progress may go on once the daemon was told to end.
    """

    listen: str
    home: bytes
    workspace: bytes
    roots: tuple[bytes, ...]
    state: bytes
    limits: Limits
    max_processes: int
    keep_seconds: float
    log_format: LogFormat
    debug: bool
    until_eof: bool
    drain_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthcheckConfig:
    """One question to a running daemon."""

    listen: str
    timeout_seconds: float


Config = ServeConfig | HealthcheckConfig | Literal["version"]


def read_arguments(arguments: Sequence[str], environment: Mapping[str, str]) -> Config:
    """Return what the command line says.

    A line that cannot be parsed ends the process with status 2 and a usage message, as is the custom.

    Raises:
        ConfigurationError: `invalid_argument`: no agent home is named and the environment has none.
    """
    options = _parser().parse_args(arguments)
    if options.command == "version":
        return "version"
    if options.command == "healthcheck":
        return HealthcheckConfig(listen=options.listen, timeout_seconds=options.timeout_seconds)
    home = options.home or environment.get("HOME")
    if not home:
        raise ConfigurationError("invalid_argument", "no agent home is known", hint="name it with --home DIR")
    absolute_home = _absolute(home)
    return ServeConfig(
        listen=options.listen,
        home=absolute_home,
        workspace=_absolute(options.workspace),
        roots=tuple(_absolute(root) for root in options.root),
        state=_absolute(options.state) if options.state else absolute_home + b"/" + STATE_DIRECTORY.encode(),
        limits=Limits(options.max_bytes, options.max_files),
        max_processes=options.max_processes,
        keep_seconds=options.keep_seconds,
        log_format=options.log_format,
        debug=options.debug,
        until_eof=options.until_eof,
        drain_seconds=options.drain_seconds,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sandbox-agent", description="Move coding-agent sessions in this sandbox.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="serve | healthcheck | version")
    serve = commands.add_parser("serve", help="serve until SIGTERM or SIGINT")
    _add_listen(serve)
    defaults = Limits()
    serve.add_argument("--home", default="", metavar="DIR", help="the agent home (default: $HOME)")
    serve.add_argument("--workspace", default=".", metavar="DIR", help="where the CLI works (default: this directory)")
    serve.add_argument(
        "--root", action="append", default=[], metavar="DIR", help="a further directory to read and write below"
    )
    serve.add_argument(
        "--state", default="", metavar="DIR", help=f"the daemon's own folder (default: HOME/{STATE_DIRECTORY})"
    )
    serve.add_argument(
        "--max-bytes", type=_positive, default=defaults.max_bytes, metavar="N", help="most bytes of a bundle"
    )
    serve.add_argument(
        "--max-files", type=_positive, default=defaults.max_files, metavar="N", help="most files of a bundle"
    )
    serve.add_argument(
        "--max-processes", type=_positive, default=256, metavar="N", help="most processes at a time (default: 256)"
    )
    serve.add_argument(
        "--keep-seconds",
        type=_seconds,
        default=600.0,
        metavar="N",
        help="how long a broken restore may be gone on with (default: 600)",
    )
    serve.add_argument("--log-format", choices=("text", "json"), default="text", help="form of the lines on stderr")
    serve.add_argument("--debug", action="store_true", help="let the log name paths and messages")
    serve.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    serve.add_argument(
        "--drain-seconds", type=_seconds, default=10.0, metavar="N", help="grace for calls at the end (default: 10)"
    )
    health = commands.add_parser("healthcheck", help="ask a running daemon whether it serves; status 0 or 1")
    _add_listen(health)
    health.add_argument("--timeout-seconds", type=_seconds, default=5.0, metavar="N", help="most time (default: 5)")
    commands.add_parser("version", help="print the version")
    return parser


def _add_listen(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", default="", metavar="ADDRESS", help="unix:/path, 127.0.0.1:PORT or [::1]:PORT (default: a socket)"
    )


def _absolute(path: str) -> bytes:
    # Without resolving links: the home is reported as the operator named it.
    return os.path.normpath(os.fsencode(Path(path).absolute()))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError
    return number
