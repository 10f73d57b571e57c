"""Run the bench: `python -m benchmarks` from the root of the repository."""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import report
from benchmarks.cases import (
    archive,
    fleet,
    follow,
    incremental,
    memory,
    moving,
    process,
    relocation,
    startup,
    transcript,
)
from benchmarks.harness import Bench, BenchError
from benchmarks.scratch import scratch

if TYPE_CHECKING:
    from benchmarks.row import Row

_CASES = (startup, memory, moving, incremental, transcript, relocation, follow, process, archive, fleet)


def main() -> int:
    """Measure what was asked for, print and save it.

    Returns:
        0, 1 if a target is missed, 2 if something could not be measured; nothing is saved then.
    """
    arguments = _arguments()
    began = time.perf_counter()
    busy_processors = os.getloadavg()[0]
    try:
        rows = _measure(arguments)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if not rows:
        print(f"bench: no row's name contains {arguments.only!r}", file=sys.stderr)
        return 2
    report.save(rows, arguments.output)
    print(report.table(rows))
    print()
    print(report.peaks(rows))
    missed = [row for row in rows if row.holds is False]
    print()
    print(
        f"{len(rows)} rows, {sum(row.holds is True for row in rows)} targets hold, {len(missed)} missed; "
        f"medians of {arguments.rounds} rounds, {time.perf_counter() - began:.0f} s; {arguments.output}"
    )
    if busy_processors > 1:
        print(
            f"Others kept {busy_processors:.1f} of {os.cpu_count()} processors busy at the start. Ours needs two at a "
            "time and most peers one, so these ratios are worse than they are on a machine of our own."
        )
    return 1 if missed else 0


def _measure(arguments: argparse.Namespace) -> "list[Row]":
    rows: list[Row] = []
    # Below build/ and not in the system's scratch folder: that one is often memory, where a sync costs nothing.
    with scratch(Path("build")) as directory:
        bench = Bench(arguments.rounds, arguments.only, directory)
        for case in _CASES:
            for row in case.rows(bench):
                print(f"measured: {row.case} / {row.peer}", file=sys.stderr, flush=True)
                rows.append(row)
    return rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each subject (default 5)")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="only rows whose `case / peer` contains this")
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"), help="where the rows are written")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
