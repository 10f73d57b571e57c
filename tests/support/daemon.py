"""A real daemon process for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

END_SECONDS = 30.0
"""Far more than a daemon needs to end; a test that reaches it has found one that hangs."""


@dataclass(frozen=True)
class RunningDaemon:
    """A daemon that serves.

    Attributes:
        target: What clients connect to.
        process: Its process; its standard input is open until the end.
        home: Its agent home.
        workspace: Its workspace.
        log_path: Where its standard error goes.
    """

    target: str
    process: subprocess.Popen[bytes]
    home: Path
    workspace: Path
    log_path: Path

    def log(self) -> str:
        """Return what the daemon has logged so far."""
        return self.log_path.read_text()


@contextmanager
def running_daemon(
    tmp_path: Path, *extra_args: str, environment: dict[str, str] | None = None
) -> Iterator[RunningDaemon]:
    """Start a daemon on a socket of its own with `home` and `workspace` in a folder; end it with SIGTERM afterwards.

    Its end must be clean: status 0, the socket gone. A daemon that the test has ended itself is only reaped.

    Args:
        tmp_path: Private folder; `home` and `workspace` in it are created when they are missing.
        extra_args: Further arguments of `serve`; they win over those given here.
        environment: Variables to set beside the test's own.
    """
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir(exist_ok=True)
    workspace.mkdir(exist_ok=True)
    socket_path, log_path = tmp_path / "run" / "agent.sock", tmp_path / "daemon.log"
    command = [sys.executable, "-P", "-m", "sandbox_agent", "serve", "--listen", f"unix:{socket_path}"]
    command += ["--home", str(home), "--workspace", str(workspace), *extra_args]
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **(environment or {})},
        )
    with process:
        try:
            target = _await_listening(process, log_path)
            yield RunningDaemon(target, process, home, workspace, log_path)
            if process.poll() is None:
                process.terminate()
                status = process.wait(END_SECONDS)
                assert status == 0, f"the daemon ended with {status}: {log_path.read_text()}"
                assert not socket_path.exists(), "the daemon left its socket"
        finally:
            if process.poll() is None:
                process.kill()


def _await_listening(process: subprocess.Popen[bytes], log_path: Path) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert line.startswith("listening "), f"the daemon said {line!r}: {log_path.read_text()}"
    return line.removeprefix("listening ").rstrip("\n")
