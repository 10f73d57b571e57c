"""Targets: the text that names a daemon, parsed and refused before anything is connected or started.

`unix:/path/to/socket`, `host:port` (`[address]:port` for IPv6) and `local:HOME[,WORKSPACE]`. The text after `local:` is
cut at its first comma, so a workspace may have commas and a home may not; a `LocalTarget` takes any path.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from host_client.errors import ConfigurationError, printable

MAX_SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket: `sockaddr_un` of Linux has 108 bytes with the final NUL."""

_HOST_PORT = re.compile(r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,64}\]):(?P<port>[0-9]{1,5})", re.ASCII)
_MAX_PORT = 65535
_FORMS = "a target is unix:/path, host:port or local:HOME[,WORKSPACE]"


@dataclass(frozen=True, slots=True)
class SocketTarget:
    """A daemon that listens on a Unix socket of this host."""

    socket_path: Path

    def __str__(self) -> str:
        return f"unix:{printable(os.fsencode(self.socket_path))}"

    @property
    def address(self) -> str:
        """The address as gRPC takes it: an absolute path, percent-encoded."""
        return "unix:" + quote(os.fsencode(self.socket_path.absolute()))


@dataclass(frozen=True, slots=True)
class PortTarget:
    """A daemon that listens on a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def address(self) -> str:
        """The address as gRPC takes it."""
        return f"dns:///{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """A private daemon that is started for this connection and serves files of this host."""

    home: Path
    workspace: Path

    def __str__(self) -> str:
        text = f"local:{printable(os.fsencode(self.home))}"
        return text if self.workspace == self.home else f"{text},{printable(os.fsencode(self.workspace))}"


Target = SocketTarget | PortTarget | LocalTarget


def parse_target(text: str) -> Target:
    """Return what the text names.

    Raises:
        ConfigurationError: `invalid_target`: no known form, a port out of range, a socket path that is too long or
            has a comma, a home or workspace that is no directory.
    """
    if "\0" in text:
        raise _refuse(text, _FORMS)
    if text.startswith("unix:"):
        return _socket(text)
    if text.startswith("local:"):
        return _local(text)
    found = _HOST_PORT.fullmatch(text)
    if not found:
        raise _refuse(text, _FORMS)
    port = int(found["port"])
    if not 0 < port <= _MAX_PORT:
        raise _refuse(text, f"a port is a number from 1 to {_MAX_PORT}")
    return PortTarget(found["host"], port)


def _socket(text: str) -> SocketTarget:
    path = text.removeprefix("unix:")
    if not path:
        raise _refuse(text, _FORMS)
    target = SocketTarget(_absolute(path, text))
    if len(os.fsencode(target.socket_path)) > MAX_SOCKET_PATH_BYTES:
        raise _refuse(text, f"the system allows {MAX_SOCKET_PATH_BYTES} bytes for the path of a socket")
    if "," in str(target.socket_path):
        raise _refuse(text, "gRPC takes a comma in the path of a socket for the end of it; use a link to its folder")
    return target


def _local(text: str) -> LocalTarget:
    home, comma, workspace = text.removeprefix("local:").partition(",")
    if not home or (comma and not workspace):
        raise _refuse(text, _FORMS)
    return check_local(LocalTarget(_absolute(home, text), _absolute(workspace or home, text)))


def _absolute(path: str, text: str) -> Path:
    try:
        return Path(path).absolute()
    except FileNotFoundError:
        raise _refuse(text, "the current folder is gone; give an absolute path") from None


def check_local(target: LocalTarget) -> LocalTarget:
    """Return the target unchanged when both its paths are directories.

    Raises:
        ConfigurationError: `invalid_target`.
    """
    for name, path in (("home", target.home), ("workspace", target.workspace)):
        if not path.is_dir():
            raise _refuse(
                str(target),
                f"make the {name} directory first; {printable(os.fsencode(path))} is none",
            )
    return target


def _refuse(text: str, hint: str) -> ConfigurationError:
    return ConfigurationError("invalid_target", f"'{printable(text)[:300]}' names no daemon", hint=hint)
