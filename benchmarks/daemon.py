"""A daemon process on a Unix socket, started, weighed and stopped by the bench."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import MAX_COMMAND_SECONDS, BenchError, wait_for
from benchmarks.tree import MAX_BUNDLE_BYTES


@dataclass(frozen=True)
class Daemon:
    """A daemon that serves."""

    target: str
    process_id: int
    start_seconds: float

    @property
    def peak_mib(self) -> float:
        """Return the highest resident memory so far (VmHWM)."""
        return _status_mib(self.process_id, "VmHWM")

    @property
    def resident_mib(self) -> float:
        """Return the resident memory now (VmRSS)."""
        return _status_mib(self.process_id, "VmRSS")


@contextmanager
def serving(*, home: Path, workspace: Path) -> Iterator[Daemon]:
    """Start a daemon, yield it once it says that it listens, and end it with SIGTERM.

    Raises:
        BenchError: the daemon did not come up, or did not end cleanly.
    """
    # The system's scratch folder, since its path is short and a socket's is limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="outpost-bench-") as directory:
        yield from _serve(Path(directory), home, workspace)


def _serve(directory: Path, home: Path, workspace: Path) -> Iterator[Daemon]:
    target = f"unix:{directory / 'agent.sock'}"
    command = [sys.executable, "-m", "sandbox_agent", "serve", "--listen", target]
    command += ["--home", str(home), "--workspace", str(workspace)]
    command += ["--max-bytes", str(MAX_BUNDLE_BYTES)]
    log_path = directory / "agent.log"
    with log_path.open("wb") as log:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    with process:
        try:
            _await_listening(process, log_path)
            yield Daemon(target, process.pid, time.perf_counter() - began)
            process.terminate()
            if process.wait(MAX_COMMAND_SECONDS) != 0:
                raise BenchError(f"the daemon ended with {process.returncode}: {log_path.read_text()}")
        finally:
            if process.poll() is None:
                process.kill()


def own_peak_mib() -> float:
    """Return the highest resident memory of this process so far."""
    return _status_mib("self", "VmHWM")


def _await_listening(process: subprocess.Popen[bytes], log_path: Path) -> None:
    if process.stdout is None:
        raise BenchError("the daemon has no standard output to listen to")
    wait_for(process.stdout.fileno, "the daemon's start")
    line = process.stdout.readline()
    if not line.startswith(b"listening"):
        raise BenchError(f"the daemon said {line!r} instead of listening: {log_path.read_text()}")


def _status_mib(process_id: int | str, key: str) -> float:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise BenchError(f"/proc/{process_id}/status has no {key}")
