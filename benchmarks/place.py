"""The folders one tree is moved between: a source sandbox, a target sandbox, and the host."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.daemon import Daemon, serving
from benchmarks.harness import BenchError
from benchmarks.scratch import new_place, retire
from benchmarks.tree import (
    SESSION_ID,
    Tree,
    check_session,
    session_path,
    write_identity,
    write_session,
)


@dataclass(frozen=True)
class Place:
    """Everything of one tree lies below `directory`, in the part of the disk that is this tree's own."""

    tree: Tree
    directory: Path

    @property
    def source_home(self) -> Path:
        """Return the home of the sandbox that holds the session."""
        return self.directory / "source-home"

    @property
    def source_workspace(self) -> Path:
        """Return the workspace in which the session was begun."""
        return self.directory / "source-workspace"

    @property
    def target_home(self) -> Path:
        """Return the home of the sandbox that the session is restored into."""
        return self.directory / "target-home"

    @property
    def target_workspace(self) -> Path:
        """Return the workspace that a restored session must name."""
        return self.directory / "target-workspace"

    @property
    def source_session(self) -> Path:
        """Return the session that is captured."""
        return session_path(self.source_home)

    @property
    def target_session(self) -> Path:
        """Return where the session is restored to."""
        return session_path(self.target_home)

    def repository(self, name: str) -> Path:
        """Return a repository of the host; each subject that writes one has its own."""
        path = self.directory / "host" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    @classmethod
    def build(cls, tree: Tree, scratch_directory: Path) -> "Place":
        """Write the session of the source sandbox and the empty folders around it."""
        place = cls(tree, new_place(scratch_directory))
        for path in (place.source_workspace, place.target_workspace, place.target_home):
            path.mkdir(parents=True)
        write_session(place.source_session, tree, cwd=place.source_workspace)
        return place

    def clear(self, path: Path) -> None:
        """Take what an earlier round left at `path` out of the way."""
        retire(path, self.directory / "retired")

    def source_daemon(self) -> AbstractContextManager[Daemon]:
        """Start the daemon of the source sandbox."""
        return serving(home=self.source_home, workspace=self.source_workspace)

    def target_daemon(self) -> AbstractContextManager[Daemon]:
        """Start the daemon of the target sandbox."""
        return serving(home=self.target_home, workspace=self.target_workspace)

    def age_target(self) -> None:
        """Leave in the target one older, smaller session of the same id and no recovery.

        A restore that finds its own result there may rightly do nothing, and one that finds nothing
        has no old session to keep; both would measure something else.
        """
        write_identity(self.target_session, cwd=self.source_workspace)

    def clear_target(self) -> None:
        """Take all sessions of the target out of the way, those in recovery too."""
        self.clear(self.target_home / ".bench")

    def check_target(self, *, thorough: bool) -> None:
        """Raise BenchError unless the target holds the session, relocated, and the old one is kept."""
        check_session(self.target_session, self.tree, cwd=self.target_workspace, thorough=thorough)
        recovered = [
            path
            for path in (self.target_home / ".bench" / ".outpost-recovery").glob(f"{SESSION_ID}-*")
            if path.is_dir()
        ]
        if len(recovered) != 1:
            raise BenchError(f"one session must be in recovery, not {len(recovered)}")
        check_session(recovered[0], Tree(0, 0), cwd=self.source_workspace, thorough=False)
