"""`cp -r`, and its durable twin that ends with `sync -f`."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Sample, time_commands
from benchmarks.place import Place
from benchmarks.tree import check_session


@dataclass(frozen=True)
class Copy:
    """Copy the session's directory; `durable` waits until the filesystem has written it."""

    place: Place
    durable: bool

    @property
    def name(self) -> str:
        """Name the subject as a row names it."""
        return "cp -r && sync -f" if self.durable else "cp -r"

    @property
    def _target(self) -> Path:
        return self.place.directory / "copied"

    def prepare(self) -> None:
        """Prepare nothing: the copy makes its directory."""

    def run(self) -> Sample:
        """Copy once."""
        copy: list[str | Path] = ["cp", "-r", self.place.source_session, self._target]
        return time_commands(copy, ["sync", "-f", self._target]) if self.durable else time_commands(copy)

    def check(self, *, thorough: bool) -> None:
        """Compare the copy with the tree."""
        check_session(self._target, self.place.tree, cwd=self.place.source_workspace, thorough=thorough)

    def clear(self) -> None:
        """Take the copy out of the way."""
        self.place.clear(self._target)
