"""Capture of a large transcript beside a bare gRPC stream, and of one that grew beside its full capture."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.daemon import Daemon
from benchmarks.harness import MAX_COMMAND_SECONDS, Bench, BenchError, Sample, interleave, summarise
from benchmarks.peers.stream import bare_stream
from benchmarks.row import Row, at_most_share, compare, under_share
from benchmarks.transcript import MIB, TranscriptPlace, append_line
from benchmarks.wire import metered

_LARGE_BYTES = 1024 * MIB
_GROWING_BYTES = 100 * MIB
_APPENDED_BYTES = 10 * 1024
_LIMIT = "limit"
_MAX_PEAK_MIB = 128.0
_MAX_WIRE_KIB = 128.0
_STREAM = "bare gRPC stream"
_FIRST = "the full capture"
_CAPTURE_CASE = f"capture, transcript of {_LARGE_BYTES // MIB} MiB"
_PEAK_CASES = {process: f"{process} peak, {_CAPTURE_CASE}" for process in ("daemon", "client")}
_GROWN = f"10 KiB appended to a transcript of {_GROWING_BYTES // MIB} MiB"
_TIME_CASE = f"second capture, {_GROWN}"
_WIRE_CASE = f"bytes on the wire of a second capture, {_GROWN}"


@dataclass(frozen=True)
class Capture:
    """Capture a transcript to a host that holds nothing of it."""

    place: TranscriptPlace
    daemon: Daemon
    name: str = _CAPTURE_CASE

    @property
    def _host_home(self) -> Path:
        return self.place.host_home("capture")

    def prepare(self) -> None:
        """Prepare nothing: the host copy of the round before is out of the way."""

    def run(self) -> Sample:
        """Capture once."""
        result = _client(self.daemon.target, self._host_home)
        return Sample(result["seconds"][0], {"client": result["peak_mib"]})

    def check(self, *, thorough: bool) -> None:
        """Compare the host copy with the transcript."""
        del thorough  # reading all of it in every round costs a second each
        self.place.check_copy(self._host_home)

    def clear(self) -> None:
        """Take the host copy and what is remembered of it out of the way."""
        self.place.clear(self._host_home)


def rows(bench: Bench) -> Iterator[Row]:
    """Measure the large transcript, then the growing one."""
    yield from _large(bench)
    yield from _growing(bench)


def _large(bench: Bench) -> Iterator[Row]:
    peaks_wanted = [process for process, case in _PEAK_CASES.items() if bench.wants(case, _LIMIT)]
    if not peaks_wanted and not bench.wants(_CAPTURE_CASE, _STREAM):
        return
    place = TranscriptPlace.build(_LARGE_BYTES, bench.directory)
    with place.daemon() as daemon, bare_stream(place.source) as stream:
        ours = Capture(place, daemon)
        # Half the rounds do: a round takes seconds, and noise of the machine is small beside that.
        measures = interleave([ours, stream], (bench.rounds + 1) // 2)
        peaks_mib = {**measures[ours.name].peaks_mib, "daemon": daemon.peak_mib}
    if bench.wants(_CAPTURE_CASE, _STREAM):
        yield compare(
            _CAPTURE_CASE,
            unit="s",
            ours=measures[ours.name].seconds,
            peer=_STREAM,
            peer_value=measures[stream.name].seconds,
            judge=at_most_share(2),
            peaks_mib=peaks_mib,
            peer_peaks_mib=measures[stream.name].peaks_mib,
        )
    for process in peaks_wanted:
        yield compare(
            _PEAK_CASES[process],
            unit="MiB",
            ours=peaks_mib[process],
            peer=_LIMIT,
            peer_value=_MAX_PEAK_MIB,
            judge=under_share(1),
        )


def _growing(bench: Bench) -> Iterator[Row]:
    timed, counted = bench.wants(_TIME_CASE, _FIRST), bench.wants(_WIRE_CASE, _LIMIT)
    if not timed and not counted:
        return
    place = TranscriptPlace.build(_GROWING_BYTES, bench.directory)
    with place.daemon() as daemon:
        if timed:
            taken = [_turns(place, daemon) for _ in range(bench.rounds + 1)]
            first, second = (summarise(samples) for samples in zip(*taken[1:], strict=True))
            yield compare(
                _TIME_CASE,
                unit="s",
                ours=second.seconds,
                peer=_FIRST,
                peer_value=first.seconds,
                judge=at_most_share(0.2),
                peaks_mib=second.peaks_mib,
            )
        if counted:
            yield compare(
                _WIRE_CASE,
                unit="KiB",
                ours=_wire_kib(place, daemon),
                peer=_LIMIT,
                peer_value=_MAX_WIRE_KIB,
                judge=under_share(1),
            )


def _turns(place: TranscriptPlace, daemon: Daemon) -> tuple[Sample, Sample]:
    """Capture twice in a fresh client process, a line appended between, and return the samples of both captures."""
    host_home = place.host_home("turns")
    os.sync()  # what was left dirty must not be written back during the timed part
    result = _client(daemon.target, host_home, str(place.source), str(_APPENDED_BYTES))
    place.check_copy(host_home)
    place.clear(host_home)
    peaks_mib = {"client": result["peak_mib"]}
    first_seconds, second_seconds = result["seconds"]
    return Sample(first_seconds, peaks_mib), Sample(second_seconds, peaks_mib)


def _wire_kib(place: TranscriptPlace, daemon: Daemon) -> float:
    """Capture, append a line, capture through a metering socket; return the KiB of both directions of the last."""
    host_home = place.host_home("wire")
    _client(daemon.target, host_home)
    append_line(place.source, _APPENDED_BYTES)
    with metered(daemon) as meter:
        _client(meter.target, host_home)
    place.check_copy(host_home)
    return meter.total_bytes / 1024


def _client(target: str, host_home: Path, *grown: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.transcript_client", target, str(host_home), *grown]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=MAX_COMMAND_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise BenchError("the client could not capture the transcript") from error
    result: dict[str, Any] = json.loads(done.stdout)
    return result
