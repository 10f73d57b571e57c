"""Where the daemon listens: a socket in a private folder, or a port that only this machine reaches.

The one rule: a socket is bound only under its lock, after nobody answered on it. gRPC removes whatever socket is in the
way of a bind, so all of this happens before gRPC is asked.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from sandbox_api.errors import ConfigurationError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

MAX_SOCKET_PATH_BYTES = 107
"""Linux's limit, without the closing NUL."""

_MAX_PORT = 0xFFFF
_PROBE_SECONDS = 2.0
_NO_NETWORK = "TLS and tokens are not available in this version; use unix:/path, 127.0.0.1:PORT or [::1]:PORT"


@dataclass(frozen=True, slots=True)
class Address:
    """A place to listen on: a socket's absolute path, or a loopback host and port.

    Attributes:
        target: What people and clients are given, `unix:/path` or `host:port`.
        socket_path: Path of the socket; empty for a port.
        is_default: Whether the operator left the choice to us, which makes the folder ours to create and to check.
    """

    target: str
    socket_path: str = ""
    is_default: bool = False

    @property
    def grpc_target(self) -> str:
        """The target as gRPC reads it: the path of a socket is a part of a URI."""
        return f"unix:{quote(os.fsencode(self.socket_path))}" if self.socket_path else self.target


def read_address(listen: str, environment: Mapping[str, str]) -> Address:
    """Return the address the operator named; empty: the default socket.

    Raises:
        ConfigurationError: `listen`: not an absolute socket path, or not a literal loopback address with a port.
    """
    if not listen:
        return _socket_address(_default_path(environment), is_default=True)
    if listen.startswith("unix:"):
        return _socket_address(listen.removeprefix("unix:"), is_default=False)
    host, separator, port = listen.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port) if port.isascii() and port.isdigit() else -1
    except ValueError:
        raise _refuse(f"'{printable(listen)}' is not an address to listen on", hint=_NO_NETWORK) from None
    if not separator or not 0 <= number <= _MAX_PORT or not address.is_loopback:
        raise _refuse(f"'{printable(listen)}' is not a loopback address with a port", hint=_NO_NETWORK)
    name = f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004  the 6 of IPv6
    return Address(f"{name}:{number}")


def _default_path(environment: Mapping[str, str]) -> str:
    if os.geteuid() == 0:
        return "/run/sandbox-agent/agent.sock"
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        return f"{runtime}/sandbox-agent/agent.sock"
    return f"{tempfile.gettempdir()}/sandbox-agent-{os.geteuid()}/agent.sock"


def _socket_address(path: str, *, is_default: bool) -> Address:
    if not path.startswith("/") or "\0" in path:
        raise _refuse(f"the socket path '{printable(path)}' is not absolute", hint="write unix:/absolute/path")
    plain = os.path.normpath("/" + path.lstrip("/"))
    if len(os.fsencode(plain)) > MAX_SOCKET_PATH_BYTES:
        raise _refuse(
            f"the socket path '{printable(plain)}' is longer than {MAX_SOCKET_PATH_BYTES} bytes",
            hint="choose a shorter path",
        )
    if "," in plain:
        raise _refuse(
            f"the socket path '{printable(plain)}' has a comma, with which clients cannot name it",
            hint="choose a path without one",
        )
    return Address(f"unix:{plain}", plain, is_default)


class SocketClaim:
    """The right to bind one socket path, held until the daemon ends.

    While it is held no other daemon takes the path. Entering removes a socket on which nobody answers; leaving removes
    the lock file. Does nothing for a port.

    Raises:
        ConfigurationError: `listen`: the folder is not private, another daemon holds the path, somebody answers on it,
            or something that is not a socket is there.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._path = Path(address.socket_path)
        self._lock_path = Path(f"{address.socket_path}.lock")
        self._lock_fd = -1

    def __enter__(self) -> Self:
        if not self._address.socket_path:
            return self
        try:
            _check_folder(self._path.parent, must_be_private=self._address.is_default)
            self._lock_fd = self._lock()
            try:
                self._remove_stale()
            except BaseException:
                self._release()
                raise
        except OSError as error:
            raise _refuse(f"cannot listen on {printable(self._address.target)}: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock_fd >= 0:
            self._release()

    def _lock(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            fd = os.open(self._lock_path, flags, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_same_file(fd, self._lock_path):
                    return fd
            except BlockingIOError:
                os.close(fd)
                raise _refuse(
                    f"another daemon listens on {printable(self._address.target)}",
                    hint="stop it, or choose another --listen",
                ) from None
            except BaseException:
                os.close(fd)
                raise
            # The last holder removed the file between our open and our lock: what we locked is no longer in sight.
            os.close(fd)

    def _remove_stale(self) -> None:
        try:
            mode = self._path.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise _refuse(
                f"'{printable(str(self._path))}' is there and is not a socket", hint="choose another --listen"
            )
        if _answers(self._path):
            raise _refuse(
                f"somebody answers on {printable(self._address.target)}", hint="stop it, or choose another --listen"
            )
        self._path.unlink()

    def _release(self) -> None:
        # Somebody may have removed the file, and another daemon may hold one of that name by now.
        if _is_same_file(self._lock_fd, self._lock_path):
            self._lock_path.unlink(missing_ok=True)
        os.close(self._lock_fd)
        self._lock_fd = -1


def _check_folder(folder: Path, *, must_be_private: bool) -> None:
    """Create the socket's folder when it is missing, 0700, and refuse one where others could replace the socket."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat() if must_be_private else folder.stat()
    name = repr(printable(str(folder)))
    mode = found.st_mode
    if not stat.S_ISDIR(mode):
        raise _refuse(f"{name} is not a directory")
    if must_be_private and (found.st_uid != os.geteuid() or mode & 0o077):
        raise _refuse(
            f"the folder {name} is not private to the daemon's user",
            hint="remove it, or choose another --listen",
        )
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise _refuse(f"anybody may replace what is in the folder {name}", hint="choose another folder")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except (BlockingIOError, TimeoutError):
            return True  # somebody listens and is too busy to take the connection
    return True


def _is_same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def _refuse(message: str, *, hint: str = "") -> ConfigurationError:
    return ConfigurationError("listen", message, hint=hint)
