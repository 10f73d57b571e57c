"""From the start of the process to serving, beside an interpreter that only imports gRPC."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.harness import Bench, Sample, interleave, time_commands
from benchmarks.place import Place
from benchmarks.row import Row, at_most_share, compare
from benchmarks.tree import Tree

_CASE = "start to serving"
_PEER = 'python -c "import grpc"'


@dataclass(frozen=True)
class Start:
    """Start a daemon, wait until it says that it listens, end it."""

    place: Place
    name: str = _CASE

    def prepare(self) -> None:
        """Prepare nothing: the daemon makes and removes its own socket."""

    def run(self) -> Sample:
        """Start once; ending it is not timed."""
        with self.place.source_daemon() as daemon:
            return Sample(daemon.start_seconds, {"daemon": daemon.peak_mib})

    def check(self, *, thorough: bool) -> None:
        """Check nothing more: a daemon that came up wrongly has failed the run."""

    def clear(self) -> None:
        """Leave nothing."""


@dataclass(frozen=True)
class ImportGrpc:
    """Start an interpreter that imports gRPC and ends."""

    name: str = _PEER

    def prepare(self) -> None:
        """Prepare nothing."""

    def run(self) -> Sample:
        """Import once."""
        return time_commands([sys.executable, "-c", "import grpc"])

    def check(self, *, thorough: bool) -> None:
        """Check nothing more: an import that failed has failed the run."""

    def clear(self) -> None:
        """Leave nothing."""


def rows(bench: Bench) -> Iterator[Row]:
    """Measure both in turns."""
    if not bench.wants(_CASE, _PEER):
        return
    place = Place.build(Tree(1, 1), bench.directory)
    start, peer = Start(place), ImportGrpc()
    measures = interleave([start, peer], bench.rounds)
    yield compare(
        _CASE,
        unit="s",
        ours=measures[start.name].seconds,
        peer=_PEER,
        peer_value=measures[peer.name].seconds,
        judge=at_most_share(3),
        peaks_mib=measures[start.name].peaks_mib,
    )
