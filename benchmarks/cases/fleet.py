"""One kept session restored in 64 sandboxes, each with its daemon, beside the rate of a restore that is alone."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.daemon import serving
from benchmarks.fleet import CONCURRENCY_COUNT
from benchmarks.harness import Bench, BenchError
from benchmarks.place import Place
from benchmarks.row import Row, at_most_share, compare
from benchmarks.tree import MIB, Tree, check_session, session_path

TARGETS_COUNT = 64
_ALONE_COUNT = 6
_TREE = Tree(file_count=400, data_bytes=16 * MIB)
_MAX_SECONDS = 300.0
_MAX_GROWTH = 1.15

_CASE = f"restore in {TARGETS_COUNT} sandboxes, {_TREE.name}"
_PEER = f"{TARGETS_COUNT} times a restore alone"
_PEAK_CASE = f"client peak, restore in {TARGETS_COUNT} sandboxes"
_PEAK_PEER = f"the first {CONCURRENCY_COUNT}"


def rows(bench: Bench) -> Iterator[Row]:
    """Restore once: a run has many samples within."""
    if not (bench.wants(_CASE, _PEER) or bench.wants(_PEAK_CASE, _PEAK_PEER)):
        return
    place = Place.build(_TREE, bench.directory)
    homes = [place.directory / f"sandbox-{number}" for number in range(TARGETS_COUNT + _ALONE_COUNT)]
    with ExitStack() as stack:
        source = stack.enter_context(place.source_daemon())
        targets = []
        for home in homes:
            home.mkdir()
            targets.append(stack.enter_context(serving(home=home, workspace=home)).target)
        result = _measured(place, source.target, targets)
    for number, home in enumerate(homes):
        check_session(session_path(home), _TREE, cwd=home, thorough=number % CONCURRENCY_COUNT == 0)
    if bench.wants(_CASE, _PEER):
        yield compare(
            _CASE,
            unit="s",
            ours=result["seconds"],
            peer=_PEER,
            peer_value=TARGETS_COUNT * result["alone_seconds"],
            judge=at_most_share(1.5),
        )
    if bench.wants(_PEAK_CASE, _PEAK_PEER):
        yield compare(
            _PEAK_CASE,
            unit="MiB",
            ours=result["last_mib"],
            peer=_PEAK_PEER,
            peer_value=result["first_mib"],
            judge=at_most_share(_MAX_GROWTH),
        )


def _measured(place: Place, source: str, targets: list[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.fleet", str(place.repository("fleet")), source]
    command += [_listed(place.directory / "alone", targets[:_ALONE_COUNT])]
    command += [_listed(place.directory / "many", targets[_ALONE_COUNT:])]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=_MAX_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise BenchError("the client could not restore in many sandboxes") from error
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _listed(path: Path, targets: list[str]) -> str:
    path.write_text("\n".join(targets))
    return str(path)
