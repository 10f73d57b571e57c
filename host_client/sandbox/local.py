"""A private daemon on this host, for as long as one connection needs it.

The daemon belongs to its parent: it serves until its standard input ends, which happens when the connection is closed
and also when this process dies in whatever way.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from host_client.errors import UnavailableError, printable
from host_client.sandbox.target import MAX_SOCKET_PATH_BYTES, SocketTarget, check_local
from host_client.sandbox.task import in_thread, opened_in_thread
from sandbox_api.limits import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from host_client.sandbox.target import LocalTarget

_SECRETS = frozenset(("OUTPOST_ARCHIVE_KEY",))
"""Variables that are for us alone: what a model runs must not print them into what is archived."""

START_SECONDS = 30.0
"""Longest time a daemon may take to serve; starting Python on a busy machine is the most of it."""

STOP_SECONDS = 10.0
"""Longest time a daemon may take to end before it is killed."""

_STDERR_TAIL_BYTES = 4096
_STDERR_FD = 2
_READY = b"listening "
_PLAIN = re.compile(r"[A-Za-z0-9/._-]+", re.ASCII)


class _Watch(asyncio.SubprocessProtocol):
    """Sees what the daemon prints and when it ends. Callbacks instead of tasks: there is nothing to cancel."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[bool] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.stderr_tail = b""
        self._stdout = b""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the end of standard error; take the first line of standard output."""
        if fd == _STDERR_FD:
            self.stderr_tail = (self.stderr_tail + data)[-_STDERR_TAIL_BYTES:]
        elif not self.ready.done():
            self._stdout += data
            if b"\n" in self._stdout:
                self.ready.set_result(self._stdout.startswith(_READY))

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the process has been reaped and its pipes are closed."""
        del exc
        if not self.ready.done():
            self.ready.set_result(False)
        self.ended.set_result(None)


@asynccontextmanager
async def local_daemon(target: LocalTarget, limits: Limits) -> AsyncIterator[SocketTarget]:
    """Start a daemon for the target's home and workspace; yield where it listens; end and reap it afterwards.

    Nothing is left behind. When this process is killed the daemon ends by itself and an empty private folder stays in
    the folder for temporary files.

    Raises:
        ConfigurationError: `invalid_target`: home or workspace is no directory.
        UnavailableError: `unreachable`: the daemon did not start; the fact `stderr` has the end of what it said.
    """
    await in_thread(check_local, target)
    # The daemon removes its socket; a killed one does not.
    async with opened_in_thread(tempfile.TemporaryDirectory, prefix="outpost-", dir=_short_directory()) as directory:
        socket = SocketTarget(Path(directory) / "daemon")
        transport, watch = await _spawn(target, socket, limits)
        try:
            await _await_ready(target, transport, watch)
            yield socket
        finally:
            await _end(transport, watch)


def _short_directory() -> str:
    """Return a folder for temporary files in which a socket has a short and plain path."""
    usual = tempfile.gettempdir()
    is_fit = len(usual) + len("/outpost-12345678/daemon") <= MAX_SOCKET_PATH_BYTES and _PLAIN.fullmatch(usual)
    return usual if is_fit else "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it


async def _spawn(
    target: LocalTarget, socket: SocketTarget, limits: Limits
) -> tuple[asyncio.SubprocessTransport, _Watch]:
    # -P: with -m, Python would look for modules in the current directory first, and that may be an agent's workspace.
    command = [sys.executable, "-P", "-m", "sandbox_agent", "serve", "--until-eof"]
    command += ["--listen", f"unix:{socket.socket_path}"]
    # Whoever raises the limits of a connection raises those of its own daemon; lower ones each call asks for.
    default = Limits()
    command += ["--max-bytes", str(max(limits.max_bytes, default.max_bytes))]
    command += ["--max-files", str(max(limits.max_files, default.max_files))]
    # A session of its own: a Ctrl-C at the terminal is for us, and we end the daemon when the call has been wound up.
    transport, watch = await asyncio.get_running_loop().subprocess_exec(
        _Watch,
        *command,
        "--home",
        os.fspath(target.home),
        "--workspace",
        os.fspath(target.workspace),
        env={name: value for name, value in os.environ.items() if name not in _SECRETS},
        start_new_session=True,
    )
    return transport, watch


async def _await_ready(target: LocalTarget, transport: asyncio.SubprocessTransport, watch: _Watch) -> None:
    try:
        async with asyncio.timeout(START_SECONDS):
            is_ready = await asyncio.shield(watch.ready)
    except TimeoutError:
        is_ready = False
    if is_ready:
        return
    if transport.get_returncode() is None:
        transport.kill()
    await asyncio.shield(watch.ended)
    said = printable(b" ".join(watch.stderr_tail.split()))[-500:]
    raise UnavailableError(
        "unreachable",
        f"the local daemon for {target} did not start: {said or 'it said nothing'}",
        facts={"stderr": watch.stderr_tail.decode("utf-8", "replace"), "exit_status": str(transport.get_returncode())},
    )


async def _end(transport: asyncio.SubprocessTransport, watch: _Watch) -> None:
    """Let the daemon end by closing its standard input; kill it when it takes too long or when we are cancelled."""
    try:
        stdin = transport.get_pipe_transport(0)
        if stdin is not None:
            stdin.close()
        async with asyncio.timeout(STOP_SECONDS):
            await asyncio.shield(watch.ended)
    except TimeoutError:
        pass  # it is killed below
    finally:
        transport.close()  # kills what has not ended; the loop reaps it
        await asyncio.shield(watch.ended)
