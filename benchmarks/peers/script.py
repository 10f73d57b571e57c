"""The way without a daemon: a Node script in the sandbox makes one JSON file, which is copied out or in."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import BenchError, Sample, time_commands
from benchmarks.place import Place
from benchmarks.tree import SESSION_ID

NAME = "node script + cp"
_SCRIPTS = Path(__file__).parent / "node"


@dataclass(frozen=True)
class NodeCapture:
    """Run the script in the sandbox, then copy its bundle to the host."""

    place: Place
    name: str = f"{NAME}, capture"

    @property
    def sandbox_bundle(self) -> Path:
        """Return the scratch file in the sandbox."""
        return self.place.source_home / "bundle.json"

    @property
    def host_bundle(self) -> Path:
        """Return the copy on the host, which the restore uses."""
        return self.place.repository("node") / "bundle.json"

    def prepare(self) -> None:
        """Take the copy on the host out of the way, which a restore may have used since."""
        self.place.clear(self.host_bundle)

    def run(self) -> Sample:
        """Capture once."""
        return time_commands(
            ["node", _SCRIPTS / "capture.mjs", self.place.source_session, self.sandbox_bundle, "bench", SESSION_ID],
            ["cp", self.sandbox_bundle, self.host_bundle],
        )

    def check(self, *, thorough: bool) -> None:
        """Look at the size of the bundle; that its bytes are right shows in the restore from it."""
        del thorough
        size_bytes = self.host_bundle.stat().st_size
        if size_bytes * 3 < self.place.tree.data_bytes * 4:
            raise BenchError(f"{self.host_bundle} is too small to hold the {self.place.tree.name}")

    def clear(self) -> None:
        """Take the scratch file in the sandbox out of the way."""
        self.place.clear(self.sandbox_bundle)


@dataclass(frozen=True)
class NodeRestore:
    """Copy the bundle of a capture into the sandbox, then run the script there."""

    place: Place
    name: str = f"{NAME}, restore"

    @property
    def _sandbox_bundle(self) -> Path:
        return self.place.target_home / "bundle.json"

    def prepare(self) -> None:
        """Leave an older session in the target, and a bundle on the host."""
        self.place.age_target()
        capture = NodeCapture(self.place)
        if not capture.host_bundle.exists():
            capture.prepare()
            capture.run()
            capture.clear()

    def run(self) -> Sample:
        """Restore once."""
        return time_commands(
            ["cp", NodeCapture(self.place).host_bundle, self._sandbox_bundle],
            [
                "node",
                _SCRIPTS / "restore.mjs",
                self._sandbox_bundle,
                self.place.target_home / ".bench",
                self.place.target_workspace,
            ],
        )

    def check(self, *, thorough: bool) -> None:
        """Compare the restored session with the tree."""
        self.place.check_target(thorough=thorough)

    def clear(self) -> None:
        """Take the restored session and the bundle beside it out of the way."""
        self.place.clear_target()
        self.place.clear(self._sandbox_bundle)
