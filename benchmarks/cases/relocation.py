"""Relocation of a transcript beside a script that parses and writes each line, and beside the speed it must have."""

import json
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from benchmarks.harness import MAX_COMMAND_SECONDS, Bench, BenchError, Sample, interleave
from benchmarks.row import Row, at_least_times_better, at_most_share, compare
from benchmarks.scratch import new_place, retire

_MIB = 1024 * 1024
_SIZE_BYTES = 200 * _MIB
_MIN_MIB_PER_SECOND = 300
_BLOCK_BYTES = 4 * _MIB
_ORIGIN, _DESTINATION = "/home/dev/demo-app", "/srv/work/another app"
_CASE = f"relocation, transcript of {_SIZE_BYTES // _MIB} MiB"
_JSON = "json.loads, json.dumps per line"
_LIMIT = f"{_MIN_MIB_PER_SECOND} MiB/s"
_SEED = 20_250_101
_TEXTS = ['"quoted"', "\\n", "\t", "\n", "\n\n", "", "/home/dev/demo-app/src/main.py", "é", "→", "42"]
_WORDS = [*str(__doc__).split(), *_TEXTS]


@dataclass(frozen=True)
class Relocation:
    """Relocate the transcript once, in a process of its own."""

    directory: Path
    way: str
    name: str

    @property
    def _source(self) -> Path:
        return self.directory / "source.jsonl"

    @property
    def _target(self) -> Path:
        return self.directory / f"{self.way}.jsonl"

    def prepare(self) -> None:
        """Prepare nothing: the result of the round before is out of the way."""

    def run(self) -> Sample:
        """Relocate once."""
        words = [self.way, str(self._source), str(self._target), _ORIGIN, _DESTINATION]
        command = [sys.executable, "-m", "benchmarks.relocation", *words]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=MAX_COMMAND_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise BenchError(f"the transcript could not be relocated by {self.way}") from error
        result = json.loads(done.stdout)
        return Sample(result["seconds"], {self.way: result["peak_mib"]})

    def check(self, *, thorough: bool) -> None:
        """Compare the result with the transcript, line by line when thorough."""
        old, new = (f'"cwd":"{path}"'.encode() for path in (_ORIGIN, _DESTINATION))
        if thorough:
            with self._source.open("rb") as lines, self._target.open("rb") as moved_lines:
                pairs = zip_longest(lines, moved_lines, fillvalue=b"")
                if any(line.replace(old, new) != moved for line, moved in pairs):
                    raise BenchError(f"{self._target} is not the transcript, relocated")
        elif self._target.stat().st_size <= self._source.stat().st_size:
            raise BenchError(f"{self._target} is too small to be the transcript, relocated")

    def clear(self) -> None:
        """Take the result out of the way."""
        retire(self._target, self.directory / "retired")


def rows(bench: Bench) -> Iterator[Row]:
    """Time both ways in turns."""
    wanted = [peer for peer in (_JSON, _LIMIT) if bench.wants(_CASE, peer)]
    if not wanted:
        return
    directory = new_place(bench.directory)
    block = _block()
    with (directory / "source.jsonl").open("wb") as file:
        for _ in range(_SIZE_BYTES // len(block)):
            file.write(block)
    ours, script = Relocation(directory, "ours", _CASE), Relocation(directory, "json", _JSON)
    # Half the rounds do: a round takes seconds, and noise of the machine is small beside that.
    measures = interleave([ours, script] if _JSON in wanted else [ours], (bench.rounds + 1) // 2)
    for peer in wanted:
        is_limit = peer == _LIMIT
        yield compare(
            _CASE,
            unit="s",
            ours=measures[_CASE].seconds,
            peer=peer,
            peer_value=_SIZE_BYTES / _MIB / _MIN_MIB_PER_SECOND if is_limit else measures[_JSON].seconds,
            judge=at_most_share(1) if is_limit else at_least_times_better(10),
            peaks_mib=measures[_CASE].peaks_mib,
            peer_peaks_mib={} if is_limit else measures[_JSON].peaks_mib,
        )


def _block() -> bytes:
    """Return lines like those of Claude Code 2.1.332: half a KiB to 3 KiB, a working directory in each."""
    content = random.Random(_SEED)  # noqa: S311 - the same bytes in every run are the point
    lines: list[bytes] = []
    size_bytes = 0
    while size_bytes < _BLOCK_BYTES:
        lines.append(_line(content, len(lines)))
        size_bytes += len(lines[-1])
    return b"".join(lines)


def _line(content: random.Random, number: int) -> bytes:
    text = " ".join(content.choices(_WORDS, k=content.randint(10, 400)))
    role = ("assistant", "user")[number % 2]
    line = {
        "parentUuid": str(uuid.UUID(int=content.getrandbits(128))),
        "isSidechain": False,
        "type": role,
        "message": {
            "id": f"msg_{number}",
            "type": "message",
            "role": role,
            "model": "model",
            "content": [{"type": "text", "text": text}],
            "stop_reason": None,
            "usage": {"input_tokens": number, "output_tokens": 10, "cache_read_input_tokens": 20},
        },
        "uuid": str(uuid.UUID(int=content.getrandbits(128))),
        "timestamp": "2026-11-30T12:00:00.000Z",
        "userType": "external",
        "entrypoint": "cli",
        "cwd": _ORIGIN,
        "sessionId": "f1000000-0000-4000-8000-000000000003",
        "version": "2.1.332",
        "gitBranch": "main",
    }
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
