"""A second capture after one file of many changed, beside the first one."""

import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.daemon import Daemon
from benchmarks.harness import Bench, Measure, Sample, summarise
from benchmarks.ours import check_host_copy, run_client, run_turns
from benchmarks.place import Place
from benchmarks.row import Row, compare, under_share
from benchmarks.tree import MANY_FILES, data_path
from benchmarks.wire import metered

_PEER = "the first capture"
_TIME_CASE = f"second capture, one file changed, {MANY_FILES.name}"
_WIRE_CASE = f"bytes on the wire of a second capture, one file changed, {MANY_FILES.name}"


def rows(bench: Bench) -> Iterator[Row]:
    """Time both captures in one process, round by round; count their bytes once through a metering socket."""
    timed, counted = bench.wants(_TIME_CASE, _PEER), bench.wants(_WIRE_CASE, _PEER)
    if not timed and not counted:
        return
    place = Place.build(MANY_FILES, bench.directory)
    with place.source_daemon() as daemon:
        if timed:
            first, second = _times(place, daemon, bench.rounds)
            yield compare(
                _TIME_CASE,
                unit="s",
                ours=second.seconds,
                peer=_PEER,
                peer_value=first.seconds,
                judge=under_share(0.5),
                peaks_mib=second.peaks_mib,
            )
        if counted:
            repository = place.repository("wire")
            first_mib = _wire_mib(daemon, repository)
            path = _changing_path(place)
            path.write_bytes(os.urandom(path.stat().st_size))
            yield compare(
                _WIRE_CASE,
                unit="MiB",
                ours=_wire_mib(daemon, repository),
                peer=_PEER,
                peer_value=first_mib,
                judge=under_share(0.01),
            )


def _times(place: Place, daemon: Daemon, rounds: int) -> tuple[Measure, Measure]:
    """Capture twice in a fresh client process each round; the first round is not counted."""
    taken: list[tuple[Sample, Sample]] = []
    repository = place.repository("turns")
    for _ in range(rounds + 1):
        place.clear(repository / ".outpost")
        os.sync()  # what was left dirty must not be written back during the timed part
        taken.append(run_turns(daemon.target, repository, _changing_path(place)))
        check_host_copy(repository, place)
    counted = taken[1:]
    return summarise([first for first, _ in counted]), summarise([second for _, second in counted])


def _changing_path(place: Place) -> Path:
    return data_path(place.source_session, MANY_FILES.file_count // 2)


def _wire_mib(daemon: Daemon, repository: Path) -> float:
    """Capture once through a metering socket and return the MiB of both directions."""
    with metered(daemon) as meter:
        run_client("capture", meter.target, repository, "none")
    return meter.total_bytes / 1024**2
