"""Ours as subjects: the public library in a process of its own against a daemon that already runs."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.daemon import Daemon
from benchmarks.harness import MAX_COMMAND_SECONDS, BenchError, Sample
from benchmarks.place import Place


@dataclass(frozen=True)
class Capture:
    """Capture to a host that holds nothing of the session yet."""

    place: Place
    daemon: Daemon
    durability: str

    @property
    def name(self) -> str:
        """Name the subject as a row names it."""
        return f"capture, durability {self.durability}"

    @property
    def repository(self) -> Path:
        """Return the host's repository of this subject."""
        return self.place.repository(f"capture-{self.durability}")

    def prepare(self) -> None:
        """Prepare nothing: the host copy of the round before is out of the way."""

    def run(self) -> Sample:
        """Capture once."""
        return run_client("capture", self.daemon.target, self.repository, self.durability)

    def check(self, *, thorough: bool) -> None:
        """Look at the size of the host copy; that its bytes are right shows in the restore from one."""
        del thorough
        check_host_copy(self.repository, self.place)

    def clear(self) -> None:
        """Take the host copy out of the way."""
        self.place.clear(self.repository / ".outpost")


@dataclass(frozen=True)
class Restore:
    """Restore a captured session over an older, smaller one."""

    place: Place
    source: Daemon
    target: Daemon
    durability: str

    @property
    def name(self) -> str:
        """Name the subject as a row names it."""
        return f"restore, durability {self.durability}"

    def prepare(self) -> None:
        """Leave the older session in the target, and a host copy to restore from."""
        self.place.age_target()
        if not (self._repository / ".outpost").exists():
            run_client("capture", self.source.target, self._repository, "none")

    def run(self) -> Sample:
        """Restore once."""
        return run_client("restore", self.target.target, self._repository, self.durability)

    def check(self, *, thorough: bool) -> None:
        """Compare the restored session with the tree."""
        self.place.check_target(thorough=thorough)

    def clear(self) -> None:
        """Take the restored session out of the way."""
        self.place.clear_target()

    @property
    def _repository(self) -> Path:
        return self.place.repository("restore")


def run_client(operation: str, target: str, repository: Path, durability: str) -> Sample:
    """Run one operation in a client process and return its time and that process's peak memory.

    Raises:
        BenchError: the client failed or did not end within MAX_COMMAND_SECONDS.
    """
    result = _client_result(operation, target, str(repository), durability)
    return Sample(result["seconds"], {"client": result["peak_mib"]})


def run_turns(target: str, repository: Path, changed_path: Path) -> tuple[Sample, Sample]:
    """Capture twice in one client process, one file changed between, and return the samples of both captures.

    Raises:
        BenchError: as `run_client`.
    """
    result = _client_result("turns", target, str(repository), "none", str(changed_path))
    peaks_mib = {"client": result["peak_mib"]}
    first_seconds, second_seconds = result["seconds"]
    return Sample(first_seconds, peaks_mib), Sample(second_seconds, peaks_mib)


def _client_result(operation: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.client", operation, *arguments]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=MAX_COMMAND_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"the client could not {operation}") from error
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def check_host_copy(repository: Path, place: Place) -> None:
    """Raise BenchError unless the repository holds one bundle file large enough for the tree."""
    (bundle,) = (repository / ".outpost" / "conversations" / "bench").glob("*.json")
    if bundle.stat().st_size * 3 < place.tree.data_bytes * 4:
        raise BenchError(f"{bundle} is too small to hold the {place.tree.name}")
