"""Archives: what a growing conversation costs, and how fast they are beside a bare object store."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.daemon import Daemon, serving
from benchmarks.harness import Bench, BenchError, Measure, Sample, interleave, summarise
from benchmarks.object_server import object_server
from benchmarks.row import Row, at_most_share, compare
from benchmarks.scratch import new_place
from benchmarks.transcript import MIB, TranscriptPlace

_SIZE_BYTES = 100 * MIB
_APPENDED_BYTES = 10 * 1024
_TURNS_COUNT = 100
_MAX_TURN_KIB = 256
_MAX_GROWTH = 10
_MIN_VERIFY_MIB_PER_SECOND = 300
_MAX_WORK_SECONDS = 300.0

_GROWN = f"transcript of {_SIZE_BYTES // MIB} MiB, {_TURNS_COUNT} turns of {_APPENDED_BYTES // 1024} KiB"
_TURN_CASE = f"archived in one turn at most, {_GROWN}"
_ALL_CASE = f"archived in all turns, {_GROWN}"
_LAST_CASE = f"restore of the last snapshot, {_GROWN}"
_VERIFY_CASE = f"verify, {_GROWN}"
_ONCE_CASE = f"verify, transcript of {_SIZE_BYTES // MIB} MiB, archived once"
_MOVE_CASE = f"archive and restore, transcript of {_SIZE_BYTES // MIB} MiB, S3"
_TURN_LIMIT = f"{_MAX_TURN_KIB} KiB"
_ALL_LIMIT = f"{_MAX_GROWTH} times the growth"
_FRESH = "a fresh archive of the same"
_VERIFY_LIMIT = f"{_MIN_VERIFY_MIB_PER_SECOND} MiB/s"
_PLAIN = "put and get of one object"


@dataclass(frozen=True)
class Scene:
    """A transcript in a sandbox, another sandbox to restore it into, and an S3 server with a bucket."""

    place: TranscriptPlace
    source: Daemon
    target: Daemon
    url: str
    variables: Mapping[str, str]

    @property
    def target_home(self) -> Path:
        """Return the home of the sandbox that is restored into."""
        return self.place.directory / "target-home"

    @property
    def target_workspace(self) -> Path:
        """Return the workspace that a restored transcript names."""
        return self.place.directory / "target-workspace"

    def new_cache(self) -> str:
        """Return a folder for the copies of a host that has none."""
        return str(new_place(self.place.directory))

    def work(self, name: str, *arguments: str) -> dict[str, Any]:
        """Have a client process do some work."""
        command = [sys.executable, "-m", "benchmarks.archive", name, *arguments]
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                check=True,
                timeout=_MAX_WORK_SECONDS,
                env={**os.environ, **self.variables},
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise BenchError(f"the archive's work '{name}' could not be done") from error
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@dataclass
class Work:
    """One work, done in a client process of its own each time; `ends_in_target` when it restores."""

    scene: Scene
    name: str
    arguments: tuple[str, ...]
    namespace: str = ""
    ends_in_target: bool = True
    runs_count: int = field(default=0, init=False)

    def prepare(self) -> None:
        """Count the run: each has names in the store, and a cache, of its own."""
        self.runs_count += 1

    def run(self) -> Sample:
        """Do it once."""
        work, *rest = self.arguments
        if self.ends_in_target:
            rest.append(self.scene.new_cache())
        name = self.namespace or f"run-{self.runs_count}"
        result = self.scene.work(work, self.scene.url, name, *rest)
        return Sample(result["seconds"], {"client": result["peak_mib"]})

    def check(self, *, thorough: bool) -> None:
        """Compare what was restored with the transcript."""
        if self.ends_in_target and thorough:
            self.scene.place.check_moved(self.scene.target_home, self.scene.target_workspace)

    def clear(self) -> None:
        """Take what was restored, and what a restore may find again of it, out of the way."""
        self.scene.place.clear(self.scene.target_home / ".claude")


def rows(bench: Bench) -> Iterator[Row]:
    """Move a transcript through S3, then let it grow."""
    moved = bench.wants(_MOVE_CASE, _PLAIN)
    grown = {
        _TURN_CASE: _TURN_LIMIT,
        _ALL_CASE: _ALL_LIMIT,
        _LAST_CASE: _FRESH,
        _VERIFY_CASE: _VERIFY_LIMIT,
        _ONCE_CASE: _VERIFY_LIMIT,
    }
    wanted = {case for case, peer in grown.items() if bench.wants(case, peer)}
    if not moved and not wanted:
        return
    with _scene(bench) as scene:
        if moved:
            yield _moved(bench, scene)
        if wanted:
            yield from _grown(bench, scene, wanted)


def _moved(bench: Bench, scene: Scene) -> Row:
    ours = Work(scene, "move", ("move", scene.source.target, scene.target.target))
    plain = Work(scene, "plain", ("plain", str(scene.place.source)), ends_in_target=False)
    measures = interleave([ours, plain], (bench.rounds + 1) // 2)
    return _seconds(_MOVE_CASE, measures["move"], _PLAIN, measures["plain"].seconds, 2)


def _grown(bench: Bench, scene: Scene, wanted: set[str]) -> Iterator[Row]:
    if _ONCE_CASE in wanted:
        once = f"file://{new_place(scene.place.directory)}"
        scene.work("capture", once, "once", scene.source.target, scene.new_cache())
        yield _verified(bench, scene, once, "once", _ONCE_CASE)
    directory = new_place(scene.place.directory)
    url = f"file://{directory}"
    result = scene.work(
        "grow",
        url,
        "grown",
        scene.source.target,
        scene.new_cache(),
        str(scene.place.source),
        str(_TURNS_COUNT),
        str(_APPENDED_BYTES),
    )
    # A turn costs what the store has more, or what was sent, whichever is more: an index that is replaced is sent.
    turns = [
        max(stored, sent)
        for stored, sent in zip(
            (after - before for before, after in pairwise(result["stored"])),
            (after - before for before, after in pairwise(result["sent"])),
            strict=True,
        )
    ]
    growth_kib = _TURNS_COUNT * _APPENDED_BYTES / 1024
    if _TURN_CASE in wanted:
        yield _kib(_TURN_CASE, max(turns) / 1024, _TURN_LIMIT, _MAX_TURN_KIB)
    if _ALL_CASE in wanted:
        yield _kib(_ALL_CASE, sum(turns) / 1024, _ALL_LIMIT, _MAX_GROWTH * growth_kib)
    if _VERIFY_CASE in wanted:
        yield _verified(bench, scene, url, "grown", _VERIFY_CASE)
    if _LAST_CASE in wanted:
        scene.work("copy", url, scene.url)
        scene.work("capture", scene.url, "fresh", scene.source.target, scene.new_cache())
        subjects = [Work(scene, name, ("restore", scene.target.target), namespace=name) for name in ("grown", "fresh")]
        measures = interleave(subjects, (bench.rounds + 1) // 2)
        yield _seconds(_LAST_CASE, measures["grown"], _FRESH, measures["fresh"].seconds, 1.2)


def _verified(bench: Bench, scene: Scene, url: str, namespace: str, case: str) -> Row:
    results = [scene.work("verify", url, namespace) for _ in range(bench.rounds + 1)][1:]
    measure = summarise([Sample(result["seconds"], {"client": result["peak_mib"]}) for result in results])
    seconds = results[0]["bytes"] / MIB / _MIN_VERIFY_MIB_PER_SECOND
    return _seconds(case, measure, _VERIFY_LIMIT, seconds, 1)


@contextmanager
def _scene(bench: Bench) -> Iterator[Scene]:
    place = TranscriptPlace.build(_SIZE_BYTES, bench.directory, distinct=True)
    home, workspace = place.directory / "target-home", place.directory / "target-workspace"
    home.mkdir()
    workspace.mkdir()
    with place.daemon() as source, serving(home=home, workspace=workspace) as target, object_server() as server:
        yield Scene(place, source, target, server.bucket(), server.variables())


def _seconds(case: str, ours: Measure, peer: str, peer_seconds: float, bound: float) -> Row:
    return compare(
        case,
        unit="s",
        ours=ours.seconds,
        peer=peer,
        peer_value=peer_seconds,
        judge=at_most_share(bound),
        peaks_mib=ours.peaks_mib,
    )


def _kib(case: str, ours_kib: float, limit: str, limit_kib: float) -> Row:
    return compare(case, unit="KiB", ours=ours_kib, peer=limit, peer_value=limit_kib, judge=at_most_share(1))
