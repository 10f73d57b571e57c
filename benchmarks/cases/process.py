"""Processes in a sandbox beside children of one's own: output, starts, and what many of them cost the daemon."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.daemon import Daemon, serving
from benchmarks.harness import MAX_COMMAND_SECONDS, Bench, BenchError, Measure, Sample, interleave, summarise
from benchmarks.process import OUTPUT_BYTES, PROCESSES_COUNT, STARTS_COUNT, STREAMS_COUNT
from benchmarks.row import Ratio, Row, Target, at_most_share, compare, under_share
from benchmarks.scratch import new_place

_MIB = 1 << 20
_MIN_MIB_PER_SECOND = 100
_MAX_EXTRA_SECONDS = 0.005
_MAX_DAEMON_MIB = 128.0

_OUTPUT_CASE = f"process output of {OUTPUT_BYTES // _MIB} MiB"
_BUSY_CASE = f"{STARTS_COUNT} processes run beside {STREAMS_COUNT} busy streams"
_START_CASE = "start of a process"
_MANY_CASE = f"daemon with {PROCESSES_COUNT} processes"
_SPEED = f"{_MIN_MIB_PER_SECOND} MiB/s"
_PIPE = "asyncio subprocess"
_START_PEER = "asyncio subprocess and one call"
_START_LIMIT = f"{_START_PEER}, {_MAX_EXTRA_SECONDS * 1000:g} ms more"
_LIMIT = "limit"


@dataclass(frozen=True)
class Work:
    """One kind of work, done in a client process of its own each time."""

    daemon: Daemon
    name: str

    def prepare(self) -> None:
        """Prepare nothing: a run leaves no process."""

    def run(self) -> Sample:
        """Do it once."""
        command = [sys.executable, "-m", "benchmarks.process", self.name, self.daemon.target]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=MAX_COMMAND_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise BenchError(f"the processes of '{self.name}' could not be run") from error
        result = json.loads(done.stdout)
        return Sample(result["seconds"], {"client": result["peak_mib"], "daemon": self.daemon.peak_mib})

    def check(self, *, thorough: bool) -> None:
        """Check nothing more: a process that did something else has failed the run."""

    def clear(self) -> None:
        """Leave nothing."""


def rows(bench: Bench) -> Iterator[Row]:
    """Time ours and the peers in turns, each pair with a fresh daemon."""
    yield from _compared(bench, _OUTPUT_CASE, "output", "bare_output", {_PIPE: (0.0, Ratio.SHARE_OF_PEER)})
    if bench.wants(_OUTPUT_CASE, _SPEED):
        seconds = OUTPUT_BYTES / _MIB / _MIN_MIB_PER_SECOND
        ours = _measured(bench, "output")["output"]
        yield _row(_OUTPUT_CASE, ours, _SPEED, seconds, at_most_share(1))
    if bench.wants(_BUSY_CASE, _PIPE):
        yield _busy(bench)
    peers = {_START_PEER: (0.0, Ratio.SHARE_OF_PEER), _START_LIMIT: (_MAX_EXTRA_SECONDS, at_most_share(1))}
    yield from _compared(bench, _START_CASE, "start", "bare_start", peers)
    if bench.wants(_MANY_CASE, _LIMIT):
        peaks_mib = _measured(bench, "many")["many"].peaks_mib
        yield compare(
            _MANY_CASE,
            unit="MiB",
            ours=peaks_mib["daemon"],
            peer=_LIMIT,
            peer_value=_MAX_DAEMON_MIB,
            judge=under_share(1),
            peaks_mib=peaks_mib,
        )


def _compared(
    bench: Bench, case: str, ours: str, peer_work: str, peers: "dict[str, tuple[float, Target | Ratio]]"
) -> Iterator[Row]:
    """Measure a pair of works, and compare ours with the other and so many seconds more."""
    if not (wanted := [peer for peer in peers if bench.wants(case, peer)]):
        return
    measures = _measured(bench, ours, peer_work)
    for peer in wanted:
        extra_seconds, judge = peers[peer]
        yield _row(case, measures[ours], peer, measures[peer_work].seconds + extra_seconds, judge)


def _busy(bench: Bench) -> Row:
    """Do both once: a run has hundreds of samples, and takes its time."""
    place = new_place(bench.directory)
    with serving(home=place, workspace=place) as daemon:
        ours, bare = (summarise([Work(daemon, work).run()]) for work in ("busy_starts", "bare_busy_starts"))
    return _row(_BUSY_CASE, ours, _PIPE, bare.seconds, Ratio.SHARE_OF_PEER)


def _row(case: str, ours: Measure, peer: str, peer_seconds: float, judge: "Target | Ratio") -> Row:
    return compare(
        case,
        unit="s",
        ours=ours.seconds,
        peer=peer,
        peer_value=peer_seconds,
        judge=judge,
        peaks_mib=ours.peaks_mib,
    )


def _measured(bench: Bench, *works: str) -> dict[str, Measure]:
    place = new_place(bench.directory)
    with serving(home=place, workspace=place) as daemon:
        # Half the rounds do: each has many samples within.
        return interleave([Work(daemon, work) for work in works], (bench.rounds + 1) // 2)
