"""Run commands and subjects so that their numbers can be compared.

The rule of this module: subjects take turns, round by round, so noise of the machine hits all alike;
preparing, cleaning and checking lie outside the timed part.
"""

import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Protocol

MAX_COMMAND_SECONDS = 60.0


class BenchError(Exception):
    """The bench could not measure: a command failed, hung, or left a wrong result."""


@dataclass(frozen=True)
class Bench:
    """What one run of the bench was asked for, and the folder it may fill and will remove."""

    rounds: int
    only: str
    directory: Path

    def wants(self, case: str, peer: str) -> bool:
        """Return whether the row of this case and peer was asked for."""
        return self.only in f"{case} / {peer}"


@dataclass(frozen=True)
class Sample:
    """One timed run: wall seconds, and the peak memory of each process that took part."""

    seconds: float
    peaks_mib: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Measure:
    """Many samples of one subject: the median of the times, the maximum of the peaks."""

    seconds: float
    peaks_mib: dict[str, float]


class Subject(Protocol):
    """Something that can be timed again and again."""

    @property
    def name(self) -> str:
        """Name the subject as a row names it."""

    def prepare(self) -> None:
        """Bring the place of the result to its state before the run, untimed."""

    def run(self) -> Sample:
        """Do the work once and return how long it took."""

    def check(self, *, thorough: bool) -> None:
        """Raise BenchError if the work left a wrong result; byte by byte when thorough, untimed."""

    def clear(self) -> None:
        """Take the result out of the way, untimed."""


def interleave(subjects: Sequence[Subject], rounds: int) -> dict[str, Measure]:
    """Time the subjects in turns and return the measure of each by name.

    One uncounted round comes first: it warms the page cache and its results are checked byte by
    byte. Every second round goes backwards, so nobody always runs after the same neighbour.
    """
    samples: dict[str, list[Sample]] = {subject.name: [] for subject in subjects}
    for round_number in range(rounds + 1):
        for subject in subjects if round_number % 2 else reversed(subjects):
            subject.prepare()
            os.sync()  # what was left dirty must not be written back during the timed part
            sample = subject.run()
            subject.check(thorough=round_number == 0)
            subject.clear()
            if round_number > 0:
                samples[subject.name].append(sample)
    return {name: summarise(taken) for name, taken in samples.items()}


def summarise(samples: Sequence[Sample]) -> Measure:
    """Return the median time and the highest peak of each process."""
    processes = sorted({process for sample in samples for process in sample.peaks_mib})
    return Measure(
        seconds=median(sample.seconds for sample in samples),
        peaks_mib={process: max(sample.peaks_mib.get(process, 0.0) for sample in samples) for process in processes},
    )


def time_commands(*commands: Sequence[str | Path]) -> Sample:
    """Run the commands one after the other; time them together, and weigh each by its program's name.

    Raises:
        BenchError: a command failed or did not end within MAX_COMMAND_SECONDS.
    """
    peaks_mib: dict[str, float] = {}
    began = time.perf_counter()
    for command in commands:
        program = Path(command[0]).name
        peaks_mib[program] = max(peaks_mib.get(program, 0.0), _run(command))
    return Sample(time.perf_counter() - began, peaks_mib)


def wait_for(ready: Callable[[], int], what: str) -> None:
    """Block until the descriptor that `ready` returns can be read.

    Raises:
        BenchError: it could not within MAX_COMMAND_SECONDS.
    """
    if not select.select([ready()], [], [], MAX_COMMAND_SECONDS)[0]:
        raise BenchError(f"{what} took longer than {MAX_COMMAND_SECONDS:g} s")


def _run(command: Sequence[str | Path]) -> float:
    """Run one command to its end and return its peak memory in MiB, its own children included."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    handle = os.pidfd_open(process.pid)
    try:
        wait_for(lambda: handle, str(command[0]))
    except BenchError:
        process.kill()
        raise
    finally:
        os.close(handle)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise BenchError(f"{' '.join(map(str, command))} ended with {process.returncode}")
    return usage.ru_maxrss / 1024
