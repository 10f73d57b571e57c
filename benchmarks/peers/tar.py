"""`tar c | tar x`, the usual way to stream a directory."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Sample, time_commands
from benchmarks.place import Place
from benchmarks.tree import check_session

_PIPELINE = 'tar -C "$1" -cf - . | tar -C "$2" -xf -'


@dataclass(frozen=True)
class Stream:
    """Pack the session's directory into a pipe and unpack it at the other end."""

    place: Place
    name: str = "tar | tar"

    @property
    def _target(self) -> Path:
        return self.place.directory / "unpacked"

    def prepare(self) -> None:
        """Leave an empty directory to unpack into."""
        self._target.mkdir()

    def run(self) -> Sample:
        """Stream once; a failure of the packing end shows in the check."""
        return time_commands(["sh", "-c", _PIPELINE, "sh", self.place.source_session, self._target])

    def check(self, *, thorough: bool) -> None:
        """Compare what was unpacked with the tree."""
        check_session(self._target, self.place.tree, cwd=self.place.source_workspace, thorough=thorough)

    def clear(self) -> None:
        """Take what was unpacked out of the way."""
        self.place.clear(self._target)
