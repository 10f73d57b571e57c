"""A second capture after one file of many changed, beside the first one."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.daemon import Daemon
from benchmarks.harness import Bench, Sample, interleave
from benchmarks.ours import Capture, check_host_copy, run_client
from benchmarks.place import Place
from benchmarks.row import Row, compare, under_share
from benchmarks.tree import MANY_FILES, data_path
from benchmarks.wire import metered

_PEER = "the first capture"
_TIME_CASE = f"second capture, one file changed, {MANY_FILES.name}"
_WIRE_CASE = f"bytes on the wire of a second capture, one file changed, {MANY_FILES.name}"


@dataclass(frozen=True)
class SecondCapture:
    """Capture to a host that holds the session as it was before one file changed."""

    place: Place
    daemon: Daemon
    content: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311 - no secret
    name: str = "second capture"

    @property
    def repository(self) -> Path:
        """Return the host's repository of this subject."""
        return self.place.repository("second")

    def prepare(self) -> None:
        """Change one file, without changing its size, since the capture before; the first is made here."""
        if not (self.repository / ".outpost").exists():
            run_client("capture", self.daemon.target, self.repository, "none")
        path = data_path(self.place.source_session, MANY_FILES.file_count // 2)
        path.write_bytes(self.content.randbytes(path.stat().st_size))

    def run(self) -> Sample:
        """Capture again."""
        return run_client("capture", self.daemon.target, self.repository, "none")

    def check(self, *, thorough: bool) -> None:
        """Look at the size of the host copy."""
        del thorough
        check_host_copy(self.repository, self.place)

    def clear(self) -> None:
        """Leave the host copy: the next round captures over it."""


def rows(bench: Bench) -> Iterator[Row]:
    """Measure the time in turns with first captures, and the bytes once through a metering socket."""
    timed, counted = bench.wants(_TIME_CASE, _PEER), bench.wants(_WIRE_CASE, _PEER)
    if not timed and not counted:
        return
    place = Place.build(MANY_FILES, bench.directory)
    with place.source_daemon() as daemon:
        first, second = Capture(place, daemon, "none"), SecondCapture(place, daemon)
        if timed:
            measures = interleave([first, second], bench.rounds)
            yield compare(
                _TIME_CASE,
                unit="s",
                ours=measures[second.name].seconds,
                peer=_PEER,
                peer_value=measures[first.name].seconds,
                judge=under_share(0.5),
                peaks_mib=measures[second.name].peaks_mib,
            )
        if counted:
            yield compare(
                _WIRE_CASE,
                unit="MiB",
                ours=_wire_mib(second, daemon),
                peer=_PEER,
                peer_value=_wire_mib(first, daemon),
                judge=under_share(0.01),
            )


def _wire_mib(subject: Capture | SecondCapture, daemon: Daemon) -> float:
    """Run the subject once through a metering socket and return the MiB of both directions."""
    subject.prepare()
    with metered(daemon) as meter:
        run_client("capture", meter.target, subject.repository, "none")
    return meter.total_bytes / 1024**2
